"""The fault trace of a pre-training fleet that StepFun published (InfiniteHBD-Trace, 2025).

One JSON array of records: a node, days since 2024-03-30 on a grid of 8.64 s, `fault_start` or `fault_end`, and three
words for what was wrong. A start and the next end of the same node and the same words are one fault, first opened
first closed, because two equal faults of one node may overlap. The trace names no zone: its times are inferred.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Item, Source, json_items

DAY_ZERO_US = int(datetime(2024, 3, 30, tzinfo=UTC).timestamp()) * 1_000_000
GRID_US = 8_640_000
"""A ten-thousandth of a day: the resolution of the trace."""
_DAYS_MAX = 36_525
_OPEN_FAULTS_MAX = 100_000
_NAMES_MAX = 65_536
"""Equal faults further apart than this in the file are not told apart."""


class StepfunImporter:
    """Pairs of start and end become one incident each."""

    name = "stepfun"
    version = "1"
    title = "StepFun fault trace (InfiniteHBD-Trace)"

    def recognises(self, head: Head) -> int:
        """The three keys that no other format has together."""
        keys = (b'"node_id"', b'"event_time"', b'"fault_type"')
        return 97 if all(key in head.data for key in keys) else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Two events a fault: it opens when the node leaves service and closes when it is back."""
        context.declare_window(DAY_ZERO_US)
        context.note(
            "the trace names no zone: day 0 is taken for 2024-03-30 00:00 UTC, so times of day may be hours off"
        )
        faults = _Faults(context)
        context.note(
            "nodes without a fault are not in a trace; the published one is of 400 nodes: report it with --nodes 400"
        )
        yield from context.rows(json_items(source), faults.parse)
        if faults.open_count:
            context.note(f"{faults.open_count} faults have a start and no end: they stay open")


IMPORTER = StepfunImporter()


class _Faults:
    """The faults that are open while the trace is read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._mapping = context.mapping("stepfun")
        self._open: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        self._counts: OrderedDict[tuple[str, str, int], int] = OrderedDict()
        self.open_count = 0

    def parse(self, row: Item) -> Iterator[Event]:
        """One record as one event."""
        record = row.value
        if not isinstance(record, dict):
            raise RowProblem("not a record of the trace")
        node, label = record.get("node_id"), _label(record.get("fault_type"))
        if not isinstance(node, str) or not node:
            raise RowProblem("no node_id")
        t_us = _time_us(record.get("event_time"))
        kind = record.get("event_type")
        self._context.coverage(t_us)
        if kind == "fault_start":
            yield self._opened(row, node, label, t_us)
        elif kind == "fault_end":
            yield self._closed(row, node, label, t_us)
        else:
            raise RowProblem("event_type is neither fault_start nor fault_end")

    def _opened(self, row: Item, node: str, label: str, t_us: int) -> Event:
        if self.open_count >= _OPEN_FAULTS_MAX:
            raise RowProblem("more faults are open at once than can be held")
        # Equal faults of one node that begin at once are told apart by their number.
        name = (node, label, t_us)
        number = self._counts.pop(name, 0)
        incident = self._context.incident_id(*name, number)
        event = self._context.event(
            EventKind.INCIDENT_OPEN,
            row=row,
            identity=(incident,),
            t_us=t_us,
            inferred=True,
            incident=incident,
            host=node,
            body={"label": label, "mapping": self._mapping.id, "code": label},
            **mapping_fields(self._mapping, label),
        )
        self._counts[name] = number + 1
        if len(self._counts) > _NAMES_MAX:
            self._counts.popitem(last=False)
        self._open[node, label].append(incident)
        self.open_count += 1
        return event

    def _closed(self, row: Item, node: str, label: str, t_us: int) -> Event:
        waiting = self._open.get((node, label))
        if not waiting:
            raise RowProblem("a fault ends that did not start")
        incident = waiting[0]
        event = self._context.event(
            EventKind.INCIDENT_CLOSE,
            row=row,
            identity=(incident,),
            t_us=t_us,
            inferred=True,
            incident=incident,
            host=node,
        )
        waiting.popleft()
        if not waiting:
            del self._open[node, label]
        self.open_count -= 1
        return event


def _label(fault: Any) -> str:
    """`Level/Class/Desc`, as the trace wrote them."""
    given = (
        [fault.get(key) for key in ("Level", "Class", "Desc")] if isinstance(fault, dict) else []
    )
    words = [word for word in given if isinstance(word, str)]
    if len(words) != 3:
        raise RowProblem("no fault_type with Level, Class and Desc")
    return "/".join(words)


def _time_us(days: Any) -> int:
    """Days with four decimals, exactly: the grid is a whole number of microseconds."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= _DAYS_MAX:
        raise RowProblem("event_time is no number of days")
    return DAY_ZERO_US + round(days * 10_000) * GRID_US
