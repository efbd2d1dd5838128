"""Trend tests against SurPyval, their truncation, and the verdict."""

import numpy as np
import pytest
from surpyval.recurrent import laplace as laplace_oracle
from surpyval.recurrent import mil_hdbk_189c as mil_hdbk_oracle

from lastgood.base.rng import numpy_stream
from lastgood.budget.trend import (
    Truncation,
    gap_cv,
    laplace,
    laplace_z,
    lewis_robinson,
    mil_hdbk_189c,
    scaled_laplace,
    spread_around_line,
    trend,
)


def random(*names):
    return numpy_stream(3, "trend", *names)


def power_law_times(shape, n=350, window_h=1000.0):
    return np.sort(window_h * random("power", str(shape)).uniform(size=n) ** (1 / shape))


@pytest.mark.parametrize("shape", [0.6, 1.0, 1.3, 2.5])
def test_laplace_and_mil_hdbk_agree_with_surpyval(shape):
    times = power_law_times(shape, n=80)
    ours, theirs = laplace(times, 1000.0), laplace_oracle(times, T=1000.0)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.p_value))
    ours, theirs = mil_hdbk_189c(times, 1000.0), mil_hdbk_oracle(times, T=1000.0)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.p_value))


def test_failure_truncation_takes_the_last_event_as_the_end_and_not_as_an_event():
    times = power_law_times(1.0, n=41)
    found = laplace(times, 1000.0, truncation=Truncation.FAILURE)
    assert found.n == 40
    assert found.statistic == pytest.approx(laplace_z(times[:-1], times[-1]))
    oracle = laplace_oracle(times)
    assert found.statistic == pytest.approx(oracle.statistic)
    assert mil_hdbk_189c(times, 1000.0, truncation=Truncation.FAILURE).p == pytest.approx(
        mil_hdbk_oracle(times).p_value
    )


def test_truncation_is_said():
    assert (
        "failure-truncated" in laplace(np.arange(20.0), 30.0, truncation=Truncation.FAILURE).assumes
    )
    assert "time-truncated at 30" in laplace(np.arange(20.0), 30.0).assumes


def test_lewis_robinson_is_laplace_over_the_variation_of_the_gaps():
    times = power_law_times(1.3)
    gaps = np.diff(np.concatenate(([0.0], times)))
    cv = gaps.std(ddof=1) / gaps.mean()
    assert gap_cv(times) == pytest.approx(cv)
    assert lewis_robinson(times, 1000.0).statistic == pytest.approx(laplace_z(times, 1000.0) / cv)


def test_the_scaled_test_never_divides_by_less_than_one():
    times = np.linspace(1, 999, 300)
    assert scaled_laplace(times, 1000.0).statistic == pytest.approx(laplace_z(times, 1000.0))


def test_counts_on_a_straight_line_have_no_spread_around_it():
    assert spread_around_line(np.arange(10, 35)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("shape", "direction"), [(1.6, 1), (0.6, -1)])
def test_a_trend_is_named_with_its_direction(shape, direction):
    found = trend(power_law_times(shape), 1000.0)
    assert found.direction == direction
    assert ("rising" if direction > 0 else "falling") in found.headline.sentence


def test_independent_events_at_a_constant_rate_show_no_trend():
    found = trend(power_law_times(1.0), 1000.0)
    assert (found.direction, found.headline.test) == (0, "Laplace")


def test_a_late_burst_is_not_called_a_trend_and_the_verdict_says_why():
    """Thirty bursts of eight events, a little more of them late: Laplace rejects, the bursts explain it."""
    at = np.concatenate((np.linspace(20, 480, 10), np.linspace(520, 980, 17)))
    times = np.sort(np.repeat(at, 8) + np.tile(np.arange(8) * 0.01, 27))
    found = trend(times, 1000.0)
    assert found.laplace.is_rejected
    assert found.direction == 0
    assert "bursts as large as these do that by chance" in found.headline.sentence


def test_mil_hdbk_sees_the_bathtub_that_laplace_is_blind_to():
    half = 250.0 * np.linspace(0.001, 1, 150) ** 3
    times = np.sort(np.concatenate((half, 1000.0 - half)))
    found = trend(times, 1000.0)
    assert not found.laplace.is_rejected
    assert found.mil_hdbk.is_rejected
    assert "cannot say whether bursts or a trend" in found.mil_hdbk.sentence


def test_below_ten_events_there_is_no_verdict():
    found = trend(np.arange(9.0), 100.0)
    assert (found.direction, found.headline.is_rejected) == (0, None)
    assert all(f.p is None for f in found.findings)


def test_an_event_at_the_very_start_does_not_break_the_logarithm():
    assert 0 < (mil_hdbk_189c(np.arange(20.0), 20.0).p or 0) <= 1
