"""The Weibull fit with censoring against lifelines."""

import warnings

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.budget.renewal import CELLS, fit_weibull, gap_shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import WeibullFitter


def sample(shape=0.7, n=300):
    random = numpy_stream(3, "weibull")
    life, limit = 10 * random.weibull(shape, n), random.exponential(20, n)
    return np.minimum(life, limit), life <= limit


def test_shape_scale_error_and_likelihood_agree_with_lifelines():
    x, seen = sample()
    ours, theirs = fit_weibull(x[seen], x[~seen]), WeibullFitter().fit(x, seen)
    assert ours.shape == pytest.approx(theirs.rho_, rel=1e-4)
    assert ours.scale == pytest.approx(theirs.lambda_, rel=1e-4)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood_, rel=1e-6)
    se = theirs.summary.loc["rho_", "se(coef)"] / theirs.rho_
    assert ours.log_shape_se == pytest.approx(se, rel=2e-3)


def test_the_exponential_likelihood_is_that_of_the_mean():
    x, seen = sample()
    rate = seen.sum() / x.sum()
    assert fit_weibull(x[seen], x[~seen]).log_likelihood_exponential == pytest.approx(
        seen.sum() * np.log(rate) - rate * x.sum()
    )


def test_very_many_gaps_are_collected_in_cells_without_moving_the_fit():
    x = 10 * numpy_stream(3, "many").weibull(0.62, 40 * CELLS)
    one = fit_weibull(x)
    few = fit_weibull(x[: 4 * CELLS])
    theirs = WeibullFitter().fit(x)
    assert one.shape == pytest.approx(theirs.rho_, rel=1e-4)
    assert few.shape == pytest.approx(one.shape, rel=0.02)


def test_the_last_gap_counts_as_censored():
    times = np.cumsum(10 * numpy_stream(3, "gaps").weibull(0.7, 60))
    window = float(times[-1]) + 500.0
    found = gap_shape(times, window)
    assert found.censored_h == pytest.approx(500.0)
    assert found.shape == pytest.approx(fit_weibull(np.diff(times), np.array([500.0])).shape)
    assert found.shape != pytest.approx(fit_weibull(np.diff(times)).shape, rel=1e-3)


def test_gaps_of_zero_length_are_counted_apart():
    times = np.repeat(np.cumsum(numpy_stream(3, "zero").exponential(5, 30)), 2)
    found = gap_shape(times, float(times[-1]) + 1)
    assert (found.gaps, found.zero_gaps) == (29, 30)
    assert "30 gaps of zero length are left out" in found.finding.sentence


@pytest.mark.parametrize(
    ("shape", "words"), [(0.5, "Failures follow soon"), (3.0, "Failures keep a distance")]
)
def test_the_verdict_says_what_the_shape_means(shape, words):
    times = np.cumsum(numpy_stream(3, "words").weibull(shape, 200))
    assert words in gap_shape(times, float(times[-1])).finding.sentence


def test_equal_gaps_have_no_shape():
    found = gap_shape(np.arange(1.0, 30.0), 30.0)
    assert found.shape is None
    assert found.cv == pytest.approx(0.0, abs=1e-12)


def test_an_empty_record_has_no_shape():
    assert gap_shape(np.array([]), 10.0).shape is None
