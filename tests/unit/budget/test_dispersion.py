"""Spread and memory of binned counts."""

import numpy as np
import pytest
from scipy.stats import chi2

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.dispersion import (
    bins_for,
    check_times,
    count_in_bins,
    dispersion,
    lag1_of,
    lag1_z_of,
    of_counts,
    whole_bins,
)


def random(*names):
    return numpy_stream(3, "dispersion", *names)


def test_an_event_a_rounding_behind_the_end_is_at_the_end():
    """Hours that are sums of other hours differ in the last bits: 0.1 + 0.2 is more than 0.3."""
    behind = 0.1 + 0.2
    assert behind > 0.3
    assert check_times(np.array([0.05, behind]), 0.3).tolist() == [0.05, 0.3]
    for window_h in (1e-3, 87.6, 8760.0, 1e6):
        late = window_h + 4 * np.spacing(window_h)
        assert check_times(np.array([late]), window_h).tolist() == [window_h]
        with pytest.raises(BadInput, match="outside the window"):
            check_times(np.array([late + np.spacing(window_h)]), window_h)


def test_a_rounding_is_forgiven_at_the_end_alone():
    with pytest.raises(BadInput, match="outside the window"):
        check_times(np.array([-1e-18, 1.0]), 2.0)
    with pytest.raises(BadInput, match="outside the window"):
        check_times(np.array([1.0, np.nan]), 2.0)
    early = np.nextafter(2.0, 0.0)
    assert check_times(np.array([early]), 2.0).tolist() == [early]


def test_the_index_is_variance_over_mean_and_its_p_the_tail_of_chi_square():
    counts = np.array([3, 5, 2, 8, 4, 6, 1, 7])
    found = of_counts(counts, bin_h=24.0)
    assert found.index == pytest.approx(6.0 / 4.5)
    assert found.spread.p == pytest.approx(chi2.sf(7 * 6.0 / 4.5, 7))


def test_the_standardised_correlation_has_mean_zero_and_variance_one_for_independent_counts():
    """Moran's moments, on 4,000 series of 25 Poisson counts: standard error of the mean 0.016."""
    series = random("moran").poisson(14.0, (4000, 25))
    z = np.array([lag1_z_of(lag1_of(s), 25) for s in series])
    assert z.mean() == pytest.approx(0.0, abs=0.05)
    assert z.std() == pytest.approx(1.0, abs=0.05)


def test_events_on_the_edges_are_counted_once():
    assert count_in_bins(np.array([0.0, 5.0, 10.0]), 10.0, 2).tolist() == [1, 2]
    assert whole_bins(np.array([0.0, 3.0, 6.0, 9.5]), 10.0, 3.0).tolist() == [1, 1, 1]


def test_whole_weeks_leave_out_the_rest_of_the_window():
    times = np.array([1.0, 169.0, 400.0])
    assert dispersion(np.append(times, [505.0]), 510.0, bin_h=168.0).counts.tolist() == [1, 1, 1]


def test_independent_events_pass_and_bursts_do_not():
    quiet = dispersion(np.sort(random("quiet").uniform(0, 1000, 300)), 1000.0)
    loud = dispersion(np.sort(np.repeat(random("loud").uniform(0, 1000, 60), 5)), 1000.0)
    assert quiet.is_poisson_like is True
    assert loud.is_poisson_like is False
    assert "bursts" in loud.spread.sentence


def test_a_slow_change_has_memory():
    found = dispersion(np.linspace(0, 31.6, 1000) ** 2, 1000.0)
    assert found.memory.is_rejected
    assert "Bad bins follow bad bins" in found.memory.sentence


def test_below_ten_events_nothing_is_tested():
    found = dispersion(np.arange(9.0), 100.0)
    assert (found.spread.is_rejected, found.spread.p, found.is_poisson_like) == (None, None, None)
    assert "Too few" in found.spread.sentence


def test_bins_hold_about_two_events():
    assert [bins_for(n) for n in (10, 30, 50, 10_000_000)] == [5, 15, 25, 25]


@pytest.mark.parametrize("n", [12, 20, 40])
def test_with_two_events_in_a_bin_independent_ones_are_rejected_in_at_most_five_of_a_hundred(n):
    """4,000 records of n events; counts of a dozen events take few values, so a share may be somewhat smaller."""
    records = np.sort(random("size", n).uniform(0, 100, (4000, n)))
    alarms = np.mean([dispersion(times, 100.0).spread.is_rejected for times in records])
    assert 0.03 < alarms < 0.0625


@pytest.mark.parametrize("times", [[-1.0], [11.0], [float("nan")]])
def test_an_event_outside_the_window_is_refused(times):
    with pytest.raises(BadInput, match="outside the window"):
        dispersion(np.array(times), 10.0)


def test_a_window_needs_a_length():
    with pytest.raises(BadInput, match="needs a length"):
        dispersion(np.array([]), 0.0)
