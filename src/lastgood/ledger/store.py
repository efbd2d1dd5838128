"""The embedded ledger: one SQLite file, appended to by any number of processes, durable when `append` returns.

An append opens the write lock first (`BEGIN IMMEDIATE`) and only then reads sequence number and tree frontier, so
several writing processes are normal. Each submission of a group commit has its own savepoint: one that cannot be
written leaves the others untouched. Body, frontier and the tables of every projection change in one transaction.

Beside each body stands a *link*, the hash of the previous link and this leaf. It proves nothing that the tree does
not prove; it lets `verify` name the first bad row instead of only saying that some row is bad.

apsw bundles a current SQLite; the system's own library may carry the WAL-reset defect.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import apsw
import msgspec

from lastgood.base.clock import Clock, SystemClock
from lastgood.base.errors import LedgerError, LedgerPathError
from lastgood.ledger.bulk import fresh_events, insert_batch, use_memory
from lastgood.ledger.creation import make_ledger
from lastgood.ledger.event import Event, decode_event, encode_event
from lastgood.ledger.merkle import Frontier, leaf_hash
from lastgood.ledger.schema import (
    HEAD_EVENT_COUNT,
    STORAGE_FAILURES,
    check_identity,
    one,
    open_read_only,
    sqlite_uri,
    storage_errors,
)
from lastgood.ledger.tree_head import TreeHead

BUSY_MS_MAX = 30_000
"""How long an append waits for another writing process before it gives up."""
HEAD_AGE_US_MAX = 60_000_000
"""A tree head is stored with each commit that fills a block of `HEAD_EVENT_COUNT`, or is this long after the last."""


_KIND = "(:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))"
_SELECT = f"SELECT body FROM event WHERE seq >= :since AND {_KIND} ORDER BY seq"  # noqa: S608
_SELECT_RUN = f"SELECT body FROM event WHERE run = :run AND seq >= :since AND {_KIND} ORDER BY seq"  # noqa: S608


class Stored(NamedTuple):
    """Where an event lies: its sequence number (0-based), its id, and whether this append put it there."""

    seq: int
    id: str
    is_new: bool = True


class Imported(NamedTuple):
    """What a batch of imported events did: how many were written, and how many were there before (by their ids)."""

    new: int
    merged: int
    moved: frozenset[str] = frozenset()
    """Ids of events that were there before with another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Tables that a workload derives from events, kept in step with them by the ledger itself.

    `apply` is called for every event, in order, inside the transaction that stores it. The tables hold nothing that
    the events do not, so they may be dropped and rebuilt; `verify` neither needs nor reads them.
    """

    name: str
    version: int
    tables: dict[str, str]
    """Table name -> its CREATE statement (and those of its indexes)."""
    apply: Callable[[apsw.Connection, Event], None]


class Store:
    """An open ledger. One thread owns it; other threads go through `writer.LedgerWriter`."""

    def __init__(
        self,
        path: Path,
        connection: apsw.Connection,
        *,
        clock: Clock,
        projections: Sequence[Projection],
    ) -> None:
        """Use `open_store` instead."""
        self.path = path
        self.connection = connection
        self._clock = clock
        self._projections = tuple(projections)
        self._is_bulk = False
        with storage_errors(path):
            self.origin: str = one(connection, "SELECT value FROM ledger_meta WHERE key = 'origin'")
        for projection in self._projections:
            self._prepare(projection)

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self.close()

    def close(self) -> None:
        """Closes the file; everything acknowledged is already durable."""
        self.connection.close()

    @property
    def size(self) -> int:
        """How many events the ledger holds."""
        return self._frontier()[0].size

    def head(self) -> TreeHead:
        """The tree head over everything appended so far, by any process."""
        frontier, _ = self._frontier()
        return TreeHead(origin=self.origin, size=frontier.size, root=frontier.root())

    def append(self, events: Sequence[Event]) -> list[Stored]:
        """Makes the events durable, all or none, and says where they lie.

        An id that the ledger already holds is not written again: the answer names the row that is there.

        Raises:
            LedgerError: The file cannot be written, or an id is already taken by a different event.
        """
        (result,) = self.append_groups([events])
        if isinstance(result, Exception):
            raise result
        return result

    def append_groups(self, groups: Sequence[Sequence[Event]]) -> list[list[Stored] | Exception]:
        """Makes several submissions durable with one commit; each is all or none, and its error is its own."""
        results: list[list[Stored] | Exception] = []
        with self._transaction():
            frontier, link = self._frontier()
            first = frontier
            for events in groups:
                try:
                    with self._savepoint():
                        stored, frontier, link = self._insert(events, frontier, link)
                    results.append(stored)
                except Exception as error:
                    # The storage itself failed: no submission of this group can be saved.
                    if isinstance(error, STORAGE_FAILURES) or not self.connection.in_transaction:
                        raise
                    results.append(error)
            if frontier.size != first.size:
                self._write_frontier(frontier, link, first)
        return results

    def import_events(self, events: Sequence[Event]) -> Imported:
        """Makes a batch durable, all or none, and leaves out every id that the ledger or the batch already has.

        Ids of imported events say what they were made from, so one that is there is the same record seen again (in
        an overlapping file, or by a newer importer) and its body is not compared: the first one stands.

        Raises:
            LedgerError: The file cannot be written.
            CanonicalError: An event cannot be written at all; then nothing of the batch is.
        """
        if not self._is_bulk:
            self._is_bulk = True
            with storage_errors(self.path):
                use_memory(self.connection)
        with self._transaction():
            fresh, moved = fresh_events(self.connection, events)
            frontier, link = self._frontier()
            if fresh and self._projections:
                _, after, link = self._insert(fresh, frontier, link)
                self._write_frontier(after, link, frontier)
            elif fresh:
                batch = insert_batch(
                    self.connection,
                    fresh,
                    frontier=frontier,
                    link=link,
                    now_us=self._clock.wall_us(),
                )
                self._write_frontier(batch.frontier, batch.link, frontier)
        return Imported(new=len(fresh), merged=len(events) - len(fresh), moved=moved)

    def events(
        self, *, since: int = 0, kinds: Sequence[str] | None = None, run: str | None = None
    ) -> Iterator[Event]:
        """The events from sequence number `since` on, in order, optionally of some kinds or one run only."""
        wanted = None if kinds is None else json.dumps([str(kind) for kind in kinds])
        sql, values = _SELECT, {"since": since, "kinds": wanted}
        if run is not None:
            sql, values = _SELECT_RUN, values | {"run": run}
        with storage_errors(self.path):
            for (body,) in self.connection.execute(sql, values):
                yield decode_event(body)

    def get(self, event_id: str) -> Event | None:
        """The event with this id, or None."""
        with storage_errors(self.path):
            body = one(self.connection, "SELECT body FROM event WHERE id = ?", event_id)
        return None if body is None else decode_event(body)

    def seal(self) -> TreeHead:
        """Stores the present tree head inside the ledger too, so that later checks have it as a landmark."""
        with self._transaction():
            frontier, _ = self._frontier()
            if frontier.size:
                self._store_head(frontier)
        return self.head()

    def stored_heads(self) -> list[TreeHead]:
        """The tree heads that the ledger keeps about itself, oldest first."""
        from lastgood.ledger.tree_head import parse_note

        with storage_errors(self.path):
            notes = self.connection.execute("SELECT note FROM tree_head ORDER BY size").fetchall()
        return [parse_note(note) for (note,) in notes]

    def rebuild(self, name: str) -> None:
        """Drops the tables of a projection and derives them again from the events."""
        (projection,) = (p for p in self._projections if p.name == name)
        with self._transaction():
            self._drop(projection)
            self._catch_up(projection)

    def copy_to(self, target: Path) -> None:
        """Writes a compact copy of the ledger as one plain file, readable from read-only media (for a bundle)."""
        with storage_errors(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            is_reader = one(self.connection, "PRAGMA query_only")
            self.connection.execute("PRAGMA query_only = 0")  # which forbids writing elsewhere too
            try:
                self.connection.execute("VACUUM INTO ?", (sqlite_uri(target),))
            finally:
                self.connection.execute(f"PRAGMA query_only = {is_reader}")

    # --- inside a transaction ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        with storage_errors(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                # A failed COMMIT (disk full) has already rolled back by itself.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _savepoint(self) -> Generator[None]:
        self.connection.execute("SAVEPOINT submission")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO submission")
                self.connection.execute("RELEASE submission")
            raise
        self.connection.execute("RELEASE submission")

    def _frontier(self) -> tuple[Frontier, bytes]:
        with storage_errors(self.path):
            row = self.connection.execute("SELECT size, hashes, link FROM frontier").fetchone()
        if row is None:
            raise LedgerError(
                "the ledger has lost its frontier",
                where=str(self.path),
                next=f"run: lastgood verify {self.path}",
            )
        try:
            return Frontier.from_bytes(row[0], row[1]), row[2]
        except ValueError as error:
            raise LedgerError(
                "the ledger's frontier is damaged",
                where=str(self.path),
                found=str(error),
                next=f"run: lastgood verify {self.path}",
            ) from error

    def _insert(
        self, events: Sequence[Event], frontier: Frontier, link: bytes
    ) -> tuple[list[Stored], Frontier, bytes]:
        stored: list[Stored] = []
        now_us = self._clock.wall_us()
        for event in events:
            known = self.connection.execute(
                "SELECT seq, body FROM event WHERE id = ?", (event.id,)
            ).fetchone()
            if known is not None:
                self._check_same(event, *known)
                stored.append(Stored(known[0], event.id, is_new=False))
                continue
            event = msgspec.structs.replace(event, seq=frontier.size, t_recorded_us=now_us)
            body = encode_event(event)
            leaf = leaf_hash(body)
            link = sha256(link + leaf).digest()
            self.connection.execute(
                "INSERT INTO event (seq, id, kind, run, incident, t_occurred_us, link, body) VALUES (?,?,?,?,?,?,?,?)",
                (
                    frontier.size,
                    event.id,
                    event.kind,
                    event.run,
                    event.incident,
                    event.t_occurred_us,
                    link,
                    body,
                ),
            )
            for projection in self._projections:
                self._keep_in_step(projection, event, frontier.size)
            stored.append(Stored(frontier.size, event.id))
            frontier = frontier.append(leaf)
        return stored, frontier, link

    def _check_same(self, event: Event, seq: int, body: bytes) -> None:
        there = msgspec.structs.replace(decode_event(body), seq=None, t_recorded_us=None)
        new = msgspec.structs.replace(event, seq=None, t_recorded_us=None)
        if encode_event(there) != encode_event(new):
            raise LedgerError(
                "an event id is already taken by a different event",
                where=f"{self.path} seq {seq}",
                found=event.id,
                needs="a new event that supersedes the old one (links.supersedes)",
                code="LG-L03",
            )

    def _write_frontier(self, frontier: Frontier, link: bytes, before: Frontier) -> None:
        root = frontier.root()
        self.connection.execute(
            "UPDATE frontier SET size = ?, hashes = ?, root = ?, link = ?",
            (frontier.size, frontier.to_bytes(), root, link),
        )
        for projection in self._projections:
            self.connection.execute(
                "UPDATE projection SET size = ? WHERE name = ?", (frontier.size, projection.name)
            )
        last_us = one(self.connection, "SELECT max(t_us) FROM tree_head") or 0
        is_round = before.size // HEAD_EVENT_COUNT != frontier.size // HEAD_EVENT_COUNT
        if is_round or self._clock.wall_us() - last_us >= HEAD_AGE_US_MAX:
            self._store_head(frontier)

    def _store_head(self, frontier: Frontier) -> None:
        head = TreeHead(origin=self.origin, size=frontier.size, root=frontier.root())
        self.connection.execute(
            "INSERT OR IGNORE INTO tree_head (size, root, t_us, note) VALUES (?,?,?,?)",
            (head.size, head.root, self._clock.wall_us(), head.to_note()),
        )

    # --- projections ------------------------------------------------------------------------------

    def _prepare(self, projection: Projection) -> None:
        with self._transaction():
            version = one(
                self.connection, "SELECT version FROM projection WHERE name = ?", projection.name
            )
            if version != projection.version:
                self._drop(projection)
            self._catch_up(projection)

    def _drop(self, projection: Projection) -> None:
        for table in projection.tables:
            self.connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        for statement in projection.tables.values():
            self.connection.execute(statement)
        self.connection.execute(
            "INSERT OR REPLACE INTO projection (name, version, size) VALUES (?,?,0)",
            (projection.name, projection.version),
        )

    def _catch_up(self, projection: Projection) -> None:
        size = one(self.connection, "SELECT size FROM projection WHERE name = ?", projection.name)
        rows = self.connection.execute(
            "SELECT body FROM event WHERE seq >= ? ORDER BY seq", (size,)
        ).fetchall()
        for (body,) in rows:
            projection.apply(self.connection, decode_event(body))
        self.connection.execute(
            "UPDATE projection SET size = ? WHERE name = ?", (size + len(rows), projection.name)
        )

    def _keep_in_step(self, projection: Projection, event: Event, seq: int) -> None:
        """Applies the event; first those that a process without this projection appended meanwhile."""
        size = one(self.connection, "SELECT size FROM projection WHERE name = ?", projection.name)
        if size != seq:
            self._catch_up(projection)  # includes this event, which is already in the table
            return
        projection.apply(self.connection, event)
        self.connection.execute(
            "UPDATE projection SET size = ? WHERE name = ?", (seq + 1, projection.name)
        )


def open_store(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    projections: Sequence[Projection] = (),
    clock: Clock | None = None,
) -> Store:
    """The ledger at this path, made (mode 0600) when it is not there and `create` is true; its folder must be there.

    Raises:
        LedgerError: Not a ledger, written by a newer lastgood, not readable or writable, or on a full disk.
    """
    target = Path(path)
    if not os.path.exists(
        target
    ):  # unlike Path.exists it does not raise for a name that is too long
        if not create:
            raise LedgerPathError(
                "no such ledger", where=str(target), next="set LASTGOOD_LEDGER, or name the file"
            )
        make_ledger(target)
    with storage_errors(target):
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(sqlite_uri(target), flags=flags)
        try:
            connection.set_busy_timeout(BUSY_MS_MAX)
            check_identity(connection, target, may_make=create)
            _switch_to_wal(connection, clock or SystemClock())
            connection.execute("PRAGMA synchronous = FULL")
            return Store(target, connection, clock=clock or SystemClock(), projections=projections)
        except BaseException:
            connection.close()
            raise


def _switch_to_wal(connection: apsw.Connection, clock: Clock) -> None:
    """Write-ahead logging, which stays with the file once it is on.

    SQLite does not wait for this one lock, so processes that make a ledger at the same time have to.
    """
    pause_us, left_us = 1_000, BUSY_MS_MAX * 1000
    while one(connection, "PRAGMA journal_mode") != "wal":
        try:
            one(connection, "PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if left_us <= 0:
                raise
            clock.sleep_us(pause_us)
            left_us -= pause_us
            pause_us = min(2 * pause_us, 50_000)


def read_store(path: str | os.PathLike[str]) -> Store:
    """The ledger at this path for reading only: for reports on files of other users, and on bundles.

    Raises:
        LedgerError: No such ledger, not one, a newer one, or not readable. An append to it is refused.
    """
    target = Path(path)
    if not os.path.isfile(target):
        raise LedgerPathError("no such ledger", where=str(target), next="name the file")
    connection = open_read_only(target)
    try:
        return Store(target, connection, clock=SystemClock(), projections=())
    except BaseException:
        connection.close()
        raise
