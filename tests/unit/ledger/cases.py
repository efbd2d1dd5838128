"""Small ledgers and events for the tests of the ledger."""

from __future__ import annotations

from pathlib import Path

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.store import open_store

START_US = 1_790_000_000_000_000
S = 1_000_000


def clock_at(seconds: float = 0) -> ManualClock:
    return ManualClock(START_US + round(seconds * S))


def some_event(
    number: int = 0, *, kind: str = "annotation", run: str | None = "r1", **fields
) -> Event:
    fields.setdefault("body", {"number": number})
    return new_event(kind, clock=clock_at(number), run=run, id=f"event-{number}", **fields)


def some_events(count: int, *, first: int = 0) -> list[Event]:
    """Events with different columns filled, so that every column is worth mutating."""
    return [
        some_event(
            number,
            run=None if number % 5 == 4 else f"r{number % 2}",
            incident=f"i{number}" if number % 3 == 0 else None,
        )
        for number in range(first, first + count)
    ]


def make_ledger(path: Path, count: int, *, commits: int = 1) -> Path:
    """A closed ledger in one plain file, written in so many commits, with the head sealed after each."""
    working = path.with_suffix(".working")
    per_commit = -(-count // commits)
    with open_store(working, clock=clock_at(count)) as store:
        for first in range(0, count, per_commit):
            store.append(some_events(min(per_commit, count - first), first=first))
            store.seal()
        store.copy_to(path)
    return path
