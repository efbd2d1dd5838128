"""The tail of a count budget is exact, and says nothing where nothing was observed."""

import math

import pytest

from lastgood.base.figures import FigureKind, render
from lastgood.base.poisson import poisson_tail
from lastgood.contract.budgets import Burn, CountBudget
from lastgood.contract.tail import POISSON_ASSUMPTION, alarm_count, budget_use

DAY_US = 86_400_000_000


def budget(**changes):
    values = {"name": "stops", "kind": "count", "counts": ("fail_stop",), "max": 3, "per": "28d",
              "exposure": "run_hours", "alpha": 0.05}  # fmt: skip
    return CountBudget.model_validate(values | changes, strict=False)


def tail_by_sum(count: int, mean: float) -> float:
    """Oracle: one minus the sum of the probabilities below `count`, term by term."""
    return 1.0 - math.fsum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(count))


@pytest.mark.parametrize(
    ("count_max", "alpha"), [(0, 0.05), (1, 0.05), (3, 0.05), (10, 0.05), (10, 0.001), (419, 0.01)]
)
def test_the_alarm_count_is_the_first_below_alpha(count_max, alpha):
    alarm = alarm_count(count_max, alpha)
    assert poisson_tail(alarm, count_max) < alpha <= poisson_tail(alarm - 1, count_max)


def test_half_the_time_has_half_the_budget():
    use = budget_use(budget(), count=6, exposure_us=14 * DAY_US, source="ledger")
    assert use.expected.value == 1.5
    assert use.tail.value == pytest.approx(tail_by_sum(6, 1.5), rel=1e-9)
    assert use.is_within is False


def test_device_time_is_set_against_all_declared_devices():
    use = budget_use(
        budget(exposure="device_hours"),
        count=1,
        exposure_us=28 * DAY_US * 4,
        devices=8,
        source="ledger",
    )
    assert use.expected.value == 1.5
    assert use.is_within is True


@pytest.mark.parametrize(("count", "exposure_us"), [(None, DAY_US), (0, None), (0, 0)])
def test_nothing_observed_is_neither_within_nor_broken(count, exposure_us):
    use = budget_use(budget(), count=count, exposure_us=exposure_us, source="ledger")
    assert use.is_within is None
    assert use.tail.value is None


def test_the_figure_prints_its_assumption_and_no_stronger_kind_than_the_budget_that_was_typed():
    tail = budget_use(budget(), count=2, exposure_us=DAY_US, source="ledger").tail
    assert FigureKind.ASSUMED is tail.kind
    assert {FigureKind.MEASURED, FigureKind.MODELLED, FigureKind.ASSUMED} == set(tail.kinds)
    assert POISSON_ASSUMPTION in render(tail)


def test_a_burn_rule_of_the_workbook_has_its_published_rate():
    """2 % of a 30-day budget in one hour is a burn rate of 14.4 (SRE workbook, chapter 5)."""
    burn = Burn.model_validate({"consumed": "2%", "within": "1h"})
    assert burn.burn_rate(30 * DAY_US) == pytest.approx(14.4, rel=1e-12)
