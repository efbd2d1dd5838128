"""Two groups side by side: the ratio of rates and the difference of medians."""

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.compare import compare, rate_ratio
from lastgood.budget.intervals import garwood, scaled_garwood
from lastgood.budget.operational import constant
from lastgood.budget.rates import study
from lastgood.budget.sample import Sample


def random(*names):
    return numpy_stream(3, "compare", *names)


def group(name, n, *, window_h=1000.0, devices=100, burst=1, recovery=None, still=()):
    starts = np.sort(np.repeat(random(name).uniform(0, window_h, n // burst), burst))
    closed = {} if recovery is None else {"recovery": np.asarray(recovery, dtype=float)}
    sample = Sample(
        name=name,
        begin_h=starts,
        window_h=window_h,
        closed_h=closed,
        open_h={"recovery": np.array(still)} if closed else {},
    )
    return study(sample, exposure=constant(devices, window_h=window_h) if devices else None)


class TestTheRatio:
    def test_of_independent_events_is_the_exact_conditional_one(self):
        """Given 60 events, those of B are binomial; the ratio follows from their share."""
        found = rate_ratio(garwood(20, 1000.0), garwood(40, 500.0))
        share = binomtest(40, 60, 1 / 3)
        ends = share.proportion_ci()
        odds = [p / (1 - p) * 1000 / 500 for p in (ends.low, ends.high)]
        assert (found.lo, found.hi) == pytest.approx(tuple(odds))
        assert found.ratio == pytest.approx(4.0)
        assert found.finding.is_rejected

    def test_with_dispersion_is_wider_by_its_root(self):
        plain = [scaled_garwood(n, 100.0, index=1.0001, degrees=1e6) for n in (200, 240)]
        bursty = [scaled_garwood(n, 100.0, index=4.0004, degrees=1e6) for n in (200, 240)]
        narrow, wide = rate_ratio(*plain), rate_ratio(*bursty)
        assert np.log(wide.hi / wide.lo) == pytest.approx(
            2 * np.log(narrow.hi / narrow.lo), rel=1e-3
        )

    def test_a_difference_that_bursts_explain_is_not_called_one(self):
        """80 against 120 events: clear for independent ones, nothing for bursts of ten."""
        single = compare(group("a", 80), group("b", 120))
        bursts = compare(group("c", 80, burst=10), group("d", 120, burst=10))
        assert single.rate.finding.is_rejected
        assert not bursts.rate.finding.is_rejected
        assert "No difference shown" in bursts.sentences[0]

    def test_without_an_event_in_a_there_is_only_a_lower_bound(self):
        found = rate_ratio(garwood(0, 100.0), garwood(12, 100.0))
        assert (found.ratio, found.hi) == (None, None)
        assert found.lo > 1

    def test_without_an_event_in_b_the_ratio_is_zero_with_an_upper_bound(self):
        found = rate_ratio(garwood(12, 100.0), garwood(0, 100.0))
        assert (found.ratio, found.lo) == (0.0, 0.0)
        assert found.hi < 1

    def test_a_side_of_few_events_is_given_the_dispersion_of_the_other(self):
        """3 against 30 with a dispersion of 4 are worth 0.75 against 7.5: the binomial of these, through its Beta law."""
        found = rate_ratio(garwood(3, 100.0), scaled_garwood(30, 100.0, index=4.0, degrees=1e9))
        assert found.finding.p == pytest.approx(2 * beta.cdf(0.5, 7.5, 1.75), rel=1e-6)
        assert "dispersion 4" in found.method
        assert "fewer than ten" in found.finding.sentence

    def test_where_both_have_few_events_nothing_is_tested(self):
        """Nine against none is p = 0.004 for independent events, and two bursts for others."""
        found = rate_ratio(garwood(9, 100.0), garwood(0, 100.0)).finding
        assert (found.p, found.is_rejected) == (None, None)
        assert found.sentence.startswith("Too few to test: 9 and 0 events")

    @pytest.mark.parametrize("burst", [1, 5])
    def test_one_rate_with_few_events_on_a_side_is_seldom_called_two(self, burst):
        """Forty events against eight in bursts of one size: at most six of a hundred pairs are called different."""
        pairs = [
            (group(f"many {i}", 40, burst=burst), group(f"few {i}", 5, devices=12.5, burst=burst))
            for i in range(150)
        ]
        found = [compare(a, b).rate.finding for a, b in pairs]
        assert sum(bool(f.is_rejected) for f in found) <= 9

    def test_of_nothing_is_refused(self):
        with pytest.raises(BadInput, match="have no ratio"):
            rate_ratio(garwood(0, 1.0), garwood(0, 1.0))

    def test_needs_both_exposures(self):
        found = compare(group("a", 50), group("b", 50, devices=None))
        assert found.rate is None
        assert "cannot be compared" in found.sentences[0]

    def test_under_one_rate_it_rejects_in_five_of_a_hundred(self):
        counts = random("null").poisson([[60.0, 120.0]] * 4000)
        p = [rate_ratio(garwood(a, 1.0), garwood(b, 2.0)).finding.p for a, b in counts]
        assert np.mean(np.array(p) < 0.05) == pytest.approx(0.045, abs=0.0125)


class TestTheDifferenceOfMedians:
    def test_of_one_law_holds_zero_and_of_a_shift_does_not(self):
        base, other = random("x").exponential(4, 200), random("y").exponential(4, 200)
        same = compare(group("a", 200, recovery=base), group("b", 200, recovery=other)).durations[0]
        later = compare(
            group("a", 200, recovery=base), group("b", 200, recovery=other + 5)
        ).durations[0]
        assert same.lo_h < 0 < same.hi_h
        assert later.lo_h > 0
        assert "takes longer" in later.sentence
        assert "no difference shown" in same.sentence

    def test_its_interval_is_that_of_resampling(self):
        """1,000 plain resamples of both groups; widths agree within 15 %."""
        a, b = random("x").exponential(4, 101), random("y").exponential(6, 151)
        found = compare(group("a", 100, recovery=a), group("b", 100, recovery=b)).durations[0]
        draw = random("resample")
        differences = [
            np.median(draw.choice(b, 151)) - np.median(draw.choice(a, 101)) for _ in range(1000)
        ]
        lo, hi = np.quantile(differences, [0.025, 0.975])
        assert found.hi_h - found.lo_h == pytest.approx(hi - lo, rel=0.15)
        assert found.difference_h == pytest.approx(np.median(b) - np.median(a))

    def test_open_incidents_leave_a_side_without_a_bound(self):
        a = np.arange(1.0, 31.0)
        found = compare(
            group("a", 30, recovery=a), group("b", 30, recovery=a, still=np.full(26, 40.0))
        ).durations[0]
        assert found.hi_h is None
        assert found.lo_h is not None

    def test_few_have_medians_and_no_interval(self):
        found = compare(
            group("a", 30, recovery=[1, 2, 3]), group("b", 30, recovery=[2, 3, 4])
        ).durations[0]
        assert (found.difference_h, found.lo_h, found.hi_h) == (1.0, None, None)
        assert "too few" in found.sentence
