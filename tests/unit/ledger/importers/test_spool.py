"""Spools of several hosts become one ledger: cut and changed lines are told apart, silent hangs get a name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Event, encode_event, new_event
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.training.attach.spool import SpoolEvents, frame

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "import" / "spool"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLE, tmp_path / "spool")
    return tmp_path / "spool"


def stored(tmp_path: Path) -> list[Event]:
    with open_store(tmp_path / "l.db", create=False) as store:
        return list(store.events())


def test_the_events_of_all_hosts_are_in_one_ledger_with_their_own_clocks(spool, tmp_path):
    result = import_files([spool], ledger=tmp_path / "l.db", format="spool")
    events = stored(tmp_path)
    assert result.exit_code == 0
    assert {e.clock.id for e in events if e.clock and e.clock.id} == {"c-node-a", "c-node-b"}
    (incident,) = [i for i in fold_incidents(events) if not i.is_planned]
    assert (incident.symptom, incident.ranks, incident.outcome) == ("hang", (1,), "resolved")


def test_a_second_import_adds_nothing_and_a_longer_spool_only_its_new_lines(spool, tmp_path):
    (segment,) = (spool / "node-a").iterdir()
    whole = segment.read_bytes()
    segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))
    import_files([spool], ledger=tmp_path / "l.db", format="spool")
    before = {e.id for e in stored(tmp_path)}
    segment.write_bytes(whole)
    import_files([spool], ledger=tmp_path / "l.db", format="spool")
    assert before < {e.id for e in stored(tmp_path)}
    again = import_files([spool], ledger=tmp_path / "l.db", format="spool")
    assert again.total.events_new == 0


def test_a_cut_last_line_is_ignored_and_said(spool, tmp_path):
    (segment,) = (spool / "node-a").iterdir()
    segment.write_bytes(segment.read_bytes()[:-20])
    result = import_files([spool], ledger=tmp_path / "l.db", format="spool")
    assert result.exit_code == 0
    assert result.total.rejected == {}
    assert any("ends in half a line" in note for note in result.total.notes)


def test_a_changed_line_in_the_middle_is_rejected_with_its_number(spool, tmp_path):
    (segment,) = (spool / "node-a").iterdir()
    rows = segment.read_bytes().splitlines(keepends=True)
    rows[2] = rows[2].replace(b'"rank":0', b'"rank":7') if b'"rank":0' in rows[2] else rows[2].replace(b"node-a", b"node-z")  # fmt: skip
    segment.write_bytes(b"".join(rows))
    result = import_files([spool], ledger=tmp_path / "l.db", format="spool")
    (rejection,) = result.total.rejected.values()
    assert [example.locator for example in rejection.examples] == ["slurm-7-a1-100-0.jsonl#3"]
    with pytest.raises(Exception, match="checksum"):
        import_files([spool], ledger=tmp_path / "m.db", format="spool", options=Options(is_strict=True))  # fmt: skip


def waited(host: str, launches: dict[str, int], t_us: int) -> Event:
    return new_event(
        "observation", clock=ManualClock(t_us), run="r", attempt=1, symptom="hang", role="context",
        body={"text": "the ranks of this host wait for another host", "launches": launches}, domain=[{"kind": "host", "id": host}],
    )  # fmt: skip


def written(tmp_path: Path, events: dict[str, list[Event]]) -> Path:
    for host, found in events.items():
        writer = SpoolEvents(tmp_path / "s" / host, name="r-a1-1")
        for event in found:
            writer.submit(event)
        writer.close()
    return tmp_path / "s"


@pytest.mark.parametrize("gap_us", [0, 250_000, -40_000])
def test_the_offset_of_a_clock_is_told_from_steps_that_both_saw_end(tmp_path, gap_us):
    ended = [1_000_000 + 50_000 * k for k in range(20)]
    steps = {"first": 1, "last": 20, "began_us": 900_000, "ended_us": ended}
    late = {**steps, "ended_us": [t + gap_us for t in ended]}
    clock = ManualClock(2_000_000)
    hosts = {
        "a": [new_event("step", clock=clock, run="r", attempt=1, body=steps)],
        "b": [new_event("observation", clock=clock, run="r", attempt=1, body={"steps": late})],
    }
    import_files([written(tmp_path, hosts)], ledger=tmp_path / "l.db", format="spool")
    (offset,) = [e.body["clock_offset"] for e in stored(tmp_path) if "clock_offset" in e.body]
    assert offset == {"host": "b", "against": "a", "offset_us": gap_us, "spread_us": 0, "steps": 20}


def test_a_frame_holds_the_exact_bytes_of_its_event():
    event = new_event("annotation", clock=ManualClock(5), body={"text": 'a "quoted" }\n{ line'})
    line = frame(event)
    assert line.count(b"\n") == 1
    assert encode_event(event) in line
