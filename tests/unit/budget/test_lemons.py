"""Lemon nodes: the fit against statsmodels, and who is named."""

import warnings

import numpy as np
import pytest
from scipy.special import gammaln

from lastgood.base.rng import numpy_stream
from lastgood.budget.lemons import lemons, persistence
from lastgood.budget.shrinkage import fit_gamma_poisson, probability_above

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import statsmodels.api as sm

WINDOW_H = 1000.0


def random(*names):
    return numpy_stream(3, "lemons", *names)


def test_the_fit_is_the_negative_binomial_one_of_statsmodels():
    exposure = random("exposure").lognormal(0, 1.5, 300)
    rates = random("rates").gamma(0.9, 2 / 0.9, 300)
    counts = random("counts").poisson(rates * exposure)
    ours = fit_gamma_poisson(counts, exposure)
    model = sm.NegativeBinomial(counts, np.ones(300), offset=np.log(exposure))
    theirs = model.fit(disp=0, method="bfgs", maxiter=500, gtol=1e-9)
    assert ours.mean_rate == pytest.approx(np.exp(theirs.params[0]), rel=1e-5)
    assert ours.shape == pytest.approx(1 / theirs.params[1], rel=1e-5)
    plain = (counts.sum() / exposure.sum()) * exposure
    poisson = (counts * np.log(plain) - plain - gammaln(counts + 1)).sum()
    assert ours.likelihood_ratio == pytest.approx(2 * (theirs.llf - poisson), rel=1e-4)


def test_equal_nodes_are_called_equal():
    node = random("equal").integers(0, 200, 600)
    found = lemons(random("t").uniform(0, WINDOW_H, 600), node, nodes=200, window_h=WINDOW_H)
    assert not found.unequal.is_rejected
    assert found.flagged == ()
    assert "what chance gives" in found.sentence


def lasting_lemons():
    """Three nodes of 100 fail ten times as often, all the time."""
    node = np.concatenate((np.repeat([3, 5, 8], 20), random("fleet").integers(0, 100, 200)))
    return random("times").uniform(0, WINDOW_H, len(node)), node


def test_nodes_that_keep_failing_are_named():
    times, node = lasting_lemons()
    found = lemons(times, node, nodes=100, window_h=WINDOW_H)
    assert sorted(n.node for n in found.flagged) == [3, 5, 8]
    assert found.persistence.is_rejected
    assert "3 nodes keep failing" in found.sentence


def test_nodes_with_one_bad_day_are_not_named_though_their_counts_are_as_high():
    """The same counts, but the twenty faults of each come within one day around a failed repair."""
    times, node = lasting_lemons()
    times[:60] = np.repeat([100.0, 350.0, 800.0], 20) + np.tile(np.arange(20.0), 3)
    found = lemons(times, node, nodes=100, window_h=WINDOW_H)
    assert found.controlled == 3
    assert not found.persistence.is_rejected
    assert found.flagged == ()
    assert "does not repeat in the second" in found.sentence


def test_three_lemons_among_two_hundred_good_nodes_are_found_though_the_fleet_looks_nearly_equal():
    """Twelve faults each where the others have 1.5: a gamma law for all would give them odds of only 3 to 1."""
    good = random("good").integers(3, 200, 300)
    node = np.concatenate((np.repeat([0, 1, 2], 12), good))
    times = np.concatenate(
        (np.tile(np.linspace(20, 980, 12), 3), random("when").uniform(0, WINDOW_H, 300))
    )
    found = lemons(times, node, nodes=200, window_h=WINDOW_H)
    assert sorted(n.node for n in found.flagged) == [0, 1, 2]


def test_a_node_whose_faults_all_came_in_one_half_is_not_named_in_a_fleet_with_lemons():
    times, node = lasting_lemons()
    times = np.concatenate((times, np.linspace(10, 490, 20)))
    node = np.concatenate((node, np.full(20, 77)))
    found = lemons(times, node, nodes=100, window_h=WINDOW_H)
    assert {n.node: n.p_lemon > 0.9 for n in found.top}[77]
    assert sorted(n.node for n in found.flagged) == [3, 5, 8]


def test_a_node_at_twice_the_rate_is_certain_and_still_no_lemon():
    """Sixty faults where the others have 24: beyond chance, and below three times the fleet."""
    node = np.concatenate((np.zeros(60, dtype=int), random("busy").integers(1, 50, 1200)))
    times = np.concatenate(
        (np.linspace(5, 995, 60), random("busy times").uniform(0, WINDOW_H, 1200))
    )
    found = lemons(times, node, nodes=50, window_h=WINDOW_H)
    assert found.controlled == 1
    assert found.persistence.p < 0.01
    assert found.flagged == ()


def test_two_faults_on_many_nodes_do_not_survive_the_control_of_false_discoveries():
    """A hundred nodes of a thousand have two faults, one in each half, the others none: likely lemons, but each of
    them by two faults only."""
    node = np.repeat(np.arange(100), 2)
    times = np.tile([250.0, 750.0], 100)
    found = lemons(times, node, nodes=1000, window_h=WINDOW_H)
    assert found.top[0].p_lemon > 0.9
    assert (found.naive, found.controlled) == (100, 0)
    assert found.flagged == ()


def test_the_probability_above_a_limit_is_right_as_often_as_it_says():
    """20,000 nodes with lognormal rates, which no gamma law describes."""
    rates = random("law").lognormal(0, 1, 20_000)
    counts = random("seen").poisson(rates)
    p = probability_above(4.0, counts, np.ones(20_000))
    for lo, hi in ((0.0, 0.1), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        called = (p >= lo) & (p < hi)
        assert called.sum() > 100
        assert (rates[called] > 4).mean() == pytest.approx(p[called].mean(), abs=0.1)


def test_shrinking_pulls_extreme_rates_towards_the_fleet():
    times, node = lasting_lemons()
    found = lemons(times, node, nodes=100, window_h=WINDOW_H)
    fleet = len(times) / 100 / WINDOW_H
    top = found.top[0]
    assert fleet < top.shrunken_rate < top.rate


def test_a_node_with_little_exposure_is_judged_by_its_own():
    """Ten faults in a tenth of the time weigh more than ten in all of it."""
    times, node = lasting_lemons()
    exposure = np.full(100, WINDOW_H)
    exposure[3] = 100.0
    found = {
        n.node: n for n in lemons(times, node, nodes=100, window_h=WINDOW_H, exposure=exposure).top
    }
    assert found[3].shrunken_rate > 3 * found[5].shrunken_rate


def test_nodes_that_came_late_do_not_hide_persistence():
    """Half of the fleet joins at half time and fails only then: the old nodes' halves still agree."""
    times, node = lasting_lemons()
    late = np.arange(100, 200)
    times = np.concatenate((times, random("late").uniform(500, WINDOW_H, 200)))
    node = np.concatenate((node, random("newcomers").choice(late, 200)))
    exposure = np.where(np.arange(200) < 100, WINDOW_H, WINDOW_H / 2)
    found = lemons(times, node, nodes=200, window_h=WINDOW_H, exposure=exposure)
    assert found.persistence.n == 260
    assert found.persistence.is_rejected


def test_the_naive_list_is_longer_than_the_controlled_one():
    random_counts = random("long").poisson(random("gamma").gamma(0.88, 2, 400))
    node = np.repeat(np.arange(400), random_counts)
    found = lemons(random("u").uniform(0, WINDOW_H, len(node)), node, nodes=400, window_h=WINDOW_H)
    assert found.naive > 2 * found.controlled


def test_persistence_of_unrelated_halves_is_rejected_in_five_of_a_hundred():
    """4,000 pairs of Poisson halves: the standard error of the share is 0.35 %."""
    halves = random("halves").poisson(0.8, (4000, 2, 200))
    alarms = np.mean([bool(persistence(a, b).is_rejected) for a, b in halves])
    assert alarms == pytest.approx(0.05, abs=0.0125)


@pytest.mark.parametrize(("events", "nodes"), [(9, 100), (100, 9)])
def test_too_few_are_not_judged(events, nodes):
    node = np.arange(events) % nodes
    found = lemons(np.linspace(0, 999, events), node, nodes=nodes, window_h=WINDOW_H)
    assert found.unequal.is_rejected is None
    assert found.top == ()
    assert "Too few" in found.sentence


def test_nodes_without_a_fault_are_counted_and_give_what_a_list_of_them_gives():
    times, node = lasting_lemons()
    counted = lemons(times, node, nodes=150, window_h=WINDOW_H)
    listed = lemons(times, node, nodes=150, window_h=WINDOW_H, exposure=np.full(150, WINDOW_H))
    assert [n.node for n in counted.flagged] == [n.node for n in listed.flagged]
    for a, b in zip(counted.top, listed.top, strict=True):
        assert (a.node, a.count, a.first_half, a.second_half) == (b.node, b.count, b.first_half, b.second_half)  # fmt: skip
        assert (a.shrunken_rate, a.p_lemon, a.p_adjusted) == pytest.approx((b.shrunken_rate, b.p_lemon, b.p_adjusted), rel=1e-6)  # fmt: skip
    assert counted.persistence.statistic == pytest.approx(listed.persistence.statistic)
    assert counted.likelihood_ratio == pytest.approx(listed.likelihood_ratio)
    assert counted.dispersion == pytest.approx(listed.dispersion)


def test_a_thousand_million_nodes_are_no_list():
    times, node = lasting_lemons()
    found = lemons(times, node, nodes=10**9, window_h=WINDOW_H)
    assert found.nodes == 10**9
    assert found.persistence.n == len(times)
