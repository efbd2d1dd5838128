"""Events of an import on their way into the ledger: batches that are durable one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lastgood.ledger.event import Event
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.raw_store import RawStore
from lastgood.ledger.store import Store

BATCH_EVENTS = 2_000
COMPARED_EVENTS = 20


class BatchWriter:
    """Batches of events, durable one after another, and the raw rows beside them."""

    def __init__(self, store: Store, raw_store: RawStore) -> None:
        self._store = store
        self.raw_store = raw_store
        self.on_flush: Callable[[], None] | None = None
        self.batch: list[Event] = []
        self.new_count = 0
        self.merged_count = 0

    def add(self, event: Event, quality: Quality) -> None:
        """Takes an event; a full batch is written."""
        self.batch.append(event)
        if len(self.batch) >= BATCH_EVENTS:
            self.flush(quality)

    def flush(self, quality: Quality) -> None:
        """Makes everything durable that was taken."""
        if not self.batch:
            return
        batch, self.batch = self.batch, []
        self.raw_store.flush()
        done = self._store.import_events(batch)
        self.new_count += done.new
        self.merged_count += done.merged
        quality.events_new += done.new
        quality.events_merged += done.merged
        moved = [event for event in batch if event.id in done.moved]
        quality.moved_events += len(moved)
        quality.moved_rows += len({event.source.locator for event in moved if event.source})
        if done.merged and not quality.is_compared:
            quality.is_compared = True
            self._compare(batch, quality)
        if self.on_flush is not None:
            self.on_flush()

    def _compare(self, batch: Sequence[Event], quality: Quality) -> None:
        """Says it when events that were there already were read through another table.

        A few of the first ones tell; the ledger keeps what it holds, and nobody should believe that it changed.
        """
        for event in batch[:COMPARED_EVENTS]:
            there = self._store.get(event.id)
            if there is not None and there.body.get("mapping") != event.body.get("mapping"):
                quality.note(
                    "events that were there already name the table with which they were imported: read them through "
                    "another one with --mapping when a report is made"
                )
