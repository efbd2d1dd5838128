from __future__ import annotations

import resource
import threading
from pathlib import Path

import apsw
import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.errors import CanonicalError, LedgerError
from lastgood.ledger import writer as ledger_writer
from lastgood.ledger.event import Event
from lastgood.ledger.store import Store, Stored, open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.ledger.writer import LedgerWriter
from tests.unit.ledger.cases import some_event, some_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_future_is_done_when_its_events_can_be_read_by_others(path):
    with LedgerWriter(path) as writer, open_store(path) as reader:
        assert writer.submit(some_event(0)).result(10) == [Stored(0, "event-0")]
        assert [event.id for event in reader.events()] == ["event-0"]
        assert writer.append(some_events(2, first=1)) == [
            Stored(1, "event-1"),
            Stored(2, "event-2"),
        ]


def test_submissions_that_arrive_together_share_commits(path, monkeypatch):
    groups = []
    original = Store.append_groups
    monkeypatch.setattr(
        Store, "append_groups", lambda self, g: groups.append(sum(map(len, g))) or original(self, g)
    )
    with LedgerWriter(path, linger_us=50_000) as writer:
        futures = [writer.submit(event) for event in some_events(600)]
        assert futures[-1].result(10)[0].seq == 599
    assert sum(groups) == 600
    assert max(groups) <= 256
    assert len(groups) < 60


def test_the_backlog_is_what_was_submitted_and_is_not_durable_yet(path, monkeypatch):
    is_writing, may_write = threading.Event(), threading.Event()
    original = Store.append_groups

    def slow(store, groups):
        is_writing.set()
        assert may_write.wait(10)
        return original(store, groups)

    with LedgerWriter(path) as writer:
        assert writer.backlog_count == 0
        monkeypatch.setattr(Store, "append_groups", slow)
        for event in some_events(5):
            writer.submit(event)
        assert is_writing.wait(10)
        assert writer.backlog_count == 5
        may_write.set()
        writer.flush()
        wait_us = 0
        while writer.backlog_count and wait_us < 5_000_000:
            SystemClock().sleep_us(1_000)
            wait_us += 1_000
        assert writer.backlog_count == 0


def test_many_threads_may_submit_and_each_keeps_its_order(path):
    def work(name: int) -> None:
        for number in range(50):
            writer.submit(some_event(name * 1000 + number, run=f"t{name}"))

    with LedgerWriter(path) as writer:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.flush().size == 200
    with open_store(path) as store:
        for name in range(4):
            numbers = [event.body["number"] for event in store.events(run=f"t{name}")]
            assert numbers == [name * 1000 + number for number in range(50)]
    assert verify_ledger(path).ok


def test_closing_commits_what_is_queued_and_stores_the_head(path):
    writer = LedgerWriter(path)
    futures = [writer.submit(event) for event in some_events(20)]
    writer.close()
    writer.close()
    assert all(future.done() for future in futures)
    with open_store(path) as store:
        assert store.size == 20
        assert store.stored_heads()[-1] == store.head()
    with pytest.raises(LedgerError, match="closed"):
        writer.submit(some_event(99))


def test_an_event_that_cannot_be_written_stops_at_its_maker(path):
    with LedgerWriter(path) as writer:
        with pytest.raises(CanonicalError):
            writer.submit(Event(kind="annotation", id="x", body={"x": 0.5}))
        assert writer.append(some_event(0)) == [Stored(0, "event-0")]


def test_a_refused_submission_is_on_its_future_and_tells_the_next_caller_once(path):
    with LedgerWriter(path) as writer:
        writer.append(some_event(0))
        future = writer.submit(some_event(0, body={"other": 1}))
        assert isinstance(future.exception(10), LedgerError)
        with pytest.raises(LedgerError, match="earlier event could not be recorded"):
            writer.submit(some_event(1))
        assert writer.append(some_event(2)) == [Stored(1, "event-2")]


def test_a_refused_submission_that_nobody_looked_at_fails_the_close(path):
    writer = LedgerWriter(path)
    writer.append(some_event(0))
    writer.submit(some_event(0, body={"other": 1}))
    with pytest.raises(LedgerError, match="already taken"):
        writer.close()


def test_a_failed_disk_fails_every_later_submission(path, monkeypatch):
    writer = LedgerWriter(path)
    writer.append(some_event(0))

    def fail(_store: Store, _groups: object) -> None:
        raise LedgerError("the disk is full", code="LG-L06")

    monkeypatch.setattr(Store, "append_groups", fail)
    future = writer.submit(some_event(1))
    with pytest.raises(LedgerError, match="disk is full"):
        future.result(10)
    monkeypatch.undo()
    for number in (2, 3):
        with pytest.raises(LedgerError, match="open the ledger again"):
            writer.submit(some_event(number))
    with pytest.raises(LedgerError, match="disk is full"):
        writer.close()
    with open_store(path) as store:
        assert store.size == 1


def test_what_is_wrong_with_the_file_is_raised_by_the_constructor(path):
    path.write_text("not a database, and long enough to be seen as something else" * 50)
    with pytest.raises(LedgerError, match="not a ledger"):
        LedgerWriter(path)


def break_storage(monkeypatch, *, cause: Exception | None = None) -> None:
    """Every commit fails as on a full disk, until `monkeypatch.undo`."""

    def fail(_store: Store, _groups: object) -> None:
        raise LedgerError("the disk is full", code="LG-L06") from (cause or apsw.FullError("full"))

    monkeypatch.setattr(Store, "append_groups", fail)


def test_a_writer_that_may_hold_keeps_events_and_writes_them_in_order_when_there_is_room(
    path, monkeypatch
):
    monkeypatch.setattr(ledger_writer, "RETRY_US", 50_000)
    with LedgerWriter(path, may_hold=True) as writer:
        writer.append(some_event(0))
        break_storage(monkeypatch)
        futures = [writer.submit(event) for event in some_events(3, first=1)]
        wait_for(lambda: writer.outage is not None and writer.outage.held_count == 3)
        assert writer.outage is not None
        assert "disk is full" in writer.outage.reason
        assert not any(future.done() for future in futures)
        assert writer.backlog_count == 3
        monkeypatch.undo()
        assert [future.result(10)[0].seq for future in futures] == [1, 2, 3]
        wait_for(lambda: writer.outage is None)
    with open_store(path) as store:
        assert [event.id for event in store.events()] == [f"event-{n}" for n in range(4)]
    assert verify_ledger(path).ok


def test_events_that_wait_stay_in_the_order_of_their_submission(path, monkeypatch):
    monkeypatch.setattr(ledger_writer, "RETRY_US", 200_000)
    with LedgerWriter(path, may_hold=True) as writer:
        break_storage(monkeypatch)
        writer.submit(some_event(0))
        wait_for(lambda: writer.outage is not None)
        monkeypatch.undo()
        for event in some_events(50, first=1):
            writer.submit(event)
        assert writer.flush().size == 51
    with open_store(path) as store:
        assert [event.body["number"] for event in store.events()] == list(range(51))


def test_what_is_still_held_at_the_end_is_given_back_and_not_called_recorded(path, monkeypatch):
    writer = LedgerWriter(path, may_hold=True)
    writer.append(some_event(0))
    break_storage(monkeypatch)
    future = writer.submit(some_event(1))
    with pytest.raises(LedgerError, match=r"1 events in memory.*disk is full"):
        writer.close()
    assert [event.id for event in writer.unwritten] == ["event-1"]
    assert isinstance(future.exception(0), LedgerError)
    assert writer.head.size == 1


def test_damage_is_never_waited_for(path, monkeypatch):
    writer = LedgerWriter(path, may_hold=True)
    break_storage(monkeypatch, cause=apsw.CorruptError("malformed"))
    with pytest.raises(LedgerError, match="disk is full"):
        writer.submit(some_event(0)).result(10)
    assert writer.outage is None
    with pytest.raises(LedgerError):
        writer.close()


def test_a_disk_that_is_really_full_holds_back_events_until_there_is_room(path, monkeypatch):
    """The kernel refuses every byte behind a file's present end, as a full disk does: no mount is needed for it."""
    monkeypatch.setattr(ledger_writer, "RETRY_US", 50_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LedgerWriter(path, may_hold=True) as writer:
        for event in some_events(200):
            writer.submit(event)
        writer.flush()
        largest = max(file.stat().st_size for file in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
        try:
            for number in range(200, 1200):
                writer.submit(some_event(number))
            wait_for(lambda: writer.outage is not None)
            assert writer.outage is not None
            reason = writer.outage.reason
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert writer.flush().size == 1200
    assert "full" in reason or "I/O" in reason, reason
    with open_store(path) as store:
        assert [event.body["number"] for event in store.events()] == list(range(1200))
    assert verify_ledger(path).ok


def wait_for(condition, *, limit_us: int = 10_000_000) -> None:
    """Look until it is so."""
    clock = SystemClock()
    until_us = clock.monotonic_us() + limit_us
    while not condition():
        assert clock.monotonic_us() < until_us, "it did not happen"
        clock.sleep_us(2_000)
