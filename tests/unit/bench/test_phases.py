"""bench/recovery/phases: what it makes of a run's ledger and of the job's own records. Nothing is started."""

import sys
from pathlib import Path

import pytest

from lastgood.ledger.event import Event, Links

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench" / "recovery"))
import phases

OFFSET_US = 1_000_000_000_000
KILLED_US = 5_000_000
SURVIVORS, GONE, SPARE = (100, 102, 103), 101, 104
KILL = phases.Kill(pid=GONE, at_us=KILLED_US, facts={"victim": 1, "load": 1.5})
ENDS_MS = {
    "noticed": 20, "left": 31, "read": 35, "joined": 43, "wrapped": 50, "replayed": 110, "agreed": 112,
    "next step": 180,
}  # fmt: skip


def said(kind, at_ms, incident="i2"):
    at_us = KILLED_US + OFFSET_US + at_ms * 1000
    return Event(
        kind=kind, id=f"{kind}{at_ms}", t_observed_us=at_us, links=Links(incident=incident)
    )


LEDGER = [
    said("incident.open", -900, "i1"),
    said("incident.close", -700, "i1"),
    said("incident.open", 20),
    said("isolate", 31),
    said("annotation", 33, "another"),
    said("restore", 35),
    said("incident.close", 112),
    said("incident.open", 5000, "i3"),
    said("incident.close", 5200, "i3"),
]


def noted(event, pid, at_ms, **facts):
    return {"event": event, "pid": pid, "t_us": KILLED_US + at_ms * 1000, **facts}


def diary():
    """Three survivors and the spare; the last to do anything is a survivor, which was in a pass when the rank died."""
    events = [noted("begins pass", pid, 1) for pid in (*SURVIVORS, GONE)]
    for late_ms, (rank, pid) in enumerate(zip((1, 0, 2, 3), (SPARE, *SURVIVORS), strict=True)):
        step = {"rank": rank, "members": 4, "loss": "a"}
        events += [
            noted("wraps", pid, 40 + late_ms),
            noted("begins pass", pid, 47 + late_ms),
            noted("has done pass", pid, 107 + late_ms),
            noted("begins pass", pid, 113),
            noted("has done pass", pid, 175),
            noted("step", pid, 177 + late_ms, step=26, **step),
            noted("step", pid, 240, step=27, **step),
        ]
    return sorted(events, key=lambda event: event["t_us"])


def row(events=None, ledger=LEDGER):
    return phases.facts_of(KILL, events or diary(), ledger, offset_us=OFFSET_US)


def test_the_ledger_and_the_job_tell_when_each_part_ended():
    assert row() == {"victim": 1, "load": 1.5, "lost_steps": 0, "ends_ms": ENDS_MS}


@pytest.mark.parametrize("kind", ["incident.open", "isolate", "restore", "incident.close"])
def test_a_moment_that_the_ledger_does_not_hold_makes_no_row(kind):
    ledger = [event for event in LEDGER if event.kind != kind or event.incident == "i1"]
    assert "not told" in row(ledger=ledger)["error"]


def test_a_rank_that_did_not_come_back_makes_no_row():
    assert row([e for e in diary() if e["pid"] != SPARE])["error"] == "never came back"
    assert (
        "not told"
        in row([e for e in diary() if (e["event"], e["pid"]) != ("wraps", SPARE)])["error"]
    )


def test_parts_add_up_and_one_that_was_over_early_takes_no_time():
    early = {**ENDS_MS, "left": 18, "joined": 30}
    for ends_ms in (ENDS_MS, early):
        took = phases.took_ms({"ends_ms": ends_ms})
        assert sum(took[part] for part in phases.PARTS) == took["in all"] == 180
    assert (took["left"], took["read"], took["joined"], took["wrapped"]) == (0, 15, 0, 15)


def test_the_table_says_over_how_many_kills_it_is():
    common = {"load": 1.0, "cores": 2, "python": "3.11", "torch": "2"}
    later = {part: end + 10 for part, end in ENDS_MS.items()}
    rows = [
        {"plain_step_ms": [60.0, 61.0, 70.0], **common},
        {"run": 0, "ends_ms": ENDS_MS, **common},
        {"run": 1, "ends_ms": later, **common},
        {"run": 1, "error": "never came back", **common, "load": 3.0},
    ]
    made = phases.table(rows)
    assert "| noticed | 25 (20 to 30) |" in made
    assert "| in all | 185 (180 to 190) |" in made
    assert "of 2 of 3 kills in 2 runs" in made
    assert "61 (60 to 70) ms" in made
    assert "Load average 1.0 to 3.0" in made
    assert phases.table([]) == "Not measured yet."
