"""Ledgers of two sides, written as a run would: incidents with chosen times under chosen conditions."""

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Verification, new_event
from lastgood.ledger.store import open_store

CLOCK = ManualClock(1_000_000)
START_US, GAP_US = 1_000_000_000_000, 60_000_000
TEN = [1.00, 1.02, 0.98, 1.05, 1.10, 0.95, 1.01, 1.03, 0.99, 1.07]
"""Seconds to detect, ten times: scatter of a few percent."""


def side_events(
    run, detect_s, *, recovery_s=0.3, lost=(), kinds=("sigstop",), world=4, host="h1", floor_us=1_000_000,
    escalated=(), undetected=0, mode="drill", late_s=3, version="1",
):  # fmt: skip
    """One run: an incident a minute, each with its injection, its times and the steps that it lost."""
    common = {
        "clock": CLOCK,
        "run": run,
        "attempt": 1,
        "topology": "t",
        "versions": {"lastgood": version},
    }
    body = {
        "world": world, "spares": 1, "mode": mode, "host": host, "hang_floor_us": floor_us,
        "contract_digest": "c" * 64, "command": ["/x/job.py", "--out", f"/y/{run}", "--size", "3"],
    }  # fmt: skip
    made = [new_event("run.start", t_observed_us=START_US, body=body, **common)]
    verification = Verification(test="replay", result="equal", evidence="aa")
    for number, seconds in enumerate(detect_s):
        injected_us = START_US + (number + 1) * GAP_US
        detected_us = injected_us + round(seconds * 1e6)
        closed_us = detected_us + round(recovery_s * (1 + number / 100) * 1e6)
        name = f"{run}/incident-{number + 1}"
        mine = {**common, "links": {"incident": name}}
        kind = kinds[number % len(kinds)]
        outcome = "escalated" if number in escalated else "recovered"
        steps = lost[number] if lost else 0
        made += [
            new_event(
                "incident.open", t_observed_us=detected_us, class_="fail_slow", symptom="hang", ranks=(1,), **mine
            ),
            new_event("detect", t_occurred_us=injected_us, t_observed_us=detected_us, ranks=(1,),
                      detect_us=detected_us - injected_us, **mine),
            new_event(
                "incident.close", t_observed_us=closed_us, ranks=(1,), body={"outcome": outcome, "lost_steps": steps},
                verification=None if outcome == "escalated" else verification, **mine,
            ),
            new_event(
                "annotation", t_observed_us=closed_us,
                body={"injected": True, "fault_kind": kind, "injected_wall_us": injected_us}, **mine,
            ),
        ]  # fmt: skip
    for _ in range(undetected):
        made.append(
            new_event("annotation", body={"injected": True, "fault_kind": kinds[0]}, **common)
        )
    return [*made, *steps_of(len(detect_s), common, late_s)]


def steps_of(incidents, common, late_s=3):
    """One step a second, but for some seconds behind each injection."""
    made = []
    for number in range(incidents + 1):
        begin_us = START_US + number * GAP_US + (late_s * 1_000_000 if number else 0)
        seconds = 58 - late_s if number else 58
        ends = [begin_us + (k + 1) * 1_000_000 for k in range(seconds)]
        first = number * 60 + 1
        made.append(
            new_event(
                "step", t_occurred_us=begin_us, t_observed_us=ends[-1],
                body={"first": first, "last": first + seconds - 1, "began_us": begin_us, "ended_us": ends}, **common,
            )
        )  # fmt: skip
    end_us = START_US + (incidents + 1) * GAP_US
    return [*made, new_event("run.end", t_observed_us=end_us, body={"exit_code": 0}, **common)]


def write_side(path, run, detect_s, **given):
    """The same as a ledger file."""
    with open_store(path) as store:
        store.append(side_events(run, detect_s, **given))
    return path
