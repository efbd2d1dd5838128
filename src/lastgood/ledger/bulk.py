"""Many events at once: rows, links and tree of a whole batch before SQLite sees the first of them.

Gives the very rows that an append gives, one call of SQLite for all of them. What an import spends its time on is,
in this order: the canonical bytes, the index over ids (whose order is random), the hashes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import apsw
import msgspec

from lastgood.ledger.event import Event, encode_event
from lastgood.ledger.merkle import Frontier, TreeBuilder

_INSERT = "INSERT INTO event (seq, id, kind, run, incident, t_occurred_us, link, body) VALUES (?,?,?,?,?,?,?,?)"
_KNOWN = "SELECT id, t_occurred_us FROM event WHERE id IN (SELECT value FROM json_each(?))"
CACHE_KIB = 131_072
"""Memory for pages while importing: ids come in random order, so the whole index over them is the working set."""
WAL_PAGES = 16_384
"""How much may wait in the write-ahead log: an index page that changes a hundred times is then written back once."""


class Batch(NamedTuple):
    """What a batch does to the ledger."""

    new: int
    frontier: Frontier
    link: bytes


def use_memory(connection: apsw.Connection) -> None:
    """Lets this connection use the memory that a long import is worth."""
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}").fetchall()


class Fresh(NamedTuple):
    """What of a batch is new, and what the ledger holds already with another time."""

    events: list[Event]
    moved: frozenset[str]
    """Ids of events that are there and occurred at another time."""


def fresh_events(connection: apsw.Connection, events: Sequence[Event]) -> Fresh:
    """Those whose id neither the ledger nor an earlier one of the batch has."""
    asked = json.dumps([event.id for event in events])
    known = dict(connection.execute(_KNOWN, (asked,)).fetchall())
    seen = set(known)
    fresh: list[Event] = []
    moved: set[str] = set()
    for event in events:
        if event.id not in seen:
            seen.add(event.id)
            fresh.append(event)
        elif known.get(event.id, event.t_occurred_us) != event.t_occurred_us:
            moved.add(event.id)
    return Fresh(fresh, frozenset(moved))


def insert_batch(
    connection: apsw.Connection,
    events: Sequence[Event],
    *,
    frontier: Frontier,
    link: bytes,
    now_us: int,
) -> Batch:
    """Inserts events with new ids behind the frontier, inside the transaction that the caller holds.

    Raises:
        CanonicalError: An event that cannot be written; nothing of the batch was inserted yet.
    """
    tree = TreeBuilder(frontier)
    leaves: list[bytes] = []
    rows = []
    for seq, event in enumerate(events, frontier.size):
        event = msgspec.structs.replace(event, seq=seq, t_recorded_us=now_us)
        body = encode_event(event)
        leaf = sha256(b"\x00" + body).digest()
        link = sha256(link + leaf).digest()
        leaves.append(leaf)
        incident = None if event.links is None else event.links.incident
        rows.append(
            (seq, event.id, event.kind, event.run, incident, event.t_occurred_us, link, body)
        )
    tree.extend(leaves)
    connection.executemany(_INSERT, rows)
    return Batch(len(rows), tree.frontier(), link)
