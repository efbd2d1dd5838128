from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.errors import CanonicalError, LedgerError
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
