"""From the bytes of events to columns, one event after the other: the way from SQLite into an `EventTable`.

Only the parts of a body that columns need are decoded, and a word is kept once however many events carry it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.base.errors import LedgerError
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.incident import is_accepted_result
from lastgood.ledger.table import (
    CODED_COLUMNS,
    DOMAIN_KINDS,
    NO_TIME,
    TIME_COLUMNS,
    Coded,
    Coverage,
    EventTable,
    MoreDomains,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXPOSURE = frozenset((EventKind.EXPOSURE_JOIN, EventKind.EXPOSURE_LEAVE))
_NUMBERS = ("devices", "detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us")
_WORDS = ("kind", "class_", "cause", "cause_status", "symptom", "role", "run")
_TEXTS = frozenset((str, type(None)))
_DOMAIN_AT = {kind: at for at, kind in enumerate(DOMAIN_KINDS)}


class _Domain(msgspec.Struct, gc=False):
    kind: str
    id: str


class _Links(msgspec.Struct, gc=False):
    incident: str | None = None
    supersedes: str | None = None


class _Verification(msgspec.Struct, gc=False):
    result: str


class _Source(msgspec.Struct, gc=False):
    importer: str | None = None


class _Located(msgspec.Struct, gc=False):
    locator: str | None = None


class _Place(msgspec.Struct, gc=False):
    """Where an event comes from."""

    source: _Located | None = None
    domain: tuple[_Domain, ...] = ()


class _Body(msgspec.Struct, gc=False):
    """Of the free part only what some column shows; a value may have any form there."""

    label: Any = None
    code: Any = None
    mapping: Any = None
    lone: Any = None
    outcome: Any = None
    injected: Any = msgspec.UNSET
    coverage: Any = None
    worker: Any = None
    rank: Any = "all"


class Row(msgspec.Struct, gc=False):
    """The part of an event that columns show."""

    kind: str
    id: str
    seq: int
    t_occurred_us: int | None = None
    t_observed_us: int | None = None
    t_recorded_us: int | None = None
    class_: str | None = msgspec.field(name="class", default=None)
    symptom: str | None = None
    cause: str | None = None
    cause_status: str | None = None
    role: str | None = None
    domain: tuple[_Domain, ...] = ()
    run: str | None = None
    devices: int | None = -1
    detect_us: int | None = NO_TIME
    diagnose_us: int | None = NO_TIME
    isolate_us: int | None = NO_TIME
    recover_us: int | None = NO_TIME
    verify_us: int | None = NO_TIME
    verification: _Verification | None = None
    source: _Source | None = None
    links: _Links | None = None
    body: _Body = msgspec.field(default_factory=_Body)


class _Words(dict[str | None, int]):
    """The code of each word; a new word gets the next one."""

    __slots__ = ()

    def __missing__(self, word: str | None) -> int:
        self[word] = code = len(self) - 1  # the null is among them, and is -1
        return code


class TableBuilder:
    """Takes events in any order; `build` puts them in order and leaves out what is superseded."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Row).decode
        self._times = {name: array("q") for name in ("seq", "t_us", "devices", *TIME_COLUMNS)}
        self._flags = {
            name: array("b") for name in ("has_occurred_us", "injected", "is_accepted", "is_lone")
        }
        self._codes = {name: array("i") for name in CODED_COLUMNS}
        self._words = {name: _Words({None: -1}) for name in CODED_COLUMNS}
        self._more: list[tuple[int, int, int]] = []
        self.coverage: list[tuple[int, Coverage]] = []
        """(row, what its event says to cover)"""
        self.ids: list[str] = []
        self.superseded: dict[int, str] = {}
        """Row -> the id that this row's event corrects."""

    def __len__(self) -> int:
        """How many events were added."""
        return len(self.ids)

    def add(self, bodies: Iterable[bytes]) -> None:
        """Adds events by their stored bytes.

        Raises:
            LedgerError: Bytes that are no event.
        """
        decode = self._decode
        kept = list(bodies)
        try:
            rows = [decode(body) for body in kept]
            for row, body in zip(rows, kept, strict=True):
                # Few events speak of coverage, and only of these the place in a file is read.
                if isinstance(row.body.coverage, dict):
                    row.body.coverage.setdefault("name", _file_name(body))
        except msgspec.MsgspecError as error:
            raise LedgerError(
                "not an event", found=str(error), next="run: lastgood verify"
            ) from error
        self.add_rows(rows)

    def add_rows(self, rows: list[Row]) -> None:
        """Adds decoded events, column after column.

        Raises:
            LedgerError: A number that no column of 64 bits with a sign holds.
        """
        try:
            self._add_times(rows)
        except OverflowError as error:
            raise LedgerError(
                "a time, duration or count that no column holds", needs="63 bits and a sign"
            ) from error
        self._add_words(rows)
        flags = self._flags
        flags["has_occurred_us"].extend([r.t_occurred_us is not None for r in rows])
        flags["injected"].extend(
            [-1 if r.body.injected is msgspec.UNSET else bool(r.body.injected) for r in rows]
        )
        flags["is_lone"].extend([r.body.lone is True for r in rows])
        flags["is_accepted"].extend(
            [
                r.verification is not None
                and r.kind == EventKind.VERIFY
                and is_accepted_result(r.verification.result)
                for r in rows
            ]
        )
        first = len(self.ids)
        for at, row in enumerate(rows, first):
            if row.links is not None and row.links.supersedes is not None:
                self.superseded[at] = row.links.supersedes
            if row.body.coverage is not None:
                self._add_coverage(at, row.body.coverage)
        self.ids.extend([r.id for r in rows])

    def _add_times(self, rows: list[Row]) -> None:
        times = self._times
        times["seq"].extend([r.seq for r in rows])
        times["t_us"].extend([time_of_row(r) for r in rows])
        times["observed_us"].extend(
            [NO_TIME if r.t_observed_us is None else r.t_observed_us for r in rows]
        )
        for name in _NUMBERS:
            values = list(map(attrgetter(name), rows))
            if None in values:  # written as null instead of being left out
                null = -1 if name == "devices" else NO_TIME
                values = [null if value is None else value for value in values]
            times[name].extend(values)

    def _add_words(self, rows: list[Row]) -> None:
        words: dict[str, list[str | None]] = {
            name: list(map(attrgetter(name), rows)) for name in _WORDS
        }
        words["incident"] = [r.links.incident if r.links else None for r in rows]
        words["importer"] = [r.source.importer if r.source else None for r in rows]
        for name in ("label", "code", "mapping", "outcome"):
            said = list(map(attrgetter(f"body.{name}"), rows))
            if not _TEXTS.issuperset(map(type, said)):  # a body may hold anything
                said = [value if isinstance(value, str) else None for value in said]
            words[name] = said
        words["at_risk"] = [_at_risk(r) if r.kind in _EXPOSURE else None for r in rows]
        for name, column in words.items():
            self._codes[name].extend(map(self._words[name].__getitem__, column))
        self._add_domains(rows)

    def _add_domains(self, rows: list[Row]) -> None:
        """The first domain of each kind goes into its column, others of the kind beside it."""
        first = len(self.ids)
        columns = [[-1] * len(rows) for _ in DOMAIN_KINDS]
        words = [self._words[kind] for kind in DOMAIN_KINDS]
        for at, row in enumerate(rows):
            for domain in row.domain:
                kind = _DOMAIN_AT.get(domain.kind)
                if kind is None:  # of a newer taxonomy
                    continue
                code = words[kind][domain.id]
                if columns[kind][at] < 0:
                    columns[kind][at] = code
                else:
                    self._more.append((first + at, kind, code))
        for kind, column in zip(DOMAIN_KINDS, columns, strict=True):
            self._codes[kind].extend(column)

    def _add_coverage(self, at: int, said: Any) -> None:
        coverage = coverage_from(said)
        if coverage is not None:
            self.coverage.append((at, coverage))

    def build(self, *, superseded: frozenset[str] | None = None, **head: Any) -> EventTable:
        """The table, in order. `superseded` are ids that are corrected; without it, those of the events added."""
        import numpy as np

        gone = frozenset(self.superseded.values()) if superseded is None else superseded
        t_us = (
            np.frombuffer(self._times["t_us"], dtype=np.int64)
            if self.ids
            else np.empty(0, np.int64)
        )
        order = in_order(t_us, self.ids)
        if gone:
            order = order[[self.ids[at] not in gone for at in order.tolist()]]
        place = np.full(len(self.ids), -1, dtype=np.int64)
        place[order] = np.arange(len(order))
        columns: dict[str, Any] = {
            name: _thin(values, order, np.int64) for name, values in self._times.items()
        }
        columns |= {
            name: _thin(values, order, np.int8 if name == "injected" else np.bool_)
            for name, values in self._flags.items()
        }
        for name, codes in self._codes.items():
            columns[name] = Coded(
                _thin(codes, order, np.int32),
                tuple(word for word in self._words[name] if word is not None),
            )
        kept = [(place[at], kind, code) for at, kind, code in self._more if place[at] >= 0]
        kept.sort(key=lambda more: more[0])  # stable: within a row as its event names them
        more = np.array(kept, dtype=np.int64).reshape(-1, 3)
        coverage = [c for at, c in self.coverage if place[at] >= 0]
        return EventTable(
            **columns,
            more_domains=MoreDomains(
                row=more[:, 0], kind=more[:, 1].astype(np.int8), code=more[:, 2].astype(np.int32)
            ),
            coverage=tuple(sorted(coverage, key=lambda c: (c.begin_us, c.end_us, c.format or ""))),
            **head,
        )

    def in_order(self) -> list[int]:
        """The events added (by the number of their adding), in the order of time and then of id."""
        import numpy as np

        t_us = (
            np.frombuffer(self._times["t_us"], dtype=np.int64)
            if self.ids
            else np.empty(0, np.int64)
        )
        return in_order(t_us, self.ids).tolist()


def time_of_row(row: Row) -> int:
    """As `event.time_of`."""
    for stamp_us in (row.t_occurred_us, row.t_observed_us, row.t_recorded_us):
        if stamp_us is not None:
            return stamp_us
    return 0


def in_order(t_us: NDArray[np.int64], ids: list[str]) -> NDArray[np.int64]:
    """The rows by time, and by id within one microsecond: ids are compared only where times are equal."""
    import numpy as np

    order = np.argsort(t_us, kind="stable")
    times = t_us[order]
    is_tied = np.flatnonzero(times[1:] == times[:-1])
    if not len(is_tied):
        return order
    starts = is_tied[np.diff(is_tied, prepend=-2) > 1]
    ends = is_tied[np.diff(is_tied, append=len(times) + 1) > 1] + 2
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        order[start:end] = sorted(order[start:end].tolist(), key=ids.__getitem__)
    return order


def _file_name(body: bytes) -> str | None:
    """Where an event stood, without the line: the file, after its host where one is named."""
    place = msgspec.json.decode(body, type=_Place)
    locator = place.source.locator if place.source else None
    if not locator:
        return None
    hosts = [d.id for d in place.domain if d.kind == "host"]
    return ":".join([*hosts, locator.partition("#")[0]])


def coverage_from(said: Any) -> Coverage | None:
    """What an import said about the time it covers; None when it is not readable as such."""
    if not isinstance(said, dict):
        return None
    begin_us, end_us = said.get("begin_us"), said.get("end_us")
    if not isinstance(begin_us, int) or not isinstance(end_us, int) or end_us < begin_us:
        return None
    name, file = said.get("format"), said.get("name")
    return Coverage(
        begin_us=begin_us,
        end_us=end_us,
        format=name if isinstance(name, str) else None,
        is_declared=said.get("declared") is True,
        name=file if isinstance(file, str) else None,
    )


def _at_risk(row: Row) -> str:
    """As `exposure` names what joined: run, and worker, domains or rank."""
    who = row.body.worker
    if who is None and row.domain:
        who = ",".join(f"{d.kind}:{d.id}" for d in row.domain)
    if who is None:
        who = row.body.rank
    return f"{row.run or '-'}/{who}"


def _thin(values: array[int], order: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
    """The column in order; one that says the same in every row takes the memory of one row."""
    import numpy as np

    if not len(order):
        return np.empty(0, dtype)
    column = np.frombuffer(values, dtype=values.typecode)
    if (column == column[0]).all():
        return np.broadcast_to(np.asarray(column[0], dtype=dtype), len(order))
    return column[order].astype(dtype, copy=False)
