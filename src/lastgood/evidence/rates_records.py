"""What a fleet's statistics rest on: the incidents of a ledger in their window, over their exposure.

One place decides what is counted, so that every table of a report counts the same: failures and no planned stops, never
a fault that was injected, inside the time that the records speak about, grouped by one rule. Exposure is what join and
leave records give, else what a person typed (then it is assumed), else unknown (then no rate is computed at all).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from lastgood.base.errors import BadInput
from lastgood.base.units import US_PER_DAY, US_PER_H
from lastgood.budget.operational import ExposureCurve
from lastgood.evidence.rates_sources import SourceChange, source_change
from lastgood.ledger.grouping import REPORT_RULE, parse_rule
from lastgood.ledger.table import Coverage, EventTable, IncidentTable

if TYPE_CHECKING:
    import numpy as np

    from lastgood.ledger.columns import Steps, Window


INSTANT_US = 1_000_000
AT_RISK_MAX = 1_000_000_000
"""A typed number of devices or nodes beyond this is a slip of the keyboard."""


class RatesQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides a fleet's statistics, apart from the ledger: whoever recomputes them asks the same."""

    rule: str = REPORT_RULE.spec
    """The grouping rule as `parse_rule` reads it."""
    interval_method: str = "auto"
    """How intervals are made; anything but `auto` is fixed in advance, and said."""
    devices: int | None = None
    """Accelerators at risk, when a person says so: exposure is then assumed."""
    nodes: int | None = None
    """Nodes at risk, when a person says so."""
    since_us: int | None = None
    until_us: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecords:
    """The incidents that count, with the clock that their statistics run on."""

    incidents: IncidentTable
    """Failures in the field: not planned, not injected, inside the window."""
    injected_count: int
    planned_count: int
    outside_count: int
    """Failures whose begin lies outside the window, left out."""
    event_count: int
    """Events in effect that were read."""
    unread_codes: dict[str, int]
    """Codes that no mapping table knows, with how many events carry them: they are no incidents."""
    begin_us: int
    end_us: int
    windows: tuple[tuple[int, int], ...]
    """The observed stretches between begin and end; time between them is not observed."""
    window_source: str
    exposure: ExposureCurve | None
    """Over the observed hours alone. None: unknown, and no rate is computed."""
    clock: ExposureCurve
    """What time is counted in, over the calendar: exposure where it is known, else observed hours."""
    observed: ExposureCurve
    """Observed hours over the calendar: the clock of every study, which stands still where nobody looked."""
    node_count: int | None
    """Nodes at risk; None when nobody said."""
    node_names: tuple[str, ...]
    """Every node that is known by name: those at risk, else those that failed."""
    node_times: dict[str, tuple[int, int]]
    """When each node was at risk first and last, where records say so."""
    coverage: tuple[Coverage, ...]
    """What each imported file covers."""
    source_change: SourceChange | None
    """The set of sources is not the same throughout; None while it is."""
    rule: str
    question: RatesQuestion

    @property
    def hours(self) -> np.ndarray:
        """Begin of each incident in hours since the window's start."""
        return (self.incidents.begin_us - self.begin_us) / US_PER_H

    @property
    def window_h(self) -> float:
        """Length of the window in hours, unobserved time included."""
        return (self.end_us - self.begin_us) / US_PER_H

    @property
    def window_d(self) -> float:
        """The same in days."""
        return (self.end_us - self.begin_us) / US_PER_DAY

    @property
    def observed_us(self) -> int:
        """Observed time between begin and end."""
        return sum(end - begin for begin, end in self.windows)

    def observed_hours(self, t_us: np.ndarray) -> np.ndarray:
        """Observed hours from the window's begin to these moments; in a hole, those at its edge."""
        import numpy as np

        # A sum of stretches may differ from the whole in its last digit: no moment lies beyond the end.
        hours = self.observed.until((t_us - self.begin_us) / US_PER_H)
        return np.minimum(hours, self.observed.total)

    @property
    def breaks_h(self) -> tuple[float, ...]:
        """Where the observed hours jump over a hole."""
        import numpy as np

        ends = np.array([end_us for _, end_us in self.windows[:-1]], dtype=np.int64)
        return tuple(self.observed_hours(ends).tolist())


def fleet_records(
    table: EventTable, question: RatesQuestion, *, drilled: Collection[str] = ()
) -> FleetRecords:
    """The records of a fleet as the statistics need them.

    What happened in the `drilled` runs was caused on purpose, and their devices were at risk of nothing that counts.

    Raises:
        BadInput: nothing is observed between `since` and `until`, or a number of devices that is none.
    """
    import numpy as np

    from lastgood.ledger.columns import exposure_steps, fold_table, observed_windows

    rule = parse_rule(question.rule)
    folded = fold_table(table, rule)
    seen = observed_windows(table)
    windows = _clipped(seen, question)
    begin_us, end_us = windows[0][0], windows[-1][1]
    injected = (folded.injected == 1) | folded.run.is_one_of(tuple(drilled))
    failures = folded.take(~folded.planned & ~injected)
    inside = _inside(failures.begin_us, windows)
    field = table.take(~table.run.is_one_of(tuple(drilled))) if drilled else table
    steps, by_host = exposure_steps(field, as_of_us=end_us)
    over_calendar = _exposure(field, steps, question, windows)
    observed = _observed_hours(windows)
    counted = failures.take(inside)
    failed = _failed_hosts(counted, question)
    hosts = tuple(by_host) or tuple(failed)
    return FleetRecords(
        incidents=counted,
        injected_count=int(np.count_nonzero(injected & ~folded.planned)),
        planned_count=int(np.count_nonzero(folded.planned)),
        outside_count=int(len(failures) - np.count_nonzero(inside)),
        event_count=len(table),
        unread_codes=_unread_codes(table),
        begin_us=begin_us,
        end_us=end_us,
        windows=tuple(windows),
        window_source=_window_source(table, seen, question),
        exposure=None if over_calendar is None else _without_holes(over_calendar, observed),
        clock=over_calendar or observed,
        observed=observed,
        node_count=question.nodes or (len(by_host) or None),
        node_names=hosts,
        node_times={name: _span_of(own, end_us) for name, own in by_host.items()},
        coverage=table.coverage,
        source_change=source_change(table.coverage, windows),
        rule=str(rule),
        question=question,
    )


def _failed_hosts(counted: IncidentTable, question: RatesQuestion) -> list[str]:
    failed = sorted(counted.host.counts())
    if question.nodes is not None and question.nodes < len(failed):
        raise BadInput(
            "more nodes failed than there are said to be",
            where="--nodes",
            found=f"{question.nodes}, and failures on {len(failed)} nodes",
            needs=f"{len(failed)} or more",
        )
    return failed


def _span_of(steps: Steps, end_us: int) -> tuple[int, int]:
    """From the first moment at risk to the last: what a node did between is in the pooled exposure alone."""
    last_us = end_us if steps.devices[-1] > 0 else int(steps.t_us[-1])
    return int(steps.t_us[0]), last_us


def _clipped(seen: Sequence[Window], question: RatesQuestion) -> list[tuple[int, int]]:
    """The observed stretches between `since` and `until`.

    A person who names a date wants the failures from there on; where no record speaks, nothing is observed.
    """
    since = question.since_us if question.since_us is not None else -(2**62)
    until = question.until_us if question.until_us is not None else 2**62
    found = [
        (max(w.begin_us, since), min(w.end_us, until))
        for w in seen
        if min(w.end_us, until) > max(w.begin_us, since)
    ]
    if not found and seen and question.since_us is None and question.until_us is None:
        begin_us = seen[0].begin_us  # a log of one moment: it counts, and no rate can come of it
        return [(begin_us, begin_us + INSTANT_US)]
    if not found:
        raise BadInput(
            "nothing is observed in this window",
            found="no stretch of time that any record speaks about",
            needs="records over more than one instant between --since and --until",
            next="lastgood import PATH... --ledger LEDGER",
        )
    return found


def _inside(t_us: np.ndarray, windows: Sequence[tuple[int, int]]) -> np.ndarray:
    import numpy as np

    inside = np.zeros(len(t_us), dtype=bool)
    for begin_us, end_us in windows:
        inside |= (t_us >= begin_us) & (t_us <= end_us)
    return inside


def _window_source(table: EventTable, seen: Sequence[Window], question: RatesQuestion) -> str:
    """How the window is known, in words."""
    if all(w.end_us <= w.begin_us for w in seen):
        known = "one moment only, taken for a second"
    elif any(w.is_inferred for w in seen):
        known = "from the first to the last record, inferred: no import says what it covers"
    elif all(c.is_declared for c in table.coverage):
        known = "as the imported files declare it"
    else:
        known = "from the first to the last row of the imported files"
    cuts = [
        f"cut by {name}"
        for name, value in (("--since", question.since_us), ("--until", question.until_us))
        if value is not None
    ]
    return ", ".join([known, *cuts])


def _unread_codes(table: EventTable) -> dict[str, int]:
    """Codes of events that their mapping table gives neither a class nor a cause."""
    rows = (table.class_.codes < 0) & table.cause.is_one_of(["unknown"]) & (table.code.codes >= 0)
    return table.code.take(rows).counts()


# --- exposure ----------------------------------------------------------------------------------------------


def _exposure(
    table: EventTable,
    steps: Steps,
    question: RatesQuestion,
    windows: Sequence[tuple[int, int]],
) -> ExposureCurve | None:
    """What is at risk: what a person typed, because it was asked for; else join and leave records; else runs.

    A log of one moment has no exposure, whatever it says: no time passed in it.
    """
    for name, value in (("--devices", question.devices), ("--nodes", question.nodes)):
        if value is not None and value <= 0:
            raise BadInput(
                "a fleet has at least one", where=name, found=str(value), needs="more than 0"
            )
        if value is not None and value > AT_RISK_MAX:
            raise BadInput(
                "no fleet is that large",
                where=name,
                found=f"{value:,}" if value < 10**15 else "a number of 16 digits or more",
                needs=f"at most {AT_RISK_MAX:,}",
            )
    if windows[-1][1] - windows[0][0] <= INSTANT_US:
        return None
    if question.devices is not None:
        return _typed(question.devices, "device-h", f"--devices {question.devices}", windows)
    from_records = _stepped(steps, windows, unit="device-h", source="join and leave records")
    if from_records is not None:
        return from_records
    if question.nodes is not None:
        return _typed(question.nodes, "node-h", f"--nodes {question.nodes}", windows)
    runs = _run_steps(table, windows[-1][1])
    return _stepped(runs, windows, unit="run-h", source="starts and ends of runs") if runs else None


def _stepped(
    steps: Steps, windows: Sequence[tuple[int, int]], *, unit: str, source: str
) -> ExposureCurve | None:
    """The curve of recorded steps inside the windows; None where nothing was at risk in them."""
    import numpy as np

    t_us, devices = steps
    begin_us, end_us = windows[0][0], windows[-1][1]
    inside = (t_us > begin_us) & (t_us < end_us)
    before = np.flatnonzero(t_us <= begin_us)
    first = int(devices[before[-1]]) if len(before) else 0
    edges = np.concatenate(([begin_us], t_us[inside], [end_us]))
    at_risk = np.concatenate(([first], devices[inside])).astype(np.float64)
    edges, at_risk = _with_holes(edges, at_risk, windows)
    return _at_risk(edges, at_risk, unit=unit, source=source) if at_risk.any() else None


def _run_steps(table: EventTable, end_us: int) -> Steps | None:
    """How many runs were going at each time; a run without an end goes on to the window's end."""
    import numpy as np

    from lastgood.ledger.columns import Steps

    is_start = table.kind.is_one_of(["run.start"]) & (table.run.codes >= 0)
    is_end = table.kind.is_one_of(["run.end"]) & (table.run.codes >= 0)
    if not is_start.any():
        return None
    begins = np.full(len(table.run.names), end_us, dtype=np.int64)
    np.minimum.at(begins, table.run.codes[is_start], table.t_us[is_start])
    ends = np.full(len(table.run.names), end_us, dtype=np.int64)
    ends[table.run.codes[is_end]] = table.t_us[is_end]
    t_us, place = np.unique(np.concatenate((begins, ends)), return_inverse=True)
    change = np.zeros(len(t_us), dtype=np.int64)
    np.add.at(change, place, np.repeat((1, -1), len(begins)))
    return Steps(t_us, np.cumsum(change))


def _typed(count: int, unit: str, source: str, windows: Sequence[tuple[int, int]]) -> ExposureCurve:
    import numpy as np

    edges = np.array([windows[0][0], windows[-1][1]], dtype=np.int64)
    made = _with_holes(edges, np.array([float(count)]), windows)
    return _at_risk(*made, unit=unit, source=source, is_assumed=True)


def _observed_hours(windows: Sequence[tuple[int, int]]) -> ExposureCurve:
    """Observed time as a clock: it stands still where nothing was observed."""
    import numpy as np

    edges = np.array([windows[0][0], windows[-1][1]], dtype=np.int64)
    return _at_risk(
        *_with_holes(edges, np.ones(1), windows), unit="h", source="observed time, per fleet"
    )


def _without_holes(curve: ExposureCurve, observed: ExposureCurve) -> ExposureCurve:
    """The same exposure on the observed hours: a constant count is then constant, and no week is empty."""
    import numpy as np

    edges = observed.until(curve.edges_h)
    lasts = np.diff(edges) > 0
    return replace(
        curve,
        edges_h=np.concatenate((edges[:1], edges[1:][lasts])),
        devices=curve.devices[lasts],
    )


def _with_holes(
    edges_us: np.ndarray, devices: np.ndarray, windows: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The same steps, with nothing at risk between the observed stretches: what nobody saw is no exposure."""
    import numpy as np

    bounds = np.array([t for window in windows for t in window], dtype=np.int64)
    edges = np.unique(np.concatenate((edges_us, bounds)))
    middles = edges[:-1] + np.diff(edges) // 2
    at = np.clip(np.searchsorted(edges_us, middles, side="right") - 1, 0, len(devices) - 1)
    return edges, np.where(_inside(middles, windows), devices[at], 0.0)


def _at_risk(
    edges_us: np.ndarray, devices: np.ndarray, *, unit: str, source: str, is_assumed: bool = False
) -> ExposureCurve:
    return ExposureCurve(
        edges_h=(edges_us - edges_us[0]) / US_PER_H,
        devices=devices,
        unit=unit,
        source=source,
        is_assumed=is_assumed,
    )
