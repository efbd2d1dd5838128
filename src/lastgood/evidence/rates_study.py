"""From the records of a fleet to its studies: one for all incidents, one for each group of each table.

A study needs columns in hours and nodes as numbers; this is where words become numbers and times become hours. Hours
are observed hours throughout: a hole in the records is no quiet spell, and it takes part in no mean, week or chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lastgood.base.units import US_PER_H
from lastgood.budget.family import Family, judge_together
from lastgood.budget.intervals import IntervalMethod
from lastgood.budget.operational import ExposureCurve
from lastgood.budget.rates import RateStudy, study
from lastgood.budget.sample import Sample
from lastgood.evidence.rates_groups import (
    SHARED_KINDS,
    Group,
    Grouping,
    group_incidents,
    group_names,
)
from lastgood.evidence.rates_records import FleetRecords
from lastgood.ledger.table import NO_TIME, IncidentTable

if TYPE_CHECKING:
    import numpy as np

DURATIONS: Final = {
    "detection": "detect_us",
    "diagnosis": "diagnose_us",
    "recovery": "recover_us",
}
BEGIN_TO_END: Final = "begin to end"
"""How long a fault was open: for records that hold a begin and an end and nothing between."""
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStudy:
    """One row of a table: a group and what its incidents say."""

    group: Group
    study: RateStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedStudies:
    """One table: its groups, and their trends judged together."""

    grouping: Grouping
    rows: tuple[GroupStudy, ...]
    family: Family


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStudies:
    """Everything that the sections of a fleet's report are drawn from."""

    records: FleetRecords
    all: RateStudy
    grouped: tuple[GroupedStudies, ...]
    node_names: tuple[str, ...]
    """Name of each node number."""
    domain_names: dict[str, tuple[str, ...]]
    """Kind of shared domain -> name of each code."""

    @property
    def primary(self) -> GroupedStudies | None:
        """The table that says most to a person: the labels of the source, else causes, else classes."""
        by_name = {g.grouping.by: g for g in self.grouped}
        return next((by_name[b] for b in ("label", "cause", "class") if b in by_name), None)

    def instant_us(self, hours: float) -> int:
        """The moment of an hour of the studies, which leave holes in the records out."""
        import numpy as np

        records, begin_h = self.records, self.all.sample.begin_h
        # The begin of an incident is told exactly, also where a hole makes two moments one hour.
        at = int(np.searchsorted(begin_h, hours))
        if at < len(begin_h) and begin_h[at] == hours:
            return int(records.incidents.begin_us[at])
        edges = records.observed.edges_h
        calendar = float(np.interp(hours, records.observed.until(edges), edges))
        return records.begin_us + round(calendar * US_PER_H)

    def by(self, name: str) -> GroupedStudies | None:
        """The table of this grouping, if it was made."""
        return next((g for g in self.grouped if g.grouping.by == name), None)


def study_fleet(
    records: FleetRecords, *, by: Sequence[str] | None = None, name: str = "all"
) -> FleetStudies:
    """All studies. `by` names the tables; all that say anything when left out. `name` is that of the whole."""
    columns = _Columns(records)
    whole = columns.study(name, None)
    names = group_names(records.incidents) if by is None else by
    grouped = tuple(columns.grouped(group_incidents(records.incidents, name)) for name in names)
    return FleetStudies(
        records=records,
        all=whole,
        grouped=grouped,
        node_names=columns.node_names,
        domain_names=columns.domain_names,
    )


class _Columns:
    """The columns of all incidents, computed once; a group takes its rows of them."""

    def __init__(self, records: FleetRecords) -> None:
        import numpy as np

        incidents = records.incidents
        self.records = records
        self.begin_h = records.observed_hours(incidents.begin_us)
        self.window_h, self.breaks_h = records.observed.total, records.breaks_h
        is_open = incidents.is_open | (incidents.end_us > records.end_us)
        end_us = np.where(is_open, records.end_us, incidents.end_us)
        ends = records.observed_hours(end_us)
        # One closed incident shows that ends are recorded; none at all may mean that nobody writes them.
        self.end_h = np.where(is_open, np.nan, ends) if (~is_open).any() else None
        is_waiting = is_open & incidents.is_interval  # a single signal has no end to wait for
        # How long it took is what the calendar says; one that is open was seen to be so until nobody looked any more.
        self.lasted_h = np.where(is_open, np.nan, (end_us - incidents.begin_us) / US_PER_H)
        seen_us = _end_of_stretch(records, incidents.begin_us)
        self.open_age_h = np.where(is_waiting, (seen_us - incidents.begin_us) / US_PER_H, np.nan)
        self.is_unknown = incidents.cause.is_one_of([UNKNOWN]) | (incidents.cause.codes < 0)
        self.is_unknown |= incidents.cause_status.is_one_of([UNKNOWN])
        self.node_names, self.node = _nodes(records)
        change = records.source_change
        self.source_change = change.sentence if change else ""
        typed = records.question.nodes or 0
        self.node_count = None if records.node_count is None else max(typed, len(self.node_names))
        self.enter_h, self.leave_h = _at_risk_times(records, self.node_names)
        self.domain_names, self.domains = _shared_domains(
            incidents, self.node, len(self.node_names)
        )

    def grouped(self, grouping: Grouping) -> GroupedStudies:
        rows = tuple(
            GroupStudy(group=group, study=self.study(group.name, group.rows))
            for group in grouping.groups
        )
        return GroupedStudies(
            grouping=grouping, rows=rows, family=judge_together([row.study for row in rows])
        )

    def study(self, name: str, rows: np.ndarray | None) -> RateStudy:
        """The study of some rows; of a group only what its table shows, of all incidents everything."""
        question = self.records.question
        exposure = self.records.exposure
        return study(
            self._whole(name) if rows is None else self._part(name, rows),
            exposure=exposure,
            method=IntervalMethod(question.interval_method),
            seed=question.seed,
        )

    def _part(self, name: str, rows: np.ndarray) -> Sample:
        records = self.records
        return Sample(
            name=name,
            begin_h=self.begin_h[rows],
            window_h=self.window_h,
            breaks_h=self.breaks_h,
            source_change=self.source_change,
            node=self.node[rows] if self.node_count is not None else None,
            nodes_at_risk=self.node_count,
            node_enter_h=self.enter_h,
            node_leave_h=self.leave_h,
            unknown_causes=int(self.is_unknown[rows].sum()),
            rule=records.rule,
            source="ledger",
            as_of_us=records.end_us,
        )

    def _whole(self, name: str) -> Sample:
        import numpy as np

        records, incidents = self.records, self.records.incidents
        closed, still = self._durations()
        label = incidents.label if (incidents.label.codes >= 0).any() else incidents.cause
        return Sample(
            name=name,
            begin_h=self.begin_h,
            window_h=self.window_h,
            breaks_h=self.breaks_h,
            source_change=self.source_change,
            end_h=self.end_h,
            node=self.node if (self.node >= 0).any() else None,
            node_names=self.node_names,
            nodes_at_risk=self.node_count,
            node_enter_h=self.enter_h,
            node_leave_h=self.leave_h,
            labels=label.names,
            label_codes=label.codes,
            domains=self.domains,
            closed_h=closed,
            open_h=still,
            unknown_causes=int(np.count_nonzero(self.is_unknown)),
            rule=records.rule,
            source="ledger",
            as_of_us=records.end_us,
        )

    def _durations(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Finished durations, and the ages of those that an open incident still waits for.

        A closed incident without the value was not observed; it is neither short nor censored, and left out.
        """
        import numpy as np

        incidents = self.records.incidents
        closed: dict[str, np.ndarray] = {}
        still: dict[str, np.ndarray] = {}
        ages = self.open_age_h
        for name, column in DURATIONS.items():
            values = getattr(incidents, column)
            known = values != NO_TIME
            # Records that carry one time only give zero everywhere, which nobody measured.
            if known.any() and values[known].any():
                closed[name] = np.maximum(values[known], 0) / US_PER_H
                still[name] = ages[~known & np.isfinite(ages)]
        if self.end_h is not None:
            lasted = self.lasted_h
            closed[BEGIN_TO_END] = np.maximum(lasted[np.isfinite(lasted)], 0.0)
            still[BEGIN_TO_END] = ages[np.isfinite(ages)]
        return closed, still


def _end_of_stretch(records: FleetRecords, t_us: np.ndarray) -> np.ndarray:
    """When the observed stretch of each moment ends: what began in it was not watched any longer."""
    import numpy as np

    ends = np.array([end_us for _, end_us in records.windows], dtype=np.int64)
    return ends[np.minimum(np.searchsorted(ends, t_us), len(ends) - 1)]


def _nodes(records: FleetRecords) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the nodes that have one, and the node number of each incident (-1 where none is named).

    A typed number of nodes beyond these adds nodes without a name and without an incident: they are only counted.
    """
    import numpy as np

    host = records.incidents.host
    failed = sorted(host.counts())
    known = list(records.node_names)
    names = known + sorted(set(failed) - set(known))
    place = {name: i for i, name in enumerate(names)}
    number = np.array([place.get(name, -1) for name in host.names] + [-1], dtype=np.int64)
    return tuple(names), number[host.codes]


def _at_risk_times(
    records: FleetRecords, names: Sequence[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """When each node came to be at risk and left; None when all were, all the time, or nobody says."""
    import numpy as np

    if not records.node_times:
        return None, None
    all_the_time = (records.begin_us, records.end_us)
    times_us = np.array([records.node_times.get(name, all_the_time) for name in names])
    enter, leave = (records.observed_hours(times_us[:, i]) for i in (0, 1))
    if (enter <= 0).all() and (leave >= records.observed.total).all():
        return None, None
    return enter, np.maximum(leave, enter)


def _shared_domains(
    incidents: IncidentTable, node: np.ndarray, nodes: int
) -> tuple[dict[str, tuple[str, ...]], dict[str, np.ndarray]]:
    """The rack and the switch of each node, as its incidents name them last."""
    import numpy as np

    names: dict[str, tuple[str, ...]] = {}
    codes: dict[str, np.ndarray] = {}
    for kind in SHARED_KINDS:
        column = getattr(incidents, kind)
        known = (column.codes >= 0) & (node >= 0)
        if known.any():
            of_node = np.full(nodes, -1, dtype=np.int64)
            of_node[node[known]] = column.codes[known]
            names[kind], codes[kind] = column.names, of_node
    return names, codes


def exposure_words(exposure: ExposureCurve | None) -> str:
    """The denominator as a person says it, with where it comes from."""
    if exposure is None:
        return "exposure unknown; give --devices or node events"
    assumed = ", assumed" if exposure.is_assumed else ""
    lo, hi = float(exposure.devices.min()), float(exposure.devices.max())
    what = {"device-h": "devices", "node-h": "nodes", "run-h": "runs"}[exposure.unit]
    span = f"{hi:,.0f}" if lo == hi else f"{lo:,.0f} to {hi:,.0f}"
    return f"{exposure.total:,.0f} {exposure.unit} ({span} {what}, from {exposure.source}{assumed})"
