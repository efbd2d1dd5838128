"""Which rows of an event table belong to one incident: the first half of `columns_fold`.

A group is known by the number of its first row. Declared incidents come first, then planned stops, then the gap rule,
exactly as `incident.fold_incidents` takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.contract.taxonomy import EventKind, FailureClass, Role
from lastgood.ledger.grouping import SITE, Rule
from lastgood.ledger.table import DOMAIN_KINDS, Coded, EventTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BYSTANDERS = (Role.CASCADE, Role.TEARDOWN, Role.CONTEXT)
"""Roles that follow from a failure and are no failure of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The incidents of a table, numbered by their first row."""

    of_row: NDArray[np.int32]
    """The group of each row; -1 for rows that belong to none."""
    first: NDArray[np.int64]
    """The first row of each group."""
    name: Coded
    """The declared name; none where a gap or a planned stop made the incident."""
    is_planned: NDArray[np.bool_]
    """A planned stop that nobody declared as an incident."""


def group_rows(table: EventTable, rule: Rule) -> Groups:
    """The incident of every row under this rule."""
    import numpy as np

    assert len(table) < 2**31, "rows are numbered with 32 bits"
    key = np.full(len(table), -1, np.int32)  # the first row of the row's group
    names = declared_names(table)
    declared = np.flatnonzero(names.codes >= 0)
    if len(declared):
        first = np.empty(len(names.names), np.int32)
        codes = names.codes[declared]
        first[codes[::-1]] = declared[::-1]
        key[declared] = first[codes]
    planned = _group_planned(table, names, key)
    if rule.gap_us is not None:
        _group_by_gap(table, rule, np.flatnonzero((key < 0) & _is_failure(table)), key)
    is_first = key == np.arange(len(key), dtype=np.int32)
    first = np.flatnonzero(is_first)
    number = np.cumsum(is_first, dtype=np.int32) - 1
    is_planned = np.zeros(len(table), bool)
    is_planned[planned] = True
    return Groups(
        of_row=np.where(key >= 0, number[key], np.int32(-1)),
        first=first,
        name=names.take(first),
        is_planned=is_planned[first],
    )


# --- declared -----------------------------------------------------------------------------------------


def declared_names(table: EventTable) -> Coded:
    """The incident that each row declares; a name that was opened anew after another start of its run is another one."""
    import numpy as np

    opens = np.flatnonzero(
        (table.kind.codes == table.kind.code_of(EventKind.INCIDENT_OPEN))
        & (table.incident.codes >= 0)
    )
    starts = np.flatnonzero(table.kind.codes == table.kind.code_of(EventKind.RUN_START))
    if not len(opens) or not len(starts):
        return table.incident
    start_count = _starts_before(table, starts, opens)
    again = _opened_again(table.incident.codes[opens], start_count)
    if not len(again):
        return table.incident
    return _renamed(table, again, dict(zip(opens.tolist(), start_count.tolist(), strict=True)))


def _starts_before(
    table: EventTable, starts: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How often the run of each of these rows had been started by then."""
    import numpy as np

    place = (table.run.codes[starts].astype(np.int64) + 1) * (len(table) + 1) + starts
    place.sort()
    begin = (table.run.codes[rows].astype(np.int64) + 1) * (len(table) + 1)
    return np.searchsorted(place, begin + rows, "right") - np.searchsorted(place, begin, "left")


def _opened_again(names: NDArray[np.int32], start_count: NDArray[np.int64]) -> NDArray[np.int32]:
    """The names that were opened in more than one start."""
    import numpy as np

    order = np.argsort(names, kind="stable")
    names, start_count = names[order], start_count[order]
    is_other = (names[1:] == names[:-1]) & (start_count[1:] != start_count[:-1])
    return np.unique(names[1:][is_other])


def _renamed(table: EventTable, again: NDArray[np.int32], start_of: dict[int, int]) -> Coded:
    """As `incident.declared_incidents` names them, row by row for the few names that were opened again."""
    import numpy as np

    codes = table.incident.codes.copy()
    known = {name: code for code, name in enumerate(table.incident.names)}
    opened: dict[int, int] = {}
    current: dict[int, int] = {}
    rows = np.flatnonzero(np.isin(codes, again))
    for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True):
        start = start_of.get(row)
        if start is not None and opened.setdefault(code, start) != start:
            name = f"{table.incident.names[code]} (start {start})"
            current[code] = known.setdefault(name, len(known))
            opened[code] = start
        codes[row] = current.get(code, code)
    return Coded(codes, tuple(known))


# --- planned ------------------------------------------------------------------------------------------


def _group_planned(table: EventTable, names: Coded, key: NDArray[np.int32]) -> list[int]:
    """Undeclared planned stops: from each begin to the next end of its run. Returns the rows of the begins."""
    import numpy as np

    begin_code = table.kind.code_of(EventKind.PLANNED_BEGIN)
    rows = np.flatnonzero(
        table.kind.is_one_of([EventKind.PLANNED_BEGIN, EventKind.PLANNED_END]) & (names.codes < 0)
    )
    begins: list[int] = []
    waiting: dict[int, list[int]] = {}  # run -> begins without an end
    for row, kind, run in zip(
        rows.tolist(), table.kind.codes[rows].tolist(), table.run.codes[rows].tolist(), strict=True
    ):
        if kind == begin_code:
            key[row] = row
            begins.append(row)
            waiting.setdefault(run, []).append(row)
        elif waiting.get(run):
            key[row] = waiting[run].pop()
    return begins


# --- by gap -------------------------------------------------------------------------------------------


def _is_failure(table: EventTable) -> NDArray[np.bool_]:
    is_failure = table.class_.codes >= 0
    is_failure &= table.class_.codes != table.class_.code_of(FailureClass.PLANNED)
    return is_failure & ~table.role.is_one_of(BYSTANDERS)


def _group_by_gap(
    table: EventTable, rule: Rule, rows: NDArray[np.int64], key: NDArray[np.int32]
) -> None:
    """Failures of one place that follow each other within the gap; a failure that names no place is alone."""
    import numpy as np

    if rule.gap_kind == SITE:
        _chain(np.zeros(len(rows), np.int32), rows, table, rule, key)
        return
    places = getattr(table, rule.gap_kind).codes[rows]
    key[rows[places < 0]] = rows[places < 0]
    many = _many_places(table, rule.gap_kind, rows)
    if not many:
        _chain(places[places >= 0], rows[places >= 0], table, rule, key)
        return
    walked = np.zeros(len(getattr(table, rule.gap_kind).names) + 1, bool)
    walked[[place for more in many.values() for place in more]] = True
    walked[places[np.isin(rows, list(many))]] = True
    walked[-1] = False
    is_walked = walked[places]
    is_chained = (places >= 0) & ~is_walked
    _chain(places[is_chained], rows[is_chained], table, rule, key)
    _walk(places[is_walked], rows[is_walked], many, table, rule, key)


def _chain(
    places: NDArray[np.int32],
    rows: NDArray[np.int64],
    table: EventTable,
    rule: Rule,
    key: NDArray[np.int32],
) -> None:
    """Rows that touch one place each: sort by place, and cut where the gap is too long."""
    import numpy as np

    if not len(rows):
        return
    # NumPy sorts 16-bit numbers in one pass over the rows.
    sortable = places.astype(np.uint16) if places.max() < 2**16 else places
    order = np.argsort(sortable, kind="stable")
    near, places = rows[order].astype(np.int32), places[order]
    del order
    t_us = table.t_us[near]
    begin = np.arange(len(near), dtype=np.int32)
    begin[1:] *= (places[1:] != places[:-1]) | (t_us[1:] - t_us[:-1] > (rule.gap_us or 0))
    key[near] = near[np.maximum.accumulate(begin, out=begin)]


def _many_places(table: EventTable, kind: str, rows: NDArray[np.int64]) -> dict[int, list[int]]:
    """Row -> its further places of this kind, for rows that have any."""
    import numpy as np

    more = table.more_domains
    is_kind = more.kind == DOMAIN_KINDS.index(kind)
    if not is_kind.any():
        return {}
    kept = np.flatnonzero(is_kind & np.isin(more.row, rows))
    found: dict[int, list[int]] = {}
    for row, code in zip(more.row[kept].tolist(), more.code[kept].tolist(), strict=True):
        found.setdefault(row, []).append(code)
    return found


def _walk(
    places: NDArray[np.int32],
    rows: NDArray[np.int64],
    many: dict[int, list[int]],
    table: EventTable,
    rule: Rule,
    key: NDArray[np.int32],
) -> None:
    """Rows on places that some row shares with another place: one after the other, as `incident` does."""
    recent: dict[int, tuple[int, int]] = {}
    for row, place, now_us in zip(
        rows.tolist(), places.tolist(), table.t_us[rows].tolist(), strict=True
    ):
        touched = [place, *many.get(row, ())]
        near = [
            recent[p][0]
            for p in touched
            if p in recent and now_us - recent[p][1] <= (rule.gap_us or 0)
        ]
        key[row] = near[0] if near else row
        for p in touched:
            recent[p] = (int(key[row]), now_us)
