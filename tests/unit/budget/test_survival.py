"""Kaplan-Meier percentiles against lifelines."""

import warnings

import numpy as np
import pytest

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.survival import POINTS_MAX, durations

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import KaplanMeierFitter
    from lifelines.utils import qth_survival_time


def sample(n=150):
    random = numpy_stream(3, "survival")
    life, limit = np.round(random.lognormal(1, 1.2, n), 1), np.round(random.exponential(12, n), 1)
    return np.minimum(life, limit), life <= limit


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.75, 0.9])
def test_percentiles_and_bounds_agree_with_lifelines(quantile):
    x, seen = sample()
    found = durations("recovery", x[seen], x[~seen], quantiles=(quantile,)).at(quantile)
    fitter = KaplanMeierFitter().fit(x, seen)
    value = qth_survival_time(1 - quantile, fitter.survival_function_)
    lower, upper = (
        qth_survival_time(1 - quantile, fitter.confidence_interval_[[column]])
        for column in fitter.confidence_interval_
    )
    shown = [np.inf if v is None else v for v in (found.value_h, found.lo_h, found.hi_h)]
    assert shown == pytest.approx([value, lower, upper])


def test_open_incidents_make_it_longer_and_never_shorter():
    closed = np.arange(1.0, 21.0)
    alone, beside = durations("x", closed), durations("x", closed, np.full(20, 15.0))
    # Of 40, 25 last longer than 15; of the 5 still watched, one ends at 16: 25/40 x 4/5 is one half.
    assert (alone.at(0.5).value_h, beside.at(0.5).value_h) == (10.0, 16.0)
    assert "20 still open" in beside.sentence


def test_a_percentile_that_the_record_cannot_reach_is_not_estimable():
    found = durations("x", np.arange(1.0, 11.0), np.full(30, 50.0))
    assert found.at(0.5).value_h is None
    assert "p50 not estimable" in found.sentence


def test_without_censoring_the_median_is_the_middle_one():
    assert durations("x", np.array([5.0, 1.0, 3.0])).at(0.5).value_h == 3.0


def test_a_tenth_is_reached_when_nine_of_ten_are_done():
    """1 - 0.9 is not exactly a tenth in binary."""
    assert durations("x", np.arange(1.0, 11.0)).at(0.9).value_h == 9.0


def test_the_curve_that_is_kept_is_short():
    found = durations("x", np.arange(1.0, 50_001.0))
    assert len(found.steps_h) == len(found.surviving) == POINTS_MAX
    assert found.at(0.5).value_h == 25_000.0


def test_nothing_is_not_observed():
    found = durations("detection", np.array([]))
    assert found.sentence == "detection: not observed."
    assert found.at(0.5).value_h is None


def test_a_negative_duration_is_refused():
    with pytest.raises(BadInput, match="zero or more"):
        durations("x", np.array([-1.0]))
