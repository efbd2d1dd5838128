"""The ratio of two samples by ranks, against oracles: scipy's exact test, brute force, the binomial of a sign test."""

import itertools
import math

import pytest
from scipy.stats import binom, mannwhitneyu

from lastgood.base.errors import Refused
from lastgood.base.rng import numpy_stream
from lastgood.budget.rank_shift import (
    EXACT_PAIRS_MAX,
    Stratum,
    log_spread,
    p_of_ratio,
    ratio_shift,
    smallest_n,
    values_needed,
)

SIZES = [(4, 4), (10, 10), (3, 9), (12, 5)]


def samples(m, n, seed=1, factor=1.0):
    random = numpy_stream(seed, "rank shift", str(m), str(n))
    return Stratum((factor * random.lognormal(size=m)).tolist(), random.lognormal(size=n).tolist())


@pytest.mark.parametrize(("m", "n"), SIZES)
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_p_value_is_the_exact_one_of_mann_and_whitney(m, n, factor):
    stratum = samples(m, n, factor=factor)
    wanted = mannwhitneyu(stratum.a, stratum.b, method="exact").pvalue
    assert ratio_shift([stratum]).p == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("m", "n"), SIZES)
def test_the_interval_holds_exactly_the_ratios_that_the_test_does_not_reject(m, n):
    stratum = samples(m, n, factor=2.0)
    shift = ratio_shift([stratum])
    for end, outward in ((shift.lo, 1 - 1e-9), (shift.hi, 1 + 1e-9)):
        assert p_of_ratio([stratum], end * outward) <= 0.05
        assert p_of_ratio([stratum], end / outward) > 0.05


def test_two_strata_are_added_as_all_ways_to_deal_them_would_be():
    """Brute force: every way to deal the values of each stratum to the sides, counted."""
    strata = [Stratum([5.0, 7.0, 9.0], [2.0, 6.0]), Stratum([30.0, 50.0], [10.0, 20.0, 40.0])]

    def won(a, b):
        return sum(x > y for x in a for y in b)

    def deals(stratum):
        values = [*stratum.a, *stratum.b]
        for chosen in itertools.combinations(range(len(values)), len(stratum.a)):
            yield won(
                [values[i] for i in chosen], [v for i, v in enumerate(values) if i not in chosen]
            )

    seen = sum(won(s.a, s.b) for s in strata)
    all_sums = [x + y for x in deals(strata[0]) for y in deals(strata[1])]
    at_least = sum(x >= seen for x in all_sums) / len(all_sums)
    assert ratio_shift(strata).p == pytest.approx(min(1.0, 2 * at_least))


def test_one_value_of_each_kind_on_both_sides_is_a_sign_test():
    strata = [Stratum([3.0 * k], [1.0 * k]) for k in range(1, 9)]
    shift = ratio_shift(strata)
    assert shift.p == pytest.approx(2 * binom.cdf(0, 8, 0.5))
    assert shift.ratio == pytest.approx(3.0)
    assert not ratio_shift(strata[:5]).can_tell
    assert ratio_shift(strata[:6]).can_tell


def test_the_effect_is_the_middle_of_all_ratios():
    stratum = Stratum([2.0, 8.0], [1.0, 4.0])  # ratios 1/2, 2, 2, 8
    assert ratio_shift([stratum]).ratio == pytest.approx(2.0)
    assert math.isinf(ratio_shift([stratum]).hi)
    assert ratio_shift([stratum]).lo == 0.0


def test_ties_speak_against_a_difference():
    alike = Stratum([1.0] * 6, [1.0] * 6)
    assert ratio_shift([alike]).p == 1.0
    half = Stratum([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], [1.0] * 6)
    midranks = mannwhitneyu(half.a, half.b, method="asymptotic").pvalue
    assert ratio_shift([half]).p > midranks


def test_never_stands_behind_every_time_and_beside_never():
    stratum = Stratum([math.inf] * 3 + [5.0] * 7, [1.0] * 9 + [math.inf])
    shift = ratio_shift([stratum])
    assert shift.p < 0.05
    assert shift.lo > 1
    assert ratio_shift([Stratum([math.inf] * 4, [math.inf] * 4)]).p == 1.0


def test_a_kind_that_one_side_lacks_decides_nothing():
    alone = Stratum([1000.0] * 20, [])
    assert ratio_shift([samples(6, 6), alone]) == ratio_shift([samples(6, 6)])


def test_many_pairs_use_the_normal_approximation_and_agree_with_the_exact_answer():
    stratum = samples(150, 150, factor=1.2)
    assert len(stratum.a) * len(stratum.b) > EXACT_PAIRS_MAX
    shift = ratio_shift([stratum])
    wanted = mannwhitneyu(stratum.a, stratum.b, method="exact").pvalue
    assert shift.p == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize(("level", "n"), [(0.95, 4), (0.99, 5), (0.8, 3)])
def test_the_smallest_sample_that_can_show_anything(level, n):
    assert smallest_n(level) == n
    apart = Stratum([10.0 + i for i in range(n)], [1.0 + i / 10 for i in range(n)])
    assert ratio_shift([apart], level=level).can_tell
    fewer = Stratum(apart.a[:-1], apart.b[:-1])
    assert not ratio_shift([fewer], level=level).can_tell


def test_the_size_needed_grows_with_scatter_and_falls_with_the_effect():
    assert values_needed(2.0, log_spread=0.5) == 12
    assert values_needed(2.0, log_spread=1.0) > values_needed(2.0, log_spread=0.5)
    assert values_needed(4.0, log_spread=1.0) < values_needed(2.0, log_spread=1.0)
    assert values_needed(1.0, log_spread=1.0) is None
    assert values_needed(2.0, log_spread=0.0) == smallest_n()


def test_the_scatter_is_that_within_sides_and_kinds():
    same = [Stratum([1.0, math.e**2], [100.0, 100.0]), Stratum([7.0], [9.0, math.inf])]
    assert log_spread(same) == pytest.approx(1.0)
    assert log_spread([Stratum([1.0], [2.0])]) is None


def test_more_pairs_than_memory_should_hold_are_refused():
    with pytest.raises(Refused, match="pairs"):
        ratio_shift([Stratum([1.0] * 6000, [1.0] * 6000)])
