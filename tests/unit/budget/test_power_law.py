"""The power-law fit against its formula and SurPyval."""

import numpy as np
import pytest
from scipy.stats import chi2
from surpyval import CrowAMSAA

from lastgood.base.rng import numpy_stream
from lastgood.budget.power_law import fit_power_law
from lastgood.budget.trend import Truncation


def times(shape=1.4, n=120):
    return np.sort(500.0 * numpy_stream(3, "power law").uniform(size=n) ** (1 / shape))


def test_the_fit_is_the_maximum_of_the_likelihood_of_surpyval():
    x = times()
    fit = fit_power_law(x, 500.0)
    censored = np.append(np.zeros(len(x)), 1)
    scale, shape = CrowAMSAA.fit(np.append(x, 500.0), c=censored).params
    assert (fit.scale_h, fit.shape) == pytest.approx((scale, shape), rel=1e-4)


def test_the_exact_interval_is_the_chi_square_one():
    fit = fit_power_law(times(), 500.0)
    lo, hi = chi2.ppf([0.025, 0.975], 240) / 240 * fit.shape
    assert (fit.shape_lo, fit.shape_hi) == pytest.approx((lo, hi))


def test_failure_truncation_costs_one_event():
    x = times()
    fit = fit_power_law(x, 500.0, truncation=Truncation.FAILURE)
    assert fit.shape == pytest.approx(120 / np.log(x[-1] / x).sum())
    assert fit.shape_hi / fit.shape == pytest.approx(chi2.ppf(0.975, 238) / 240)


def test_dispersion_widens_and_never_narrows():
    plain, dispersed = fit_power_law(times(), 500.0), fit_power_law(times(), 500.0, dispersion=4.0)
    assert dispersed.shape_lo_dispersed < plain.shape_lo_dispersed <= plain.shape_lo
    assert "shows no clear slope" in fit_power_law(times(), 500.0, dispersion=40.0).sentence
    assert "rises" in plain.sentence


def test_the_rate_at_the_end_times_the_window_is_shape_times_count():
    fit = fit_power_law(times(), 500.0)
    assert fit.rate_at_end * 500.0 == pytest.approx(fit.shape * 120)


def test_there_is_no_fit_below_ten_events():
    assert fit_power_law(np.arange(9.0), 10.0) is None
