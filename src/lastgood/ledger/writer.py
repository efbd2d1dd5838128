"""One thread that owns the connection and commits what other threads submit, in groups.

A commit waits for the disk, so events that arrive meanwhile share the next one: up to 256 events, or what came
within the linger time, whichever is first. A future is done when its events are durable. A failure is never
silent: it is on the future, and the next `submit`, `flush` or `close` raises it once more for callers that do not
look at futures. When the storage itself fails the writer stays failed, because what follows a lost event must not
be recorded as if nothing were missing.

A writer that may hold events does better where the storage may come back (a full disk, a lost mount): it keeps what
cannot be written in memory, in order, tries again every second with a fresh connection, and says so in `outage`. No
event is dropped; what is still held at the end is in `unwritten`, for its caller to save elsewhere.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import NamedTuple, Self

import apsw

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
RETRY_US = 1_000_000
"""How often a writer that holds events tries to write them."""
_PASSING = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    OSError,
)
"""Failures of the storage that may end by themselves, or by a person's hand; damage is none of them."""


class Outage(NamedTuple):
    """The ledger cannot be written at present."""

    since_us: int
    """Monotonic microseconds."""
    reason: str
    held_count: int
    """Events that wait in memory."""


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
        may_hold: bool = False,
    ) -> None:
        """Opens (or makes) the ledger; what is wrong with it is raised here, not later.

        Args:
            may_hold: keep events in memory while the storage fails, instead of failing with it.

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
        self._may_hold = may_hold
        self._held: list[_Submission] = []
        self._next_try_us = 0
        self.outage: Outage | None = None
        """Set while events are held; read it from any thread."""
        self.unwritten: tuple[Event, ...] = ()
        """After `close`: the events that could not be written to the end."""
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
    def head(self) -> TreeHead:
        """The tree head over what is durable."""
        assert self._head is not None, "a writer that was opened knows its head"
        return self._head

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
        is_last = False
        while not is_last:
            group, is_last = self._next_group()
            self._held += group
            if self._held and (is_last or self._clock.monotonic_us() >= self._next_try_us):
                store = self._try(store)
            elif self.outage is not None:
                self._say_outage(self.outage.reason)
        if self._held:
            self._give_up()
        else:
            self._seal(store)
        store.close()

    def _try(self, store: Store) -> Store:
        """Commits what is held; returns the connection to go on with."""
        if self.outage is not None:
            try:
                store.close()
                store = open_store(
                    self.path, create=False, projections=self._projections, clock=self._clock
                )
            except LedgerError as error:
                self._say_outage(str(error), is_tried=True)
                return store
        self._commit(store, self._held)
        return store

    def _say_outage(self, reason: str, *, is_tried: bool = False) -> None:
        now_us = self._clock.monotonic_us()
        since_us = self.outage.since_us if self.outage is not None else now_us
        count = sum(len(submission.events) for submission in self._held)
        self.outage = Outage(since_us, reason, count)
        if is_tried:
            self._next_try_us = now_us + RETRY_US

    def _give_up(self) -> None:
        """The end has come and the storage has not: nobody may take these events for recorded."""
        reason = self.outage.reason if self.outage is not None else "unknown"
        self.unwritten = tuple(event for s in self._held for event in s.events)
        error = LedgerError(
            "the last events could not be recorded",
            where=self.path,
            found=f"{len(self.unwritten)} events in memory; {reason}",
            code="LG-L09",
        )
        self._failure, self._is_broken = self._failure or error, True
        for submission in self._held:
            submission.future.set_exception(error)
        self._done_count += len(self._held)
        self._held = []

    def _next_group(self) -> tuple[list[_Submission], bool]:
        """Waits for a submission, then for company; the bool says that no more will come."""
        try:
            first = self._queue.get(timeout=RETRY_US / 1e6 if self.outage is not None else None)
        except queue.Empty:
            return [], False  # time to try again
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
                if self._may_hold and isinstance(error.__cause__, _PASSING):
                    self._say_outage(str(error), is_tried=True)
                    return
                results = [error] * len(group)
                self._is_broken = True
        self.outage = None
        self._held = []
        self._done_count += len(group)
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
