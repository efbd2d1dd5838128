"""How much work to do between two checkpoints: Young, Daly, and the exact optimum.

τ is always *useful work* between completed checkpoints. Young's square root is also read as the whole period
(work plus checkpoint) by many programs; `young_within_period` is that reading, and the two are never mixed here.
The choice hardly matters while C is below a percent of M; it decides when C nears M, where only the exact form is
right.
"""

from __future__ import annotations

import enum
import math

from lastgood.base.errors import Refused
from lastgood.base.units import format_number
from lastgood.budget.closed.regime import Regime


class IntervalRule(enum.StrEnum):
    """The formulas for τ that a plan can use."""

    EXACT = "exact"
    DALY = "daly"
    DALY_FIRST_ORDER = "daly-first-order"
    YOUNG = "young"
    YOUNG_PERIOD = "young-period"


def choose_work(rule: IntervalRule, regime: Regime) -> float:
    """τ by the named rule."""
    return {
        IntervalRule.EXACT: exact_work,
        IntervalRule.DALY: daly,
        IntervalRule.DALY_FIRST_ORDER: daly_first_order,
        IntervalRule.YOUNG: young,
        IntervalRule.YOUNG_PERIOD: young_within_period,
    }[rule](regime)


def young(regime: Regime) -> float:
    """τ = sqrt(2 C M), as work between checkpoints.

    Source: Young 1974, as used in the source chapter.
    Assumes: Poisson interruptions; C far below τ, τ far below M; D and R far below M.
    """
    return math.sqrt(2 * regime.checkpoint * regime.mean_to_stop)


def young_within_period(regime: Regime) -> float:
    """τ when sqrt(2 C M) is read as the whole period: sqrt(2 C M) - C.

    Source: Young 1974 in the wall-period form; the same number as Daly 2006, first order.
    Assumes: as for `young`; refused for C of 2M and more, where it is zero or negative.
    """
    return daly_first_order(regime)


def daly_first_order(regime: Regime) -> float:
    """τ = sqrt(2 C M) - C.

    Source: Daly 2006, first order.
    Assumes: as for `young`, and C below M/2.

    Raises:
        Refused: C is 2M or more, and the formula gives no positive interval.
    """
    work = young(regime) - regime.checkpoint
    if work <= 0:
        ratio = format_number(regime.checkpoint / regime.mean_to_stop)
        raise Refused(
            "the first-order interval sqrt(2CM) - C is not positive here",
            found=f"a checkpoint cost of {ratio} times the mean time to interruption",
            needs="less than 2 times it",
            next="use the exact interval",
        )
    return work


def daly(regime: Regime) -> float:
    """τ = sqrt(2CM) (1 + sqrt(C/2M)/3 + C/18M) - C below C = 2M, and τ = M from there on.

    Source: Daly 2006, higher order.
    Assumes: Poisson interruptions. Within 2 millionths of the optimum at C/M = 0.005, within 2 % at C = M.
    """
    checkpoint, mean = regime.checkpoint, regime.mean_to_stop
    if checkpoint >= 2 * mean:
        return mean
    x = checkpoint / (2 * mean)
    return young(regime) * (1 + math.sqrt(x) / 3 + x / 9) - checkpoint


def exact_work(regime: Regime) -> float:
    """The τ of the largest exact efficiency: M (1 + W0(-exp(-C/M - 1))). It depends on neither D nor R.

    Source: the stationary point (1 - τ/M) exp((τ + C)/M) = 1, solved by the principal branch of Lambert's W.
    Assumes: Poisson interruptions, blocking periodic checkpoints; any C.
    """
    from scipy.special import lambertw

    x = regime.checkpoint / regime.mean_to_stop
    u = 1 + float(lambertw(-math.exp(-x - 1)).real)
    # Near the branch point (small C/M) W loses half of its digits; Newton on log(1-u) + u + x = 0 brings them back.
    if x < 1e-3:
        u = math.sqrt(2 * x) if u <= 0 else u
        for _ in range(4):
            u += (_log_plus(u) + x) * (1 - u) / u
    return regime.mean_to_stop * u


def _log_plus(u: float) -> float:
    """log(1 - u) + u without losing digits for small u."""
    if u > 0.1:
        return math.log1p(-u) + u
    return -math.fsum(u**n / n for n in range(2, 18))
