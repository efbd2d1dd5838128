"""From a table of events to a table of incidents: `incident.fold_incidents`, column by column.

Every row first gets the number of its incident (`columns_group`), then each column of the result is one pass: NumPy
keeps the *last* of several values that are written to one place, and the rows are in order of time, so writing
forwards keeps the newest word and writing backwards the first.

Assumes: the rows are in the order of `in_effect`, as `read_events` gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.ledger.columns_correlate import mark_correlated
from lastgood.ledger.columns_group import BYSTANDERS, Groups, group_rows
from lastgood.ledger.columns_merge import merge_table
from lastgood.ledger.grouping import LINKS, Rule
from lastgood.ledger.table import INCIDENT_DOMAINS, NO_TIME, Coded, EventTable, IncidentTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PHASES = ("detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us")
_NEWEST = ("class_", "cause", "cause_status", "symptom", "run")
"""Columns of which the last word counts."""
_OLDEST = ("label", "code", "mapping", "importer")


def fold_table(table: EventTable, rule: Rule = LINKS) -> IncidentTable:
    """The incidents of these events under this rule, by begin."""
    groups = group_rows(table, rule)
    incidents = _Fold(table, groups).incidents(rule)
    incidents = incidents.take(_by_begin(incidents, groups))
    return incidents if rule.merge_us is None else merge_table(incidents, rule)


class _Fold:
    """One table, its groups, and the ways to get one value for each group."""

    def __init__(self, table: EventTable, groups: Groups) -> None:
        import numpy as np

        self._table = table
        self._groups = groups
        self._count = len(groups.first)
        is_in = groups.of_row >= 0
        self._rows: Any = slice(None) if is_in.all() else np.flatnonzero(is_in)
        self._group = groups.of_row[self._rows]
        self._is_single = self._count == len(self._group)
        """Every event is an incident of its own, so a column of events is a column of incidents."""

    def incidents(self, rule: Rule) -> IncidentTable:
        """One row for each group, in the order of the groups."""
        import numpy as np

        table, first = self._table, self._groups.first
        words: dict[str, Any] = {name: self._word(name) for name in _NEWEST}
        words |= {name: self._word(name, is_first=True) for name in _OLDEST}
        words |= self._domains()
        words["class_"] = self._class(words["class_"])
        planned = words["class_"].codes == words["class_"].code_of(FailureClass.PLANNED)
        begin_us, detected_us = self._begin_and_detection()
        end_us = self._time_of(EventKind.INCIDENT_CLOSE)
        ended_us = self._time_of(EventKind.PLANNED_END)
        return IncidentTable(
            rule=str(rule),
            begin_us=begin_us[0],
            end_us=np.where(end_us == NO_TIME, ended_us, end_us),
            incident=self._groups.name,
            injected=self._value(table.injected, null=-1),
            planned=planned,
            correlated=mark_correlated(
                table,
                of_row=self._groups.of_row,
                first=first,
                begin_us=begin_us[0],
                is_planned=planned,
                window_us=rule.correlated_us,
            ),
            event_count=np.bincount(self._group, minlength=self._count),
            first_seq=table.seq[first],
            **words,
            **self._durations(begin_us[1], detected_us, planned=planned),
        )

    # --- one value for each group ---------------------------------------------------------------------

    def _pick(
        self,
        values: NDArray[Any],
        is_known: NDArray[np.bool_],
        null: int,
        *,
        is_first: bool = False,
    ) -> Any:
        """The newest (or first) known value of each group; `values` and `is_known` are those of the grouped rows."""
        import numpy as np

        if self._is_single:
            return np.where(is_known, values, np.asarray(null, values.dtype))
        picked = np.full(self._count, null, values.dtype)
        group, values = self._group[is_known], values[is_known]
        if is_first:
            group, values = group[::-1], values[::-1]
        picked[group] = values
        return picked

    def _value(self, column: NDArray[Any], *, null: int) -> NDArray[Any]:
        """The newest known value of a column of numbers."""
        import numpy as np

        if _says_nothing(column, null):
            return np.broadcast_to(np.asarray(null, column.dtype), self._count)
        values = column[self._rows]
        return self._pick(values, values != null, null)

    def _word(self, name: str, *, is_first: bool = False) -> Coded:
        import numpy as np

        column: Coded = getattr(self._table, name)
        if not column.names or _says_nothing(column.codes, -1):
            return Coded(np.broadcast_to(np.int32(-1), self._count), column.names)
        values = column.codes[self._rows]
        return Coded(self._pick(values, values >= 0, -1, is_first=is_first), column.names)

    def _domains(self) -> dict[str, Coded]:
        """The first domain of each kind that an event names which is no bystander."""
        import numpy as np

        is_failing = ~self._table.role.is_one_of(BYSTANDERS)[self._rows]
        found: dict[str, Coded] = {}
        for kind in INCIDENT_DOMAINS:
            column: Coded = getattr(self._table, kind)
            if not column.names or _says_nothing(column.codes, -1):
                found[kind] = Coded(np.broadcast_to(np.int32(-1), self._count), column.names)
                continue
            codes = column.codes[self._rows]
            picked = self._pick(codes, (codes >= 0) & is_failing, -1, is_first=True)
            found[kind] = Coded(picked, column.names)
        return found

    def _class(self, newest: Coded) -> Coded:
        """The newest class; a planned stop that says none is planned."""
        import numpy as np

        kind = self._table.kind
        is_planned = kind.codes[self._groups.first] == kind.code_of(EventKind.PLANNED_BEGIN)
        is_planned &= newest.codes < 0
        if not is_planned.any():
            return newest
        names = newest.names
        if FailureClass.PLANNED not in names:
            names = (*names, str(FailureClass.PLANNED))
        code = np.int32(names.index(FailureClass.PLANNED))
        return Coded(np.where(is_planned, code, newest.codes), names)

    # --- times ----------------------------------------------------------------------------------------

    def _rows_of(self, kind: EventKind) -> NDArray[np.int64]:
        """The grouped rows of one kind, in order."""
        import numpy as np

        code = self._table.kind.code_of(kind)
        if code < 0:
            return np.empty(0, np.int64)
        return np.flatnonzero((self._table.kind.codes == code) & (self._groups.of_row >= 0))

    def _time_of(self, kind: EventKind, *, is_accepted: bool = False) -> NDArray[np.int64]:
        """The time of the newest event of this kind."""
        import numpy as np

        rows = self._rows_of(kind)
        if is_accepted:
            rows = rows[self._table.is_accepted[rows]]
        if not len(rows):
            return np.broadcast_to(np.int64(NO_TIME), self._count)
        times = np.full(self._count, NO_TIME, np.int64)
        times[self._groups.of_row[rows]] = self._table.t_us[rows]
        return times

    def _first_row(self, kind: EventKind) -> NDArray[np.int64]:
        """The first row of this kind in each group; -1 where there is none."""
        import numpy as np

        first = np.full(self._count, -1, np.int64)
        rows = self._rows_of(kind)[::-1]
        first[self._groups.of_row[rows]] = rows
        return first

    def _begin_and_detection(
        self,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]:
        """(begin, onset) and the time of detection; begin is the onset, else when the incident was opened."""
        import numpy as np

        table, first = self._table, self._groups.first
        detect, opened = self._first_row(EventKind.DETECT), self._first_row(EventKind.INCIDENT_OPEN)
        far = np.int64(2**63 - 1)
        onset_us = np.where(table.has_occurred_us[first], table.t_us[first], far)
        has_detect = detect >= 0
        also_us = np.where(has_detect & table.has_occurred_us[detect], table.t_us[detect], far)
        onset_us = np.minimum(onset_us, also_us)
        opened_us = table.t_us[np.where(opened >= 0, opened, first)]
        begin_us = np.where(onset_us == far, opened_us, onset_us)
        seen = np.where(has_detect, detect, opened)
        seen_us = np.where(
            table.observed_us[seen] == NO_TIME, table.t_us[seen], table.observed_us[seen]
        )
        detected_us = np.where(seen >= 0, seen_us, NO_TIME)
        return (begin_us, np.where(onset_us == far, NO_TIME, onset_us)), detected_us

    def _durations(
        self,
        onset_us: NDArray[np.int64],
        detected_us: NDArray[np.int64],
        *,
        planned: NDArray[np.bool_],
    ) -> dict[str, Any]:
        """What the events state; else the difference of two times that are known and in order."""
        import numpy as np

        ends = (
            detected_us,
            self._time_of(EventKind.DIAGNOSE),
            self._time_of(EventKind.ISOLATE),
            self._time_of(EventKind.RESTORE),
            self._time_of(EventKind.VERIFY, is_accepted=True),
        )
        unfinished = self._unfinished(ends)
        begin_us = onset_us
        found: dict[str, Any] = {}
        for name, end_us, is_unfinished in zip(_PHASES, ends, unfinished, strict=True):
            stated = self._value(getattr(self._table, name), null=NO_TIME)
            is_between = (begin_us != NO_TIME) & (end_us != NO_TIME) & (end_us >= begin_us)
            lasted = np.where(
                is_between,
                np.where(is_between, end_us, 0) - np.where(is_between, begin_us, 0),
                NO_TIME,
            )
            lasted = np.where(stated != NO_TIME, stated, lasted)
            found[name] = np.where(planned | is_unfinished, NO_TIME, lasted)
            begin_us = end_us
        return found

    def _unfinished(self, ends: tuple[NDArray[np.int64], ...]) -> list[Any]:
        """For each phase, the incidents that were escalated before they came to its end."""
        outcome = self._word("outcome")
        escalated = outcome.codes == outcome.code_of("escalated")
        escalated = escalated | ((outcome.codes < 0) & (self._first_row(EventKind.ESCALATE) >= 0))
        if not escalated.any():
            return [False] * len(ends)
        before_us, is_late, found = ends[0], escalated & False, [escalated & False]
        for end_us in ends[1:]:
            is_late = (
                is_late | (end_us == NO_TIME) | ((before_us != NO_TIME) & (end_us < before_us))
            )
            found.append(escalated & is_late)
            before_us = end_us
        return found


def _says_nothing(column: NDArray[Any], null: int) -> bool:
    """True when a thin column (see `table`) holds only the null."""
    return bool(column.strides == (0,) and len(column) and column[0] == null)


def _by_begin(incidents: IncidentTable, groups: Groups) -> NDArray[np.int64]:
    """The order by begin, and by name among those that begin together (made-up names sort as `gap:` and `planned:`)."""
    import numpy as np

    order = np.argsort(incidents.begin_us, kind="stable")
    begin_us = incidents.begin_us[order]
    is_tied = begin_us[1:] == begin_us[:-1]
    if not is_tied.any() or not len(groups.name.names):
        return order
    at = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
    tied = order[at]
    words = sorted({*groups.name.names, "gap:", "planned:"})
    place = {word: number for number, word in enumerate(words)}
    named = np.array([place[name] for name in groups.name.names], np.int64)[groups.name.codes[tied]]
    made = np.where(groups.is_planned[tied], place["planned:"], place["gap:"])
    name = np.where(groups.name.codes[tied] >= 0, named, made)
    order[at] = tied[np.lexsort((tied, name, begin_us[at]))]
    return order
