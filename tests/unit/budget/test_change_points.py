"""Change points against an exhaustive search, and the price that knows about bursts."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.budget.change_points import _cut, change_points


def times_of(counts, bin_h=168.0):
    return np.concatenate([i * bin_h + np.linspace(1, bin_h - 1, c) for i, c in enumerate(counts)])


def cost(counts):
    total, width = counts.sum(), len(counts)
    return -2 * total * np.log(total / width) if total else 0.0


def exhaustive(counts, price):
    """Every way to cut: the least cost with one price per cut."""
    k, best = len(counts), None
    for cuts in range(k):
        for places in combinations(range(1, k), cuts):
            edges = [0, *places, k]
            parts = list(pairwise(edges))
            value = sum(cost(counts[a:b]) for a, b in parts) + price * cuts
            if best is None or value < best[0] - 1e-9:
                best = (value, parts)
    return best[1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("price", [1.0, 5.0, 20.0])
def test_the_cuts_are_those_of_an_exhaustive_search(seed, price):
    random = numpy_stream(seed, "cuts")
    counts = random.poisson(np.repeat([2.0, 9.0, 4.0], 3))
    assert _cut(counts, price) == exhaustive(counts, price)


def test_a_campaign_of_three_weeks_is_found_with_its_weeks():
    counts = [10] * 12 + [40] * 3 + [10] * 15
    found = change_points(times_of(counts), 30 * 168.0)
    assert [(s.first, s.end) for s in found.segments] == [(0, 12), (12, 15), (15, 30)]
    assert found.changes == 2
    assert "changed twice" in found.sentence
    assert "(week 13 to 15)" in found.sentence


def test_bursts_alone_are_no_change_while_an_unscaled_price_takes_them_for_many():
    random = numpy_stream(3, "bursty weeks")
    counts = random.negative_binomial(1.5, 1.5 / 13.5, 50)
    found = change_points(times_of(counts), 50 * 168.0)
    assert found.changes == 0
    assert found.naive_changes > 5
    assert "No change of the rate shown" in found.sentence


@pytest.mark.parametrize(
    ("window_h", "bin_h"),
    [(8 * 168.0, 168.0), (10 * 24.0, 24.0), (16.0, 2.0), (1300 * 168.0, 504.0)],
)
def test_bins_are_weeks_where_there_are_enough_of_them(window_h, bin_h):
    found = change_points(np.linspace(0, window_h, 100, endpoint=False), window_h)
    assert found.bin_h == bin_h


def test_too_few_events_are_not_cut():
    assert change_points(np.arange(9.0), 100 * 168.0) is None
