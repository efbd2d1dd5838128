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
        self._rows = np.flatnonzero(groups.of_row >= 0).astype(np.int32)
        self._group = groups.of_row[self._rows]
        self._last = np.empty(self._count, np.int32)
        self._last[self._group] = self._rows
        self._is_failing = ~table.role.is_one_of(BYSTANDERS)

    def incidents(self, rule: Rule) -> IncidentTable:
        """One row for each group, in the order of the groups."""
        import numpy as np

        table, first = self._table, self._groups.first
        words: dict[str, Any] = {name: self._word(name) for name in _NEWEST}
        words |= {name: self._word(name, is_first=True) for name in _OLDEST}
        words |= {
            kind: self._word(kind, is_first=True, is_failing=True) for kind in INCIDENT_DOMAINS
        }
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
            injected=self._pick(table.injected, -1),
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
        self, column: NDArray[Any], null: int, *, is_first: bool = False, is_failing: bool = False
    ) -> NDArray[Any]:
        """The newest (or first) known value of each group, optionally of failing events only.

        Mostly the last (or first) event says it, so all events are only searched for the groups where it does not.
        """
        import numpy as np

        if _says_nothing(column, null):
            return np.broadcast_to(np.asarray(null, column.dtype), self._count)
        lead = self._groups.first if is_first else self._last
        picked = column[lead]
        is_missing = picked == null
        if is_failing:
            is_missing |= ~self._is_failing[lead]
        if not is_missing.any():
            return picked
        picked[is_missing] = null
        rows = self._rows[is_missing[self._group]]
        rows = rows[column[rows] != null]
        if is_failing:
            rows = rows[self._is_failing[rows]]
        if is_first:
            rows = rows[::-1]
        picked[self._groups.of_row[rows]] = column[rows]
        return picked

    def _word(self, name: str, *, is_first: bool = False, is_failing: bool = False) -> Coded:
        column: Coded = getattr(self._table, name)
        picked = self._pick(column.codes, -1, is_first=is_first, is_failing=is_failing)
        return Coded(picked, column.names)

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
        lead = np.where(opened >= 0, opened, first)
        onset_us = np.where(table.has_occurred_us[lead], table.t_us[lead], far)
        has_detect = detect >= 0
        also_us = np.where(has_detect & table.has_occurred_us[detect], table.t_us[detect], far)
        onset_us = np.minimum(onset_us, also_us)
        opened_us = table.t_us[lead]
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
            stated = self._pick(getattr(self._table, name), NO_TIME)
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
