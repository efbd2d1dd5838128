"""The useful fraction E of wall time: first-order, exact, and for a job of finite length.

The first-order budget is what everybody quotes: easy to read, and wrong by about 0.4 W² (half a point at a waste of
11 %, twelve points at 57 %, negative where the truth is a third). So the exact value always stands beside it, it is
flagged above a waste of 15 %, and refused where it claims that more than everything is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import Refused
from lastgood.base.units import format_number
from lastgood.budget.closed.regime import HUGE_EXPONENT, Regime, chance_of_no_stop

FLAG_WASTE = 0.15
"""First-order waste above this is flagged: its error is near one point there."""
SEGMENT_COUNT_MAX = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Shares of wall time. With `useful` they sum to one."""

    checkpoint: float
    """Writing checkpoints that were completed."""
    rework: float
    """Work (and unfinished checkpoints) that a failure threw away."""
    detection: float
    recovery: float

    @property
    def waste(self) -> float:
        """W: everything that is not useful."""
        return math.fsum((self.checkpoint, self.rework, self.detection, self.recovery))

    @property
    def useful(self) -> float:
        """E = 1 - W."""
        return 1 - self.waste


def first_order(work: float, regime: Regime) -> Budget:
    """W = C/τ + τ/(2M) + (D + R)/M, term by term.

    Source: Young 1974; source chapter, second equation.
    Assumes: small waste, Poisson interruptions, blocking periodic checkpoints, no failures during recovery.
    """
    mean = regime.mean_to_stop
    return Budget(
        checkpoint=regime.checkpoint / work,
        rework=work / (2 * mean),
        detection=regime.detection / mean,
        recovery=regime.recovery / mean,
    )


def require_first_order(budget: Budget) -> float:
    """The useful fraction of a first-order budget.

    Raises:
        Refused: the budget says that more than all the time is lost, which no machine can do.
    """
    if budget.waste >= 1:
        raise Refused(
            "the first-order budget is meaningless here",
            found=f"a waste of {format_number(100 * budget.waste)} % of all time",
            needs="less than 100 %, and below 15 % to be good to a point",
            next="use the exact value",
        )
    return budget.useful


def efficiency(work: float, regime: Regime) -> float:
    """E exactly: useful work over expected wall time of one period.

    Recovery exposed to failure: E = τ / (exp(R/M) (M + D) (exp((τ + C)/M) - 1)).
    Recovery free of failure:    E = τ / ((M + D + R) (exp((τ + C)/M) - 1)).

    Source: Daly 2006 (D = 0); Herault and Robert 2015 with downtime D.
    Assumes: Poisson interruptions of mean M in the time at risk; blocking periodic checkpoints that never fail;
        every failure detected at once or within D; nothing fails during D.
    """
    return work / expected_wall(work, regime)


def expected_wall(work: float, regime: Regime) -> float:
    """Expected wall time from one completed checkpoint to the next one, `work` of useful time later.

    Infinite where it does not fit into a float. Source and Assumes: as for `efficiency`.
    """
    mean, detection, recovery = regime.mean_to_stop, regime.detection, regime.recovery
    failures = expected_failures(work, regime)
    down = detection if regime.is_recovery_exposed else detection + recovery
    return (mean + down) * failures


def expected_failures(work: float, regime: Regime) -> float:
    """How many failures strike between two completed checkpoints on average, those during recovery included."""
    x = (work + regime.checkpoint) / regime.mean_to_stop
    y = regime.recovery / regime.mean_to_stop if regime.is_recovery_exposed else 0.0
    return math.exp(y) * math.expm1(x) if x + y < HUGE_EXPONENT else math.inf


def exact_budget(work: float, regime: Regime) -> Budget:
    """The exact waste, term by term.

    With A failures per period, time at risk is M·A and time down is D·A (Wald); each failure is followed by one
    attempt at recovery, of mean length M (1 - exp(-R/M)) when it can fail itself and R when it cannot.

    Source: Wald's identity on the renewal period of `efficiency`.
    Assumes: as for `efficiency`.
    """
    failures = expected_failures(work, regime)
    if math.isinf(failures):
        return Budget(checkpoint=0.0, rework=1.0, detection=0.0, recovery=0.0)
    mean = regime.mean_to_stop
    recovery = regime.recovery
    if regime.is_recovery_exposed:
        recovery = -mean * math.expm1(-regime.recovery / mean)
    wall = expected_wall(work, regime)
    spent = regime.checkpoint + failures * (regime.detection + recovery)
    return Budget(
        checkpoint=regime.checkpoint / wall,
        rework=max(0.0, 1 - (work + spent) / wall),
        detection=failures * regime.detection / wall,
        recovery=failures * recovery / wall,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteJob:
    """A job of a given amount of useful work, on average."""

    wall: float
    """Expected wall time."""
    segment_count: int
    chance_untouched: float
    """Chance that no failure strikes at all."""


def finite_job(total_work: float, *, work: float, regime: Regime) -> FiniteJob:
    """Expected wall time of a job that ends, its last (shorter) segment and final checkpoint included.

    Source: sum of `expected_wall` over the segments.
    Assumes: as for `efficiency`. The mean hides the tail: the Monte Carlo gives p50, p90 and p99.
    """
    full_count = math.floor(total_work / work * (1 + 1e-12))
    rest = max(0.0, total_work - full_count * work)
    if rest < 1e-9 * work:
        rest = 0.0
    count = full_count + (1 if rest else 0)
    if not 0 < count <= SEGMENT_COUNT_MAX:
        raise Refused(
            "a job of this many checkpoints is not planned",
            found=format_number(count),
            needs=f"1 to {SEGMENT_COUNT_MAX:,}",
        )
    wall = full_count * expected_wall(work, regime)
    if rest:
        wall += expected_wall(rest, regime)
    exposed = total_work + count * regime.checkpoint
    return FiniteJob(
        wall=wall,
        segment_count=count,
        chance_untouched=chance_of_no_stop(exposed, mean_to_stop=regime.mean_to_stop),
    )


def plateau(work_best: float, regime: Regime, *, points: float = 0.001) -> tuple[float, float]:
    """The range of τ in which E is within `points` (0.001 is a tenth of a point) of its best.

    Inside it the choice of τ does not matter: take a round number.
    """
    floor = efficiency(work_best, regime) - points
    low = _crossing(lambda x: efficiency(work_best / x, regime), floor)
    high = _crossing(lambda x: efficiency(work_best * x, regime), floor)
    return work_best / low, work_best * high


def _crossing(value_at: object, floor: float) -> float:
    """The factor from 1 upward at which a falling function crosses the floor, by bisection."""
    assert callable(value_at)
    below, above = 1.0, 2.0
    while value_at(above) >= floor and above < 1e9:
        below, above = above, above * 2
    for _ in range(60):
        middle = (below + above) / 2
        below, above = (middle, above) if value_at(middle) >= floor else (below, middle)
    return below
