"""One thread that owns the connection and commits what other threads submit, in groups.

A commit waits for the disk, so events that arrive meanwhile share the next one: up to 256 events, or what came
within the linger time, whichever is first. A future is done when its events are durable. A failure is never
silent: it is on the future, and the next `submit`, `flush` or `close` raises it once more for callers that do not
look at futures. When the storage itself fails the writer stays failed, because what follows a lost event must not
be recorded as if nothing were missing.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from lastgood.base.clock import Clock, SystemClock
from lastgood.base.errors import LedgerError
from lastgood.ledger.event import Event, encode_event
from lastgood.ledger.store import Projection, Store, Stored, open_store
from lastgood.ledger.tree_head import TreeHead

GROUP_EVENT_COUNT_MAX = 256
LINGER_US = 5_000
"""How long a submission may wait for company. Short: a recovery waits for its records."""
LINGER_US_MAX = 50_000
QUEUE_COUNT_MAX = 65_536
"""Submissions that may wait. A full queue blocks the submitter: a slow disk must show."""
SUBMIT_S_MAX = 30.0
CLOSE_S_MAX = 30.0


class _Submission:
    """Events that stand or fall together, and who waits for them."""

    __slots__ = ("events", "future")

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = tuple(events)
        self.future: Future[list[Stored]] = Future()


class LedgerWriter:
    """Appends from any thread of this process. Close it, or use it in a `with` block."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        projections: Sequence[Projection] = (),
        clock: Clock | None = None,
        linger_us: int = LINGER_US,
    ) -> None:
        """Opens (or makes) the ledger; what is wrong with it is raised here, not later.

        Raises:
            LedgerError: As `open_store` does.
        """
        assert 0 <= linger_us <= LINGER_US_MAX, "a submission lingers at most 50 ms"
        self.path = os.fspath(path)
        self._clock = clock or SystemClock()
        self._projections = tuple(projections)
        self._linger_us = linger_us
        self._queue: queue.Queue[_Submission | None] = queue.Queue(QUEUE_COUNT_MAX)
        # Guards the order "closed, then the end marker": a submission behind it would never be done.
        # The writer's thread never takes it, so a submitter that waits for room cannot stop the drain.
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._is_broken = False
        self._is_closed = False
        self._submitted_count = self._done_count = 0
        self._head: TreeHead | None = None
        opened: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="ledger-writer", daemon=True
        )
        self._thread.start()
        opened.result()

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits what is queued and closes."""
        self.close()

    def submit(self, events: Event | Sequence[Event]) -> Future[list[Stored]]:
        """Queues one event, or several that stand or fall together; the future is done when they are durable.

        Raises:
            LedgerError: An earlier submission failed (these events are then not queued), or the writer is closed.
            CanonicalError: An event cannot be written at all; found here, where its maker still is.
        """
        submission = _Submission((events,) if isinstance(events, Event) else events)
        for event in submission.events:
            encode_event(event)
        with self._lock:
            self._raise_failure()
            if self._is_closed:
                raise LedgerError("the ledger's writer is closed", where=self.path)
            try:
                self._queue.put(submission, timeout=SUBMIT_S_MAX)
            except queue.Full as error:
                raise LedgerError(
                    "the ledger's disk is too slow",
                    where=self.path,
                    found=f"{QUEUE_COUNT_MAX} submissions waiting for {SUBMIT_S_MAX:g} s",
                    needs="a local disk",
                ) from error
            self._submitted_count += 1
        return submission.future

    @property
    def backlog_count(self) -> int:
        """Submissions that are not durable yet: in the queue, in company, or waiting for the disk."""
        return max(0, self._submitted_count - self._done_count)

    def append(
        self, events: Event | Sequence[Event], *, timeout_s: float = SUBMIT_S_MAX
    ) -> list[Stored]:
        """Submits and waits until the events are durable."""
        return self.submit(events).result(timeout_s)

    def flush(self, timeout_s: float = SUBMIT_S_MAX) -> TreeHead:
        """Waits until everything submitted so far is durable and returns the tree head over it.

        Raises:
            LedgerError: A submission failed.
            TimeoutError: The disk did not answer in time.
        """
        self.submit(()).result(timeout_s)
        with self._lock:
            self._raise_failure()
        assert self._head is not None, "a flushed writer knows its head"
        return self._head

    def close(self) -> None:
        """Commits what is queued, stores the tree head, closes the file. A second call does nothing.

        Raises:
            LedgerError: A submission failed that nobody was told of.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.put(None)
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            raise LedgerError("the ledger's writer does not end", where=self.path)
        with self._lock:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        failure = self._failure
        if not self._is_broken:
            self._failure = None
        raise LedgerError(
            "an earlier event could not be recorded",
            where=self.path,
            found=str(failure),
            next="mend the cause, then open the ledger again" if self._is_broken else None,
            code="LG-L09",
        ) from failure

    # --- the writer's own thread --------------------------------------------------------------------

    def _run(self, opened: Future[None]) -> None:
        try:
            store = open_store(self.path, projections=self._projections, clock=self._clock)
        except BaseException as error:  # noqa: BLE001 - the constructor raises it
            opened.set_exception(error)
            return
        self._head = store.head()
        opened.set_result(None)
        with store:
            is_last = False
            while not is_last:
                group, is_last = self._next_group()
                self._commit(store, group)
                self._done_count += len(group)
            self._seal(store)

    def _next_group(self) -> tuple[list[_Submission], bool]:
        """Waits for a submission, then for company; the bool says that no more will come."""
        first = self._queue.get()
        if first is None:
            return [], True
        group, count = [first], len(first.events)
        until_us = self._clock.monotonic_us() + self._linger_us
        while count < GROUP_EVENT_COUNT_MAX and group[-1].events:  # an empty one is a flush
            try:
                left_us = until_us - self._clock.monotonic_us()
                submission = (
                    self._queue.get(timeout=left_us / 1e6)
                    if left_us > 0
                    else self._queue.get_nowait()
                )
            except queue.Empty:
                break
            if submission is None:
                return group, True
            group.append(submission)
            count += len(submission.events)
        return group, False

    def _commit(self, store: Store, group: list[_Submission]) -> None:
        if not group:
            return
        if self._is_broken:
            error = self._failure or LedgerError("the ledger's writer has failed", where=self.path)
            results: list[list[Stored] | Exception] = [error] * len(group)
        else:
            try:
                results = store.append_groups([submission.events for submission in group])
                self._head = store.head()
            except Exception as error:  # noqa: BLE001 - goes to every future of the group
                results = [error] * len(group)
                self._is_broken = True
        for submission, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                self._failure = self._failure or result
                submission.future.set_exception(result)
            else:
                submission.future.set_result(result)

    def _seal(self, store: Store) -> None:
        if self._is_broken:
            return
        try:
            self._head = store.seal()
        except LedgerError as error:
            self._failure = self._failure or error
