from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.base.errors import CanonicalError
from lastgood.ledger.event import Event
from lastgood.ledger.store import Imported, Projection, open_store
from lastgood.ledger.verify import verify_ledger
from tests.unit.ledger.cases import clock_at, some_event, some_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_batch_that_was_imported_before_changes_nothing(path):
    events = some_events(600)
    with open_store(path) as store:
        assert store.import_events(events) == Imported(new=600, merged=0)
        head = store.head()
        assert store.import_events(events) == Imported(new=0, merged=600)
        assert store.import_events([]) == Imported(new=0, merged=0)
        assert store.head() == head
        assert [event.id for event in store.events()] == [event.id for event in events]
    assert verify_ledger(path, head=head).ok


def test_of_two_events_with_one_id_the_first_stands_and_bodies_are_not_compared(path):
    first, again = some_event(0), some_event(0, body={"number": 99})
    other = some_event(1)
    with open_store(path) as store:
        assert store.import_events([first, other, again]) == Imported(new=2, merged=1)
        assert store.import_events([again]) == Imported(new=0, merged=1)
        assert [event.body["number"] for event in store.events()] == [0, 1]
    assert verify_ledger(path).ok


def test_a_batch_with_an_event_that_cannot_be_written_is_not_written_at_all(path):
    bad = Event(kind="annotation", id="bad", body={"x": 0.5})
    with open_store(path) as store:
        with pytest.raises(CanonicalError):
            store.import_events([some_event(0), bad])
        assert store.size == 0
    assert verify_ledger(path).ok


def test_an_import_writes_the_same_rows_as_an_append(path, tmp_path):
    events = some_events(300)
    with (
        open_store(path, clock=clock_at(1)) as store,
        open_store(tmp_path / "other.db", clock=clock_at(1)) as other,
    ):
        store.import_events(events[:100])
        store.import_events(events)
        other.append(events)
        rows = "SELECT * FROM event ORDER BY seq"
        assert (
            store.connection.execute(rows).fetchall() == other.connection.execute(rows).fetchall()
        )
        assert store.head().root == other.head().root


def test_projections_keep_in_step_with_an_import(path):
    counting = Projection(
        name="runs",
        version=1,
        tables={"runs": "CREATE TABLE runs (run TEXT) STRICT"},
        apply=lambda connection, event: connection.execute(
            "INSERT INTO runs VALUES (?)", (event.run or "none",)
        ),
    )
    with open_store(path, projections=[counting]) as store:
        assert store.import_events(some_events(5)) == Imported(new=5, merged=0)
        assert store.import_events(some_events(6)) == Imported(new=1, merged=5)
        (count,) = store.connection.execute("SELECT count(*) FROM runs").fetchone()
        assert count == 6
    assert verify_ledger(path).ok
