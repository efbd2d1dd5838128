"""The bounce rate: its definition at every edge."""

import numpy as np
import pytest
from scipy.stats import binomtest

from lastgood.budget.repair import bounces
from lastgood.budget.share import clopper_pearson


def one(begin, end, node, window_h=1000.0, nodes=10, horizon_h=24.0):
    (found,) = bounces(
        np.array(begin, dtype=float),
        np.array(end, dtype=float),
        np.array(node),
        nodes=nodes,
        window_h=window_h,
        horizons_h=(horizon_h,),
    )
    return found


def test_a_fault_of_the_same_node_within_the_horizon_is_a_bounce():
    found = one([10, 30], [20, 40], [1, 1])
    assert (found.repairs, found.bounces, found.share) == (2, 1, 0.5)


def test_a_fault_of_another_node_is_none():
    assert one([10, 30], [20, 40], [1, 2]).bounces == 0


@pytest.mark.parametrize(("again", "expected"), [(20.0, 0), (20.001, 1), (44.0, 1), (44.001, 0)])
def test_strictly_later_and_at_most_one_horizon(again, expected):
    assert one([10, again], [20, 900], [1, 1]).bounces == expected


@pytest.mark.parametrize(("end", "expected"), [(976.0, 1), (976.001, 0)])
def test_a_repair_needs_its_whole_horizon_inside_the_window(end, expected):
    assert one([10], [end], [1]).repairs == expected


def test_an_open_fault_is_no_repair_but_can_be_a_bounce():
    found = one([10, 25], [20, np.nan], [1, 1])
    assert (found.repairs, found.bounces) == (1, 1)


def test_a_fault_of_zero_length_does_not_bounce_on_itself():
    assert one([10], [10], [1]).bounces == 0


def test_two_faults_that_begin_together_are_not_each_others_bounce():
    assert one([10, 10], [10, 50], [1, 1]).bounces == 0


def test_the_baseline_is_what_a_node_of_average_rate_does():
    """50 faults on 10 nodes in 1000 h: 0.005 per hour and node."""
    found = one(np.arange(50) * 2, np.arange(50) * 2 + 0.5, np.zeros(50, dtype=int))
    assert found.baseline == pytest.approx(1 - np.exp(-0.005 * 24))


def test_the_nodes_come_with_the_most_bounces_first():
    found = one([1, 5, 9, 100, 104, 300], [2, 6, 10, 101, 105, 301], [4, 4, 4, 7, 7, 2])
    assert found.nodes.tolist() == [4, 7]
    assert found.bounces_of_node.tolist() == [2, 1]


def test_the_test_is_the_binomial_one_and_the_interval_that_of_clopper_and_pearson():
    begin = np.arange(40) * 20.0
    found = one(begin, begin + 1, np.repeat([0, 1, 2, 3], 10), window_h=1000.0, nodes=400)
    oracle = binomtest(found.bounces, found.repairs, found.baseline, alternative="greater")
    assert found.finding.p == pytest.approx(oracle.pvalue)
    interval = binomtest(found.bounces, found.repairs).proportion_ci()
    assert (found.lo, found.hi) == pytest.approx((interval.low, interval.high))
    assert "did not hold for one day" in found.finding.sentence


@pytest.mark.parametrize(("count", "n"), [(0, 10), (10, 10)])
def test_the_ends_of_a_share_are_closed(count, n):
    lo, hi = clopper_pearson(count, n)
    assert (lo == 0.0) if count == 0 else (hi == 1.0)


def test_a_day_and_a_week_come_from_one_search():
    day, week = bounces(
        np.array([10.0, 100.0]), np.array([20.0, 110.0]), np.array([1, 1]), nodes=5, window_h=1000.0
    )
    assert (day.bounces, week.bounces) == (0, 1)


def test_no_faults_make_no_share():
    found = one([], [], np.array([], dtype=int))
    assert (found.share, found.finding.is_rejected) == (None, None)


def test_a_hundred_thousand_nodes_over_thirty_years_still_fit():
    """2.6e14 microseconds times 1e5 nodes is more than an integer holds: the tick grows to a few of them."""
    window_h = 30 * 8760.0
    found = one(
        [10, 34.5, 250_000],
        [20, 35, 250_001],
        [99_999, 99_999, 3],
        window_h=window_h,
        nodes=100_000,
    )
    assert (found.repairs, found.bounces, found.nodes.tolist()) == (3, 1, [99_999])
