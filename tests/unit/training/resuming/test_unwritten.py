"""Events that found no room until their run ended: saved beside, and put in by the next run of that ledger."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store
from lastgood.ledger.writer import LedgerWriter
from lastgood.training.resuming import unwritten
from lastgood.training.resuming.unwritten import find_unwritten, put_unwritten, save_unwritten


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(unwritten, "shared_base", lambda: folder)
    return folder


def events(count):
    clock = ManualClock(1_000_000)
    return [new_event("annotation", clock=clock, run="r", body={"number": n}) for n in range(count)]


def test_they_are_written_with_their_own_ids_and_times_and_the_file_goes(tmp_path):
    ledger, made = tmp_path / "ledger.db", events(3)
    path = save_unwritten(made, ledger=ledger, run_id="r")
    assert path.stat().st_mode & 0o777 == 0o600
    with LedgerWriter(ledger) as writer:
        assert put_unwritten(ledger, writer) == 3
        assert put_unwritten(ledger, writer) == 0
    assert not path.exists()
    with open_store(ledger, create=False) as store:
        assert [(e.id, e.t_occurred_us) for e in store.events()] == [
            (e.id, e.t_occurred_us) for e in made
        ]


def test_those_of_another_ledger_stay_where_they_are(tmp_path):
    path = save_unwritten(events(1), ledger=tmp_path / "other.db", run_id="r")
    with LedgerWriter(tmp_path / "ledger.db") as writer:
        assert put_unwritten(tmp_path / "ledger.db", writer) == 0
    assert find_unwritten() == [path]


def test_a_file_that_was_cut_gives_what_stands_before_the_cut(tmp_path):
    ledger = tmp_path / "ledger.db"
    path = save_unwritten(events(3), ledger=ledger, run_id="r")
    path.write_bytes(path.read_bytes()[:-40])
    with LedgerWriter(ledger) as writer:
        assert put_unwritten(ledger, writer) == 2


def test_one_that_was_half_written_before_is_not_in_the_ledger_twice(tmp_path):
    ledger, made = tmp_path / "ledger.db", events(3)
    save_unwritten(made, ledger=ledger, run_id="r")
    with LedgerWriter(ledger) as writer:
        writer.append(made[:2])
        put_unwritten(ledger, writer)
        assert writer.flush().size == 3
