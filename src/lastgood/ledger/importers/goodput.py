"""Logs of ml-goodput-measurement: starts and ends of jobs, preparations and data loading, and the start of each step.

The library writes one entry per call, by process 0 only, with epoch seconds; its cloud logger wraps each in an
envelope with the receiver's time, which is kept as the time of observation because the host's clock may be wrong. A
file may hold the bare entries or the envelopes, oldest or newest first (the cloud's own tool prints newest first).
What the entries of one job add up to is in `goodput_jobs.py`.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, Final

from lastgood.ledger.event import Event
from lastgood.ledger.importers.goodput_entry import CHECKPOINTS
from lastgood.ledger.importers.goodput_jobs import Jobs
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import decode_item
from lastgood.ledger.importers.source import Item, Source, json_items

REORDER_MAX: Final = 4_096
"""Entries are put in the order in which they were received over so many of them."""
PEEK_MAX: Final = 64
"""So many entries tell whether the newest one came first."""

_ENVELOPES = ("jsonPayload", "json_payload", "payload")
_LENGTHS = struct.Struct(">QQ")


class GoodputImporter:
    """One run per job name, with its starts, sections and steps."""

    name = "goodput"
    version = "1"
    title = "ml-goodput-measurement logs (JSON entries, bare or from Cloud Logging)"

    def recognises(self, head: Head) -> int:
        """The job's name and one of the library's keys."""
        keys = (
            b'"job_start_time"',
            b'"step_start_time"',
            b'"job_end_time"',
            b'"tpu_init_start_time"',
        )
        return 95 if b'"job_name"' in head.data and any(key in head.data for key in keys) else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Starts and ends of runs and attempts, sections, and steps in chunks."""
        jobs = Jobs(context)

        def parse(row: Item) -> list[Event]:
            payload, seen_us = _entry(row.value, context)
            if payload is None:
                context.ignore(row, "an entry of another kind")
                return []
            return jobs.take(row, payload, seen_us)

        yield from context.rows(_in_order(json_items(source), context), parse)
        yield from jobs.finish()


IMPORTER = GoodputImporter()


def _entry(value: Any, context: Context) -> tuple[dict[str, Any] | None, int | None]:
    """The library's entry inside its envelope (None for one of another kind), and when it was received."""
    if not isinstance(value, dict):
        raise RowProblem("an entry that is no object", type(value).__name__)
    payload = next((value[k] for k in _ENVELOPES if isinstance(value.get(k), dict)), value)
    if "job_name" not in payload and payload.get("event_type") not in CHECKPOINTS:
        return None, None
    received = value.get("receiveTimestamp")
    return payload, context.times.parse(received).t_us if isinstance(received, str) else None


# --- order --------------------------------------------------------------------------------------------


def _in_order(items: Iterator[Item], context: Context) -> Iterator[Item]:
    """The entries oldest first, and in the order in which they were received where that is known."""
    first = list(islice(items, PEEK_MAX))
    times = _stamps([item.value for item in first if isinstance(item.value, dict)])
    falls = sum(a > b for a, b in pairwise(times))
    items = chain(first, items)
    if len(times) > 1 and falls > (len(times) - 1) / 2:
        context.note("the newest entry came first: the file was read from its end")
        items = _backwards(items)
    return _by_receiver(items)


def _stamps(values: list[dict[str, Any]]) -> list[Any]:
    """Times of the entries that can be compared: the envelope's, else what the entry itself says."""
    stamps = [v.get("receiveTimestamp") or v.get("timestamp") for v in values]
    outer = [stamp for stamp in stamps if isinstance(stamp, str)]
    if outer:
        return outer
    inner = ((v for k, v in value.items() if str(k).endswith("_time")) for value in values)
    firsts = [next(found, None) for found in inner]
    return [t for t in firsts if isinstance(t, int | float)]


def _by_receiver(items: Iterable[Item]) -> Iterator[Item]:
    """Sorts by the receiver's time within a bound; an entry without one stays behind the one before it."""
    held: list[tuple[str, int, Item]] = []
    key = ""
    for number, item in enumerate(items):
        value = item.value
        received = value.get("receiveTimestamp") if isinstance(value, dict) else None
        key = received if isinstance(received, str) else key
        if not key:
            yield item
            continue
        heapq.heappush(held, (key, number, item))
        if len(held) > REORDER_MAX:
            yield heapq.heappop(held)[2]
    while held:
        yield heapq.heappop(held)[2]


def _backwards(items: Iterable[Item]) -> Iterator[Item]:
    """The entries from the last to the first, by way of a temporary file: they may be more than fit in memory."""
    with tempfile.TemporaryFile() as spool:
        for item in items:
            spool.write(item.raw)
            spool.write(_LENGTHS.pack(len(item.raw), item.number))
        at = spool.tell()
        while at > 0:
            spool.seek(at - _LENGTHS.size)
            length, number = _LENGTHS.unpack(spool.read(_LENGTHS.size))
            at -= _LENGTHS.size + length
            spool.seek(at)
            raw = spool.read(length)
            yield Item(number, raw, decode_item(raw))
