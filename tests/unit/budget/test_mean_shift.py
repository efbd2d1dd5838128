"""The difference of two means by exchange, against every exchange that there is."""

import itertools
import math

import pytest

from lastgood.budget.mean_shift import DRAWS, difference_of_means, mean_shift
from lastgood.budget.rank_shift import Stratum

A, B = [3.0, 1.0, 4.0, 2.0, 5.0], [0.0, 1.0, 0.0, 2.0]
NOISE = 4 * (0.25 / DRAWS) ** 0.5


def every_deal(stratum):
    values = [*stratum.a, *stratum.b]
    for chosen in itertools.combinations(range(len(values)), len(stratum.a)):
        yield sum(values[i] for i in chosen)


def exact_p(strata):
    seen = sum(sum(s.a) for s in strata)
    sums = [sum(deal) for deal in itertools.product(*map(list, map(every_deal, strata)))]
    at_least = sum(x >= seen for x in sums) / len(sums)
    at_most = sum(x <= seen for x in sums) / len(sums)
    return min(1.0, 2 * min(at_least, at_most))


@pytest.mark.parametrize(
    "strata",
    [
        [Stratum(A, B)],
        [Stratum(B, A)],
        [Stratum(A[:3], B[:2]), Stratum([1.0, 9.0], [0.0, 2.0])],
        [Stratum([0.0, 0.0, 1.0], [0.0, 0.0, 0.0])],
    ],
)
def test_the_p_value_is_that_of_all_exchanges(strata):
    assert mean_shift(strata).p == pytest.approx(exact_p(strata), abs=2 * NOISE)


def test_the_interval_excludes_no_difference_exactly_when_the_test_does():
    for shift_by in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0):
        shift = mean_shift([Stratum([a + shift_by for a in A], B)])
        assert (shift.lo > 0 or shift.hi < 0) == (shift.p <= 0.05)


def test_the_interval_moves_with_the_shift():
    near, far = mean_shift([Stratum(A, B)]), mean_shift([Stratum([a + 10 for a in A], B)])
    assert far.difference == pytest.approx(near.difference + 10)
    assert far.lo == pytest.approx(near.lo + 10)
    assert far.hi == pytest.approx(near.hi + 10)


def test_the_difference_is_that_of_the_means():
    assert mean_shift([Stratum(A, B)]).difference == pytest.approx(3.0 - 0.75)


@pytest.mark.parametrize("empty", [Stratum([], B), Stratum(A, []), Stratum([], [])])
def test_a_stratum_with_nothing_on_one_side_changes_no_difference(empty):
    assert difference_of_means([Stratum(A, B), empty]) == pytest.approx(3.0 - 0.75)
    assert difference_of_means([empty]) == 0.0


def test_nothing_lost_on_both_sides_is_no_difference():
    shift = mean_shift([Stratum([0.0] * 6, [0.0] * 6)])
    assert (shift.p, shift.difference, shift.lo, shift.hi) == (1.0, 0.0, 0.0, 0.0)


def test_too_few_values_have_no_interval():
    shift = mean_shift([Stratum([1.0, 2.0], [0.0])])
    assert not shift.can_tell
    assert math.isinf(shift.lo)
    assert math.isinf(shift.hi)


def test_the_same_seed_gives_the_same_answer():
    assert mean_shift([Stratum(A, B)], seed=5) == mean_shift([Stratum(A, B)], seed=5)
