"""The exact Poisson tail of a count budget: how surprising is this count, if the budget were kept?

With 0 to 5 events a burn rate is noise; the tail probability is exact from the first event on.

Source: the Poisson distribution; P(N >= n | mu) is the regularised lower incomplete gamma function P(n, mu)
(Abramowitz and Stegun 1964, 26.4.21).
Assumes: events come independently at one constant rate. Bursts make a kept budget look broken, so the
assumption is printed under the number.
"""

from __future__ import annotations

from typing import NamedTuple

from lastgood.base.figures import Figure, assumed, combine, measured
from lastgood.base.poisson import poisson_tail
from lastgood.contract.budgets import CountBudget

POISSON_ASSUMPTION = "events come independently at one constant rate (Poisson)"
_ALARM_COUNT_MAX = 10_000_000_000


class BudgetUse(NamedTuple):
    """What a count says about its budget."""

    expected: Figure
    """Events that the budget allows for the exposure that was there."""
    tail: Figure
    """P(N >= n) if the budget were kept; not observed without a count or without exposure."""
    is_within: bool | None
    """False when the tail lies below alpha; None (could not tell) when nothing was observed."""


def budget_use(
    budget: CountBudget,
    *,
    count: int | None,
    exposure_us: int | None,
    source: str,
    devices: int = 1,
) -> BudgetUse:
    """Set a count against its budget.

    Args: `exposure_us` in the unit of the budget: wall time of the window, run time, or device time (all in
    microseconds); `devices` is the number that the contract declares, for device time only. None means that
    nothing was observed, which is not zero.
    """
    at_risk = exposure_us if exposure_us is not None and exposure_us > 0 else None
    exposure = measured(f"{budget.name} exposure", at_risk, "us", source=source)
    allowed = assumed(f"{budget.name} budget", budget.count_max, "events", source="contract")
    share = budget.per_us * (devices if budget.exposure == "device_hours" else 1)
    expected = combine(
        [allowed, exposure],
        lambda count_max, exposed_us: count_max * exposed_us / share,
        name=f"{budget.name} expected under the budget",
        unit="events",
        source="max x exposure / per",
    )
    tail = combine(
        [measured(f"{budget.name} count", count, "events", source=source), expected],
        poisson_tail,
        name=f"{budget.name} tail probability",
        unit="",
        source="P(N >= n), exact Poisson",
        assumptions=(POISSON_ASSUMPTION,),
        n=count,
    )
    return BudgetUse(expected, tail, None if tail.value is None else tail.value >= budget.alpha)


def alarm_count(count_max: int, alpha: float) -> int:
    """The smallest count whose tail probability lies below alpha when `count_max` events are expected."""
    low, high = 0, 1
    while poisson_tail(high, count_max) >= alpha:
        low, high = high, high * 2
        assert high < _ALARM_COUNT_MAX, "the tail falls for every mean that a contract allows"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if poisson_tail(middle, count_max) >= alpha else (low, middle)
    return high
