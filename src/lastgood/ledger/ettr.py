"""What the records say about useful time, as figures: never a bare number.

ETTR is productive time over wall time of a declared window. It is measured by partition (`walltime`), so it holds for
perfect checkpoints, hangs and missing records, and it may fall later when a record turns earlier work into lost work:
hence `as_of`. Three numbers belong together: the ratio of time, the accelerator time that was lost, and how much of
the wall time the accepted steps would have needed at their normal pace.

Source: cumulative and sliding-window ETTR as defined by ByteRobust (Wan and others, 2025, arXiv 2509.16293).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from lastgood.base.errors import BadInput
from lastgood.base.figures import Figure, FigureKind, Interval, assumed, combine, measured
from lastgood.base.poisson import mean_of_tail
from lastgood.base.units import format_duration
from lastgood.ledger.event import Event
from lastgood.ledger.exposure import Exposure, measure_exposure
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.walltime import Span, WallState, WallTime, WallTimeRules, partition

HOUR_US = 3_600_000_000
_NOT_LOST = frozenset(
    (WallState.PRODUCTIVE, WallState.PLANNED, WallState.EXCLUDED, WallState.UNKNOWN)
)


class Point(NamedTuple):
    """ETTR of the window that ends here."""

    end_us: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """One run in figures, with what they were computed from."""

    wall: WallTime
    exposure: Exposure
    incidents: tuple[Incident, ...]
    ettr: Figure
    ettr_counted: Figure
    """The same without planned and excluded time."""
    ettr_sliding_min: Figure
    longest_unproductive: Figure
    lost_device_time: Figure
    lost_work: Figure
    lost_steps: Figure
    progress_efficiency: Figure
    mean_time_to_interruption: Figure

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in the order in which a report shows them."""
        return (
            self.ettr, self.ettr_counted, self.ettr_sliding_min, self.longest_unproductive, self.lost_device_time,
            self.lost_work, self.lost_steps, self.progress_efficiency, self.mean_time_to_interruption,
        )  # fmt: skip


def measure_run(
    events: Iterable[Event],
    *,
    run: str,
    as_of_us: int,
    window: tuple[int, int] | None = None,
    rules: WallTimeRules | None = None,
    level: float = 0.95,
) -> RunTimes:
    """Everything about the time of one run: partition, exposure, incidents, and the figures that follow."""
    own = [event for event in events if event.run == run]
    wall = partition(own, run=run, as_of_us=as_of_us, window=window, rules=rules)
    exposure = measure_exposure(
        own, as_of_us=as_of_us, run=run, window=(wall.start_us, wall.end_us)
    )
    incidents = tuple(
        i for i in fold_incidents(own) if wall.start_us <= _began_us(i, wall) <= wall.end_us
    )
    interruptions = sum(not incident.is_planned for incident in incidents)
    return RunTimes(
        wall=wall,
        exposure=exposure,
        incidents=incidents,
        ettr=ettr(wall),
        ettr_counted=ettr(wall, is_planned_counted=False),
        ettr_sliding_min=sliding_minimum(wall),
        longest_unproductive=longest_unproductive(wall),
        lost_device_time=lost_device_time(wall, exposure),
        lost_work=lost_work(wall, exposure),
        lost_steps=_lost_steps(wall),
        progress_efficiency=progress_efficiency(wall),
        mean_time_to_interruption=mean_time_to_interruption(
            interruptions,
            wall.counted_us,
            level=level,
            exposure=f"{format_duration(wall.counted_us)} of run time",
            source=f"incidents of run {run}, planned ones not counted",
            as_of_us=as_of_us,
        ),
    )


def ettr(wall: WallTime, *, is_planned_counted: bool = True) -> Figure:
    """Productive time over wall time of the window; optionally without planned and excluded time in the denominator."""
    total_us = wall.window_us if is_planned_counted else wall.counted_us
    return measured(
        "ETTR" if is_planned_counted else "ETTR without planned time",
        wall.productive_us / total_us if total_us and wall.is_progress_known else None,
        "ratio",
        n=wall.accepted_steps,
        exposure=f"{format_duration(total_us)} of wall time",
        source=_source(wall, "productive time over wall time"),
        as_of_us=wall.as_of_us,
    )


def sliding_ettr(wall: WallTime, *, width_us: int = HOUR_US) -> list[Point]:
    """ETTR of every window of this width, at the ends where its slope can change.

    Between two of these points the ratio moves along a straight line, so they hold its exact minimum and maximum,
    and joining them draws the exact curve. Empty when the run is shorter than one width.
    """
    if width_us <= 0:
        raise BadInput("a sliding window needs a width", found=str(width_us), needs="more than 0")
    if not wall.spans or wall.window_us < width_us:
        return []
    first, last = wall.start_us + width_us, wall.end_us
    edges = {span.start_us for span in wall.spans} | {wall.end_us}
    ends = {first, last} | {
        e for edge in edges for e in (edge, edge + width_us) if first <= e <= last
    }
    productive_by = _productive_until(wall.spans)
    return [
        Point(end, (productive_by(end) - productive_by(end - width_us)) / width_us)
        for end in sorted(ends)
    ]


def sliding_minimum(wall: WallTime, *, width_us: int = HOUR_US) -> Figure:
    """The worst window of this width; not observed when the run is shorter."""
    points = sliding_ettr(wall, width_us=width_us) if wall.is_progress_known else []
    width = format_duration(width_us)
    return measured(
        f"lowest ETTR of any {width}",
        min((point.ratio for point in points), default=None),
        "ratio",
        exposure=f"every window of {width} in {format_duration(wall.window_us)}",
        source=_source(wall, "productive time over the width of the window"),
        as_of_us=wall.as_of_us,
    )


def longest_unproductive(wall: WallTime) -> Figure:
    """The longest stretch without any productive time, planned stops included."""
    longest = current = 0
    for span in wall.spans:
        current = 0 if span.state is WallState.PRODUCTIVE else current + span.duration_us
        longest = max(longest, current)
    return measured(
        "longest unproductive stretch",
        longest if wall.is_progress_known else None,
        "us",
        exposure=f"{format_duration(wall.window_us)} of wall time",
        source=_source(wall, "longest stretch between productive states"),
        as_of_us=wall.as_of_us,
    )


def lost_device_time(wall: WallTime, exposure: Exposure) -> Figure:
    """Accelerator time that produced nothing: devices at risk over every state that is down, waiting or lost.

    Planned and excluded time is nobody's loss, and unknown time is unknown, not lost.
    """
    lost_us = sum(
        exposure.device_us_within(s.start_us, s.end_us)
        for s in wall.spans
        if s.state not in _NOT_LOST
    )
    return measured(
        "lost accelerator time",
        lost_us / 1_000_000 if exposure.stretches and wall.is_work_recorded else None,
        "device-s",
        exposure=f"{format_duration(exposure.device_us)} of device time",
        source=_source(wall, "devices at risk over time neither productive, planned nor unknown"),
        as_of_us=wall.as_of_us,
    )


def lost_at(wall: WallTime, devices: int) -> Figure:
    """Lost accelerator time of a run whose records do not say how many devices it had, for a number that a person gives.

    Assumes: that many devices at risk all of the time, also while the run waited for a place.
    """
    lost_us = sum(s.duration_us for s in wall.spans if s.state not in _NOT_LOST)
    lost = measured(
        "lost time",
        lost_us / 1_000_000 if wall.is_work_recorded else None,
        "s",
        source=_source(wall, "time neither productive, planned nor unknown"),
        as_of_us=wall.as_of_us,
    )
    return combine(
        [lost, assumed("devices", devices, "device", source="given by a person")],
        lambda seconds, count: seconds * count,
        name="lost accelerator time",
        unit="device-s",
        assumptions=(f"{devices:,} devices at risk all of the time",),
        source="lost time times devices",
    )


def lost_work(wall: WallTime, exposure: Exposure) -> Figure:
    """Accelerator time of steps that were executed and do not count any more."""
    lost_us = sum(
        exposure.device_us_within(s.start_us, s.end_us)
        for s in wall.spans
        if s.state is WallState.LOST
    )
    return measured(
        "lost work",
        lost_us / 1_000_000 if exposure.stretches and wall.is_progress_known else None,
        "device-s",
        n=wall.lost_executions,
        exposure=f"{format_duration(exposure.device_us)} of device time",
        source=_source(
            wall, "devices at risk over steps that ran again or lie behind the restored state"
        ),
        as_of_us=wall.as_of_us,
    )


def progress_efficiency(wall: WallTime, *, step_us_reference: int | None = None) -> Figure:
    """Accepted steps times their normal time, over wall time: ETTR that slow steps cannot flatter.

    `step_us_reference` is a declared normal time; without one the median of the run's own steps is taken, which
    cannot show that all of them are slow.
    """
    reference_us = step_us_reference or wall.step_us_median
    known = reference_us is not None and wall.window_us > 0 and not wall.unsure_executions
    value = wall.accepted_steps * (reference_us or 0) / wall.window_us if known else None
    name = "a declared step time" if step_us_reference else "the median step time of this run"
    return measured(
        "progress efficiency",
        value,
        "ratio",
        n=wall.accepted_steps,
        exposure=f"{format_duration(wall.window_us)} of wall time",
        source=_source(wall, f"accepted steps at {name}, over wall time"),
        as_of_us=wall.as_of_us,
    )


def mean_time_to_interruption(
    count: int,
    exposure_us: int,
    *,
    source: str,
    exposure: str,
    level: float = 0.95,
    kind: FigureKind = FigureKind.MEASURED,
    as_of_us: int | None = None,
) -> Figure:
    """Mean time between job-stopping interruptions, with the exact Poisson interval of a window of fixed length.

    With no interruption there is no mean, only a bound, and the bound is in the source sentence.

    Assumes: for the interval only, independent interruptions at a constant rate. Clustered failures make it too
    narrow; the value itself is arithmetic and assumes nothing.
    Source: Garwood (1936), fiducial limits for the Poisson distribution; here for exposure over count.
    """
    if count < 0 or exposure_us < 0:
        raise BadInput(
            "counts and exposures are not negative", found=f"{count} in {exposure_us} us"
        )
    low_us, high_us = poisson_interval_us(count, exposure_us, level=level)
    interval = None
    if count and high_us is not None:
        method = "exact Poisson (Garwood); independent interruptions at a constant rate"
        interval = Interval(lo=low_us, hi=high_us, level=level, method=method)
    elif exposure_us:
        source = f"{source}; none seen, so with {level:.0%} confidence more than {format_duration(low_us)}"
    return Figure(
        name="mean time to interruption",
        value=exposure_us / count if count else None,
        unit="us",
        kind=kind,
        interval=interval,
        n=count,
        exposure=exposure,
        source=source,
        as_of_us=as_of_us,
    )


def poisson_interval_us(
    count: int, exposure_us: float, *, level: float
) -> tuple[float, float | None]:
    """Shortest and longest mean time that the count does not contradict; the longest is None for a count of zero.

    Both tails share the error. For zero events there is one bound only, and it gets all of it.
    """
    if not 0 < level < 1:
        raise BadInput("a level is a probability", found=str(level), needs="between 0 and 1")
    tail = (1 - level) / (2 if count else 1)
    low_us = exposure_us / mean_of_tail(count + 1, 1 - tail)
    return low_us, exposure_us / mean_of_tail(count, tail) if count else None


def _lost_steps(wall: WallTime) -> Figure:
    return measured(
        "lost steps",
        wall.lost_executions if wall.is_progress_known else None,
        "steps",
        n=wall.accepted_steps + wall.lost_executions,
        source=_source(wall, "executions of steps that do not count"),
        as_of_us=wall.as_of_us,
    )


def _productive_until(spans: Sequence[Span]):  # noqa: ANN202 - a function of time
    """A function: productive time before a moment."""
    starts = [span.start_us for span in spans]
    amounts = [s.duration_us if s.state is WallState.PRODUCTIVE else 0 for s in spans]
    before = [0, *accumulate(amounts)]

    def until(at_us: int) -> int:
        at = bisect.bisect_right(starts, at_us) - 1
        if at < 0:
            return 0
        span = spans[at]
        inside = min(at_us, span.end_us) - span.start_us
        return before[at] + (inside if span.state is WallState.PRODUCTIVE else 0)

    return until


def _began_us(incident: Incident, wall: WallTime) -> int:
    for stamp_us in (incident.detected_us, incident.opened_us, incident.onset_us):
        if stamp_us is not None:
            return stamp_us
    return wall.start_us


def _source(wall: WallTime, what: str) -> str:
    inferred = f"; {format_duration(wall.inferred_us)} closed by rule" if wall.inferred_us else ""
    if wall.skew.event_count:
        shift = format_duration(wall.skew.shift_us_max)
        inferred += f"; skew corrected: {wall.skew.event_count} events, {shift}"
    if wall.skew.is_lower_bound:
        inferred += " at least, so the wait before a start is not known"
    if not wall.is_work_recorded:
        inferred += "; no record tells work from waiting"
    if wall.unsure_executions:
        inferred += f"; no record tells whether {wall.unsure_executions:,} steps before a restart were done again"
    return f"ledger, run {wall.run}: {what}{inferred}"
