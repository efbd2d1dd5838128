"""Every microsecond of a run gets exactly one state, and the states sum to the window.

Records overlap and contradict: a step interval reaches into an outage, a section lies inside a warm-up. Each piece of
evidence claims a stretch for a state; where claims overlap the state that stands first in `WallState` has it (a
sweep line), and what nobody claims is `unknown`, which is shown and never counted as good.

`lost` is assigned in retrospect: when a step number runs again, or a verified restore goes back behind it, its
earlier execution produced nothing that counts. So a later record may move time from `productive` to `lost`, and
every value carries the `as_of` up to which the records were read. A hang is charged to detection: what counts as
progress ends with the last completed step, however long it took to notice. A gap between two steps is never
productive just because the numbers continue: that is how a run with perfect checkpoints hides its outages.
"""

from __future__ import annotations

import bisect
import enum
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lastgood.base.errors import BadInput
from lastgood.ledger.event import Event, in_effect
from lastgood.ledger.skew import NO_SKEW, Skew
from lastgood.ledger.timeline import Claim, Timeline, read_timeline


class WallState(enum.StrEnum):
    """What a run was doing, in the order of priority when evidence overlaps."""

    PLANNED = "planned"
    EXCLUDED = "excluded"
    DOWN_SCHEDULE = "down.schedule"
    DOWN_DETECT = "down.detect"
    DOWN_DIAGNOSE = "down.diagnose"
    DOWN_ISOLATE = "down.isolate"
    DOWN_RESTART = "down.restart"
    RESTORE = "restore"
    DOWN_VERIFY = "down.verify"
    WARMUP = "warmup"
    CHECKPOINT_BLOCKING = "checkpoint.blocking"
    STALL = "stall"
    DEGRADED_EXCESS = "degraded.excess"
    LOST = "lost"
    PRODUCTIVE = "productive"
    UNKNOWN = "unknown"


STATES = tuple(WallState)
_PRIORITY = {str(state): at for at, state in enumerate(STATES)}


class Span(NamedTuple):
    """One stretch in one state; `end_us` is not part of it."""

    state: WallState
    start_us: int
    end_us: int
    is_inferred: bool = False
    """A record of its begin or end is missing; a rule closed it."""

    @property
    def duration_us(self) -> int:
        """How long it lasted."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimeRules:
    """What a person may declare about the partition. Print it beside the numbers."""

    stall_factor: float = 10.0
    """A step that takes this many times the median of its run has stalled; the excess is not progress."""
    stall_us_min: int = 30_000_000
    """Shorter excesses are no stall."""
    degraded_factor: float | None = None
    """Beyond this many times the median the excess is `degraded.excess`; None: not declared, nothing is taken off."""
    liveness_us: int = 600_000_000
    """An imported run without an end on record is taken to have ended this long after its last sign of life, or two
    usual steps after it when they are longer."""
    skew_us_max: int = 5_000_000
    """Clocks of two starts of an imported run may be off by this much; an order that contradicts more is corrected."""
    excluded: tuple[tuple[int, int], ...] = ()
    """Declared stretches that do not count, as (start_us, end_us)."""

    def __post_init__(self) -> None:
        """Refuses factors that would take normal steps for slow ones."""
        if self.stall_factor <= 1 or (
            self.degraded_factor is not None and self.degraded_factor <= 1
        ):
            raise BadInput("a factor of slowness must be above 1", found=repr(self))
        if self.liveness_us < 0 or self.skew_us_max < 0:
            raise BadInput("a time of a rule must be zero or more", found=repr(self))
        if any(end_us < start_us for start_us, end_us in self.excluded):
            raise BadInput("an excluded stretch ends before it begins", found=repr(self.excluded))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTime:
    """The partition of one run's window."""

    run: str | None
    start_us: int
    end_us: int
    as_of_us: int
    spans: tuple[Span, ...]
    """In order, touching, each in one state: together they are the window."""
    totals_us: dict[WallState, int]
    """Every state, zeros included; the values sum to `window_us`."""
    inferred_us: int
    """How much of it rests on a rule because a record is missing."""
    accepted_steps: int
    """Steps that count, each number once."""
    accepted_ends_us: array[int]
    """When each of them was complete, in order of time."""
    lost_executions: int
    """Executions of steps that do not count (any more)."""
    step_us_median: int | None
    """Median time of the accepted steps: the reference of stalls and of progress efficiency."""
    clamped_count: int
    """Records whose times contradicted each other (an end before its begin) and were clamped."""
    impossible_ends: int = 0
    """Those of them that say an end of the run before its start; they are not believed."""
    unsure_executions: int = 0
    """Executions of which no record tells whether a later start did them again: their time is `unknown`."""
    unsure_us: int = 0
    """How long they took."""
    inferred_steps: int = 0
    """Steps whose record, or whose end, is missing and that a rule took to have run."""
    skew: Skew = NO_SKEW
    """What was corrected because the clocks of two starts contradicted each other."""
    has_end: bool = False
    """The end of the run is on record; without it the window ends at `as_of_us`, or by rule."""
    ending_us: int = 0
    """The part of `stall` between the last step and a good end of the run: its processes ended, and nothing was stuck."""
    is_work_recorded: bool = True
    """False when no record could tell work from waiting: then nothing is known of productive time, not even zero."""
    is_end_inferred: bool = False
    """The run has no end on record, and a rule closed it (`WallTimeRules.liveness_us`)."""
    silence_us: int = 0
    """How long after its last sign of life that rule let it last."""

    def next_step_us(self, after_us: int) -> int | None:
        """When the first accepted step behind this moment was complete; None when there is none on record."""
        at = bisect.bisect_right(self.accepted_ends_us, after_us)
        return self.accepted_ends_us[at] if at < len(self.accepted_ends_us) else None

    @property
    def window_us(self) -> int:
        """Length of the window."""
        return self.end_us - self.start_us

    @property
    def is_progress_known(self) -> bool:
        """False when it cannot be said which time produced accepted work."""
        return self.is_work_recorded and not self.unsure_executions

    @property
    def productive_us(self) -> int:
        """Time that produced accepted work."""
        return self.totals_us[WallState.PRODUCTIVE]

    @property
    def counted_us(self) -> int:
        """The window without planned and excluded time: what failures are held against."""
        uncounted = (WallState.PLANNED, WallState.EXCLUDED)
        return self.window_us - sum(self.totals_us[state] for state in uncounted)


def partition(
    events: Iterable[Event],
    *,
    run: str | None,
    as_of_us: int,
    window: tuple[int, int] | None = None,
    rules: WallTimeRules | None = None,
) -> WallTime:
    """The wall time of one run, by state.

    The window is clipped to the life of the run: from its first start to its last end, or to `as_of_us` while it is
    open. Time between an end and the next start of the same run is part of its life (it waited for a place).
    """
    rules = rules or WallTimeRules()
    timeline = read_timeline(
        (e for e in in_effect(events) if e.run == run), as_of_us=as_of_us, rules=rules
    )
    start_us, end_us = timeline.start_us, timeline.end_us
    if window is not None:
        if window[1] < window[0]:
            raise BadInput("a window ends before it begins", found=str(window))
        start_us, end_us = max(start_us, window[0]), min(end_us, window[1])
        end_us = max(start_us, end_us)
    spans = tuple(_merge(_sweep(timeline.claims, start_us, end_us)))
    totals = dict.fromkeys(STATES, 0)
    for span in spans:
        totals[span.state] += span.duration_us
    result = _wall_time(timeline, run, spans, totals, (start_us, end_us), as_of_us)
    assert sum(totals.values()) == result.window_us, "states must sum to the window"
    return result


def _wall_time(
    timeline: Timeline,
    run: str | None,
    spans: tuple[Span, ...],
    totals: dict[WallState, int],
    window: tuple[int, int],
    as_of_us: int,
) -> WallTime:
    inside = [e for e in timeline.executions if window[0] < e.end_us <= window[1]]
    accepted = array("q", (e.end_us for e in inside if not (e.is_lost or e.is_unsure)))
    return WallTime(
        run=run,
        start_us=window[0],
        end_us=window[1],
        as_of_us=as_of_us,
        spans=spans,
        totals_us=totals,
        inferred_us=sum(span.duration_us for span in spans if span.is_inferred),
        accepted_steps=len(accepted),
        accepted_ends_us=accepted,
        lost_executions=sum(e.is_lost for e in inside),
        step_us_median=timeline.step_us_median,
        clamped_count=timeline.clamped_count,
        impossible_ends=timeline.impossible_ends,
        unsure_executions=sum(e.is_unsure for e in inside),
        unsure_us=sum(e.end_us - e.start_us for e in inside if e.is_unsure),
        inferred_steps=sum(e.is_inferred for e in inside),
        skew=timeline.skew,
        has_end=timeline.life.has_end,
        ending_us=_ending_us(timeline, spans),
        is_work_recorded=timeline.life.is_work_recorded,
        is_end_inferred=timeline.life.is_end_inferred,
        silence_us=timeline.life.end_us - timeline.life.alive_us,
    )


def _ending_us(timeline: Timeline, spans: Sequence[Span]) -> int:
    """How much of the last stretch is what a good end left behind the last step; what a section claims is none of it."""
    if not spans or not timeline.executions or spans[-1].end_us != timeline.end_us:
        return 0
    last, step_us = spans[-1], timeline.executions[-1].end_us
    tail = Claim(WallState.STALL, step_us, timeline.end_us)
    is_ending = last.state is WallState.STALL and tail in timeline.claims
    return last.end_us - max(last.start_us, step_us) if is_ending else 0


@dataclass(slots=True)
class _Active:
    """How many claims of each state hold at the sweep line, and how many of those rest on a record."""

    claims: list[int] = field(default_factory=lambda: [0] * len(STATES))
    recorded: list[int] = field(default_factory=lambda: [0] * len(STATES))

    def change(self, priority: int, *, is_inferred: bool, by: int) -> None:
        self.claims[priority] += by
        if not is_inferred:
            self.recorded[priority] += by

    def span(self, start_us: int, end_us: int) -> Span:
        for priority, count in enumerate(self.claims):
            if count:
                return Span(STATES[priority], start_us, end_us, self.recorded[priority] == 0)
        return Span(WallState.UNKNOWN, start_us, end_us)


def _sweep(claims: Sequence[Claim], start_us: int, end_us: int) -> Iterator[Span]:
    """The state of each elementary stretch of the window: the first in priority of those that claim it."""
    edges: list[tuple[int, int, bool, int]] = []
    for claim in claims:
        begin, end = max(claim.start_us, start_us), min(claim.end_us, end_us)
        if begin < end:
            priority = _PRIORITY[claim.state]
            edges.append((begin, priority, claim.is_inferred, 1))
            edges.append((end, priority, claim.is_inferred, -1))
    edges.sort(key=lambda edge: edge[0])
    active, at_us = _Active(), start_us
    for edge_us, priority, is_inferred, by in edges:
        if edge_us > at_us:
            yield active.span(at_us, edge_us)
            at_us = edge_us
        active.change(priority, is_inferred=is_inferred, by=by)
    if end_us > at_us:
        yield active.span(at_us, end_us)


def _merge(spans: Iterable[Span]) -> Iterator[Span]:
    """Touching spans of one state become one."""
    held: Span | None = None
    for span in spans:
        if held and (held.state, held.is_inferred) == (span.state, span.is_inferred):
            held = Span(held.state, held.start_us, span.end_us, held.is_inferred)
            continue
        if held:
            yield held
        held = span
    if held:
        yield held
