"""Intervals of a rate: against other implementations, at their limits, and the choice among them."""

import numpy as np
import pytest
from scipy.special import gammaincinv, ndtri, stdtrit
from statsmodels.stats.rates import confint_poisson

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.block_bootstrap import stationary_block_bootstrap
from lastgood.budget.intervals import (
    by_node,
    garwood,
    headline,
    scaled_garwood,
)
from lastgood.budget.rate_interval import IntervalMethod
from lastgood.budget.spread import measure_spread


def random(*names):
    return numpy_stream(3, "intervals", *names)


def uniform_times(n=200, window_h=1000.0):
    return np.sort(random("uniform", n).uniform(0, window_h, n))


def burst_times(bursts=40, size=5, window_h=1000.0):
    return np.sort(np.repeat(random("bursts").uniform(0, window_h, bursts), size))


@pytest.mark.parametrize(
    ("count", "exposure"), [(1, 10.0), (6, 1296.0), (419, 1296.0), (100_000, 7.0)]
)
def test_garwood_is_the_exact_interval_of_statsmodels(count, exposure):
    lo, hi = confint_poisson(count, exposure, method="exact-c")
    found = garwood(count, exposure)
    assert (found.lo, found.hi) == pytest.approx((lo, hi), rel=1e-9)


def test_without_events_the_upper_end_holds_all_of_the_error():
    """P(no event) = exp(-rate x exposure) = 0.05."""
    found = garwood(0, 100.0)
    assert found.hi == pytest.approx(-np.log(0.05) / 100)
    assert (found.lo, found.mean, found.mean_hi, found.is_one_sided) == (0.0, None, None, True)


def test_means_are_the_inverse_of_rates_with_the_ends_swapped():
    found = garwood(10, 500.0)
    assert found.mean == 50.0
    assert found.mean_lo == 1 / found.hi
    assert found.mean_hi == 1 / found.lo


def test_with_dispersion_one_and_many_degrees_the_scaled_interval_is_garwood():
    found, exact = scaled_garwood(40, 10.0, index=1.0, degrees=1e9), garwood(40, 10.0)
    assert (found.lo, found.hi) == pytest.approx((exact.lo, exact.hi), rel=1e-6)


def test_a_scaled_interval_is_garwood_for_the_events_that_the_count_is_worth():
    ratio = stdtrit(24, 0.025) / ndtri(0.025)
    worth = 350 / (4.0 * ratio**2)
    found = scaled_garwood(350, 350.0, index=4.0, degrees=24)
    assert found.lo == pytest.approx(gammaincinv(worth, 0.025) / worth)
    assert found.hi == pytest.approx(gammaincinv(worth + 1, 0.975) / worth)


def test_a_dispersion_below_one_never_narrows():
    assert scaled_garwood(50, 1.0, index=0.2, degrees=24) == scaled_garwood(
        50, 1.0, index=1.0, degrees=24
    )


def test_the_scale_of_time_changes_nothing_but_the_unit():
    times = burst_times()
    quasi = IntervalMethod.QUASI_POISSON
    hours = headline(times, 1000.0, method=quasi).interval
    days = headline(times / 24, 1000.0 / 24, method=quasi).interval
    assert hours.method is quasi
    assert (days.lo, days.hi) == pytest.approx((24 * hours.lo, 24 * hours.hi))


def test_pairs_double_the_variance():
    """Every event twice: the index of the counts doubles exactly."""
    times = uniform_times()
    single, double = measure_spread(times, 1000.0), measure_spread(np.repeat(times, 2), 1000.0)
    assert double.index == pytest.approx(2 * single.index)


def test_bins_are_merged_while_neighbours_move_together():
    """A rate that is high in the first half and zero in the second: every pair of neighbours agrees."""
    times = np.linspace(0, 500.0, 250, endpoint=False)
    spread = measure_spread(times, 1000.0)
    assert (spread.is_merged, spread.bins, spread.is_poisson_like) == (True, 6, False)


class TestTheStationaryBlockBootstrap:
    def test_the_same_seed_gives_the_same_interval(self):
        times = burst_times()
        assert stationary_block_bootstrap(times, 1000.0, seed=4) == stationary_block_bootstrap(
            times, 1000.0, seed=4
        )
        assert stationary_block_bootstrap(times, 1000.0, seed=4) != stationary_block_bootstrap(
            times, 1000.0, seed=5
        )

    def test_on_independent_events_it_agrees_with_the_exact_interval(self):
        """Within a fifth of the half-width: it knows only this record."""
        times = uniform_times(2000)
        found, exact = stationary_block_bootstrap(times, 1000.0), garwood(2000, 1000.0)
        assert (found.hi - found.lo) == pytest.approx(exact.hi - exact.lo, rel=0.2)

    def test_on_bursts_it_is_wider_by_the_root_of_their_size(self):
        times = burst_times(bursts=200, size=5)
        found, exact = stationary_block_bootstrap(times, 1000.0), garwood(1000, 1000.0)
        assert (found.hi - found.lo) / (exact.hi - exact.lo) == pytest.approx(5**0.5, rel=0.25)

    def test_blocks_keep_bursts_whole_that_last_over_several_bins(self):
        """Bursts of 20 over 15 h, three bins of 5 h: the variance is 20 times that of single events."""
        at = random("long bursts").uniform(0, 985.0, 150)
        times = np.sort(np.repeat(at, 20) + np.tile(np.linspace(0, 15.0, 20), 150))
        found, exact = stationary_block_bootstrap(times, 1000.0), garwood(3000, 1000.0)
        assert (found.hi - found.lo) / (exact.hi - exact.lo) == pytest.approx(20**0.5, rel=0.25)

    def test_its_cost_does_not_grow_with_the_events(self):
        found = stationary_block_bootstrap(np.linspace(0, 1000.0, 300_000), 1000.0)
        assert "200 bins" in found.words


class TestTheIntervalBetweenNodes:
    def test_equal_nodes_give_about_the_exact_width(self):
        counts = random("equal").poisson(3.0, 400)
        found, exact = by_node(counts, 100.0), garwood(int(counts.sum()), 100.0)
        assert found.hi - found.lo == pytest.approx(exact.hi - exact.lo, rel=0.1)

    def test_its_relative_variance_is_that_of_the_mean_count(self):
        """Large counts, so that the gamma limits are near the normal ones: mean +- 1.96 s / sqrt(nodes)."""
        counts = random("lemons").negative_binomial(20, 0.02, 400)
        found = by_node(counts, float(len(counts)))
        reach = 1.966 * counts.std(ddof=1) / 20
        assert (found.lo, found.hi) == pytest.approx(
            (counts.mean() - reach, counts.mean() + reach), rel=0.01
        )

    def test_what_all_nodes_do_at_once_is_added(self):
        """Equal nodes that fail together: only time shows it."""
        at = np.sort(random("together").uniform(0, 1000.0, 30))
        times, node = np.repeat(at, 20), np.tile(np.arange(20), 30)
        found = headline(times, 1000.0, node=node, nodes=20, method=IntervalMethod.BY_NODE).interval
        assert found.dispersion > 10


class TestTheHeadline:
    def test_regular_events_get_the_exact_interval(self):
        found = headline(np.linspace(1, 999, 200), 1000.0)
        assert found.interval.method is IntervalMethod.EXACT
        assert "chosen by test" in found.choice
        assert not found.is_fixed

    def test_bursts_get_the_dispersed_one_with_the_exact_one_beside_it(self):
        found = headline(burst_times(), 1000.0)
        assert found.interval.method is IntervalMethod.QUASI_POISSON
        assert found.all[0].method is IntervalMethod.EXACT
        assert found.interval.hi - found.interval.lo > 1.5 * (found.all[0].hi - found.all[0].lo)
        assert "too narrow" in found.choice

    def test_unequal_nodes_get_the_one_between_nodes(self):
        times = uniform_times()
        node = np.where(np.arange(200) < 100, 0, np.arange(200) % 50)
        found = headline(times, 1000.0, node=node, nodes=50)
        assert found.interval.method is IntervalMethod.BY_NODE

    @pytest.mark.parametrize("method", ["exact", "quasi-poisson", "block-bootstrap"])
    def test_a_method_fixed_in_advance_is_taken_and_said(self, method):
        found = headline(burst_times(), 1000.0, method=IntervalMethod(method))
        assert (found.interval.method, found.is_fixed) == (method, True)
        assert "fixed in advance" in found.choice

    def test_below_ten_events_nothing_is_tested(self):
        found = headline(np.full(9, 5.0), 1000.0)
        assert found.interval == garwood(9, 1000.0)
        assert "too few to test" in found.choice

    def test_exposure_scales_the_rate_and_not_the_choice(self):
        plain, scaled = (
            headline(burst_times(), 1000.0),
            headline(burst_times(), 1000.0, exposure=64_000.0),
        )
        assert scaled.interval.method == plain.interval.method
        assert scaled.interval.lo == pytest.approx(plain.interval.lo / 64)

    def test_the_order_of_the_events_does_not_matter(self):
        times, node = burst_times(), np.repeat(np.arange(40), 5)
        order = random("order").permutation(200)
        assert headline(times[order], 1000.0, node=node[order], nodes=60) == headline(
            times, 1000.0, node=node, nodes=60
        )

    def test_between_nodes_without_nodes_is_refused_with_the_reason(self):
        with pytest.raises(BadInput, match="needs the node of every event"):
            headline(uniform_times(), 1000.0, method=IntervalMethod.BY_NODE)


@pytest.mark.parametrize(
    ("count", "exposure", "level"), [(-1, 1.0, 0.95), (1, 0.0, 0.95), (1, 1.0, 1.0)]
)
def test_impossible_input_is_refused(count, exposure, level):
    with pytest.raises(BadInput):
        garwood(count, exposure, level=level)


class TestTheWordsOfAnIntervalBetweenNodes:
    """They say what the number is: a difference of nodes is not one of times."""

    def test_nodes_that_differ_and_nothing_else(self):
        random = numpy_stream(3, "words", "nodes")
        node = np.repeat(np.arange(20), random.poisson(random.gamma(0.5, 20, 20)))
        found = headline(random.uniform(0, 1000, len(node)), 1000.0, node=node, nodes=20)
        index = np.bincount(node, minlength=20).var(ddof=1) / (len(node) / 20)
        assert found.interval.words == f"between nodes, dispersion {index:.1f} over 20 nodes"
        assert found.choice.endswith("so the interval is one between nodes")

    def test_nodes_that_differ_and_days_on_which_many_fail(self):
        random = numpy_stream(3, "words", "both")
        days = np.repeat(random.uniform(0, 1000, 10), 20)
        node = np.append(random.integers(0, 400, 200), np.repeat(np.arange(10), 12))
        times = np.append(days, random.uniform(0, 1000, 120))
        found = headline(times, 1000.0, node=node, nodes=400)
        between = np.bincount(node, minlength=400).var(ddof=1) / (len(node) / 400)
        assert found.interval.words.startswith(
            f"between nodes and over time: dispersion {between:.2f} between 400 nodes, "
        )
        assert found.interval.words.endswith(" bins")
        assert "vary over time beyond that" in found.choice
        assert found.interval.dispersion > 2 * between
