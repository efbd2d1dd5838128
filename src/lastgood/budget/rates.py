"""Everything about one group of incidents over one exposure: figures, tests and their verdicts in words.

`study` is the one entry: it takes a `Sample` (columns of incidents) and what was at risk, runs every method of this
package in the order in which a reader needs them, and returns a `RateStudy`. Without exposure there are counts and
tests on the calendar, and no rate. Below ten events there are count, exposure and the exact interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.base.figures import Figure
from lastgood.budget.bursts import Bursts, bursts
from lastgood.budget.change_points import ChangePoints, change_points
from lastgood.budget.dispersion import Dispersion, check_times, dispersion
from lastgood.budget.finding import EVENTS_MIN, Finding
from lastgood.budget.intervals import Headline, headline
from lastgood.budget.lemons import NODES_MIN, Lemons, lemons
from lastgood.budget.mcf import MeanCumulative, mean_cumulative
from lastgood.budget.operational import ExposureCurve
from lastgood.budget.power_law import PowerLaw, fit_power_law
from lastgood.budget.rate_figures import EXPOSURE_UNKNOWN, rate_figures
from lastgood.budget.rate_interval import IntervalMethod
from lastgood.budget.renewal import GapShape, gap_shape
from lastgood.budget.repair import WEEK_H, Bounces, bounces
from lastgood.budget.sample import NodeColumns, Sample
from lastgood.budget.spread import measure_spread
from lastgood.budget.survival import Durations, durations
from lastgood.budget.trend import Trend, trend, without_verdict

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStudy:
    """What one group of incidents says. None where a method has nothing to work on."""

    name: str
    sample: Sample
    exposure: ExposureCurve | None
    """None: unknown, and then there is no rate."""
    count: Figure
    exposure_figure: Figure | None
    rate: Figure | None
    """Per 1000 device-h, or per run-h, with the headline's interval."""
    mean_time: Figure | None
    """Exposure per incident (device time, or run time)."""
    fleet_mean_time: Figure | None
    """Observed time per incident, all devices together; the same interval."""
    unknown_share: Figure | None
    headline: Headline | None
    """The chosen interval, why, and all others; None when the exposure is unknown."""
    dispersion: Dispersion | None
    """Over the bins of the tests; None below ten events."""
    weekly: Dispersion | None
    """Over whole weeks, for the chart; None in windows shorter than eight weeks."""
    trend: Trend
    power_law: PowerLaw | None
    gaps: GapShape
    mcf: MeanCumulative | None
    changes: ChangePoints | None
    bursts: Bursts | None
    bounce_day: Bounces | None
    bounce_week: Bounces | None
    lemons: Lemons | None
    durations: tuple[Durations, ...]
    is_operational: bool
    """Tests ran on cumulative exposure and not on the calendar."""
    level: float
    notes: tuple[str, ...]
    """What was left out, and why, in sentences."""

    @property
    def is_too_few(self) -> bool:
        """Below ten events nothing is tested."""
        return self.sample.count < EVENTS_MIN

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every test that was made or would have been, in the order of a report."""
        found = [self.dispersion.spread, self.dispersion.memory] if self.dispersion else []
        found += [self.gaps.finding, *self.trend.findings]
        found += [self.bursts.finding] if self.bursts else []
        found += [b.finding for b in (self.bounce_day, self.bounce_week) if b]
        found += [self.lemons.unequal, self.lemons.persistence] if self.lemons else []
        return tuple(dict.fromkeys(found))

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The answers in words, most asked first."""
        if self.is_too_few:
            return (f"{self.sample.count} {self.sample.layer}: too few to test.", *self.notes)
        parts = [self.trend.headline.sentence]
        parts += [self.dispersion.spread.sentence] if self.dispersion else []
        parts += [self.changes.sentence] if self.changes else []
        parts += [self.bursts.finding.sentence] if self.bursts else []
        parts += [b.finding.sentence for b in (self.bounce_day,) if b]
        parts += [self.lemons.sentence] if self.lemons else []
        return (*parts, *self.notes)


def study(
    sample: Sample,
    *,
    exposure: ExposureCurve | None,
    method: IntervalMethod = IntervalMethod.AUTO,
    level: float = 0.95,
    seed: int = 0,
) -> RateStudy:
    """Run every method on one group.

    Assumes: what each method says; operational time makes changing device counts comparable.
    Source: the modules of this package.
    """
    import numpy as np

    begin = np.asarray(sample.begin_h, dtype=np.float64)
    check_times(begin, sample.window_h)
    if exposure is not None and abs(exposure.window_h - sample.window_h) > 1e-6 * sample.window_h:
        raise BadInput(
            "exposure and incidents need one window",
            found=f"{exposure.window_h} h and {sample.window_h} h",
        )
    if exposure is not None and not exposure.total > 0:
        exposure = None
    is_operational = exposure is not None and not exposure.is_constant
    times = np.sort(_operational(begin, exposure) if is_operational else begin)
    enough = len(begin) >= EVENTS_MIN
    spread = measure_spread(times, sample.window_h) if enough else None
    nodes = NodeColumns.of(sample, begin)
    chosen = _headline(sample, exposure, nodes, method=method, level=level, seed=seed)
    tested = trend(times, sample.window_h, is_operational=is_operational, spread=spread)
    slope = fit_power_law(
        times, sample.window_h, dispersion=spread.index if spread else 1.0, level=level
    )
    changes = _changes(times, sample.window_h, exposure if is_operational else None)
    if why := sample.source_change:
        tested = without_verdict(tested, why)
        slope = slope and replace(slope, sentence=_caveat(slope.sentence, why))
        changes = changes and replace(changes, sentence=_caveat(changes.sentence, why))
    return RateStudy(
        name=sample.name,
        sample=sample,
        exposure=exposure,
        **rate_figures(sample, exposure, chosen)._asdict(),
        headline=chosen,
        dispersion=dispersion(times, sample.window_h) if enough else None,
        weekly=_weekly(times, sample.window_h),
        trend=tested,
        power_law=slope,
        gaps=gap_shape(times, sample.window_h, level=level),
        changes=changes,
        **_by_node(sample, nodes, level)._asdict(),
        durations=tuple(
            durations(name, closed, sample.open_h.get(name), level=level)
            for name, closed in sample.closed_h.items()
        ),
        is_operational=is_operational,
        level=level,
        notes=_notes(sample, exposure, nodes),
    )


# --- parts ------------------------------------------------------------------------------------------


def _operational(times_h: np.ndarray, exposure: ExposureCurve | None) -> np.ndarray:
    """Cumulative exposure scaled to the window's hours, so that a week stays a week of average exposure."""
    assert exposure is not None
    return exposure.until(times_h) * (exposure.window_h / exposure.total)


def _weekly(times: np.ndarray, window_h: float) -> Dispersion | None:
    is_long = window_h >= 8 * WEEK_H
    return dispersion(times, window_h, bin_h=WEEK_H) if is_long and len(times) else None


def _headline(
    sample: Sample,
    exposure: ExposureCurve | None,
    nodes: NodeColumns | None,
    *,
    method: IntervalMethod,
    level: float,
    seed: int,
) -> Headline | None:
    import numpy as np

    if exposure is None:
        return None
    begin = np.asarray(sample.begin_h, dtype=np.float64)
    is_whole = sample.node_enter_h is None and sample.node_leave_h is None
    use_nodes = nodes is not None and nodes.is_fleet_known and is_whole and not nodes.missing
    return headline(
        begin if exposure.is_constant else _operational(begin, exposure),
        sample.window_h,
        exposure=exposure.total,
        node=nodes.node if nodes is not None and use_nodes else None,
        nodes=nodes.at_risk if nodes is not None and use_nodes else None,
        method=method,
        level=level,
        seed=seed,
    )


def _changes(
    times: np.ndarray, window_h: float, exposure: ExposureCurve | None
) -> ChangePoints | None:
    """Change points, with the cuts told on the calendar also when they were found in operational time."""
    import numpy as np

    found = change_points(times, window_h)
    if found is None or exposure is None:
        return found
    clock = exposure.until(exposure.edges_h) * (window_h / exposure.total)
    calendar = lambda h: float(np.interp(h, clock, exposure.edges_h))  # noqa: E731
    segments = tuple(
        replace(s, begin_h=calendar(s.begin_h), end_h=calendar(s.end_h)) for s in found.segments
    )
    sentence = f"{found.sentence} (Weeks of equal exposure, not of the calendar.)"
    return replace(found, segments=segments, sentence=sentence)


def _caveat(sentence: str, why: str) -> str:
    """The sentence of a fit that would be read as a trend, with what else may be behind it."""
    return f"{sentence} That may be the records alone: {why}."


class _ByNode(NamedTuple):
    """What needs to know the node of an incident."""

    bursts: Bursts | None = None
    bounce_day: Bounces | None = None
    bounce_week: Bounces | None = None
    mcf: MeanCumulative | None = None
    lemons: Lemons | None = None


def _by_node(sample: Sample, nodes: NodeColumns | None, level: float) -> _ByNode:
    if nodes is None or sample.count < EVENTS_MIN:
        return _ByNode()
    begin, node, window_h = nodes.begin_h, nodes.node, sample.window_h
    together = bursts(
        begin,
        node,
        window_h=window_h,
        breaks_h=sample.breaks_h,
        labels=sample.labels,
        label_codes=nodes.labels,
        domains=sample.domains,
    )
    day = week = curve = suspects = None
    if nodes.end_h is not None:
        day, week = bounces(
            begin,
            nodes.end_h,
            node,
            nodes=nodes.at_risk,
            window_h=window_h,
            breaks_h=sample.breaks_h,
            level=level,
        )
    if nodes.is_fleet_known:
        curve = mean_cumulative(
            begin,
            node,
            nodes=nodes.at_risk,
            window_h=window_h,
            enter_h=sample.node_enter_h,
            leave_h=sample.node_leave_h,
            level=level,
        )
    if nodes.is_fleet_known and nodes.at_risk >= NODES_MIN:
        at_risk_h = _node_exposure(sample)
        suspects = lemons(begin, node, nodes=nodes.at_risk, window_h=window_h, exposure=at_risk_h)
    return _ByNode(together, day, week, curve, suspects)


def _node_exposure(sample: Sample) -> np.ndarray | None:
    import numpy as np

    if sample.node_enter_h is None and sample.node_leave_h is None:
        return None
    enter = 0.0 if sample.node_enter_h is None else sample.node_enter_h
    leave = sample.window_h if sample.node_leave_h is None else sample.node_leave_h
    return np.maximum(leave - enter, 0.0)


def _notes(
    sample: Sample, exposure: ExposureCurve | None, nodes: NodeColumns | None
) -> tuple[str, ...]:
    notes = []
    if exposure is None:
        notes.append(
            f"{EXPOSURE_UNKNOWN[0].upper()}{EXPOSURE_UNKNOWN[1:]}: counts only, and tests on the calendar as if the "
            "device count had not changed."
        )
    if nodes is None:
        notes.append("No node is recorded: nothing about single nodes, repairs or bursts.")
    elif nodes.missing:
        notes.append(
            f"{nodes.missing} of {sample.count} {sample.layer} name no node and are left out where nodes matter."
        )
    if nodes is not None and not nodes.is_fleet_known:
        notes.append(
            "The number of nodes at risk is not known: no comparison of nodes; give --nodes or node events."
        )
    if nodes is not None and sample.end_h is None:
        notes.append("Ends of faults are not recorded: nothing about repairs that did not hold.")
    return tuple(notes)
