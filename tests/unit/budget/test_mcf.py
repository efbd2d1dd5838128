"""The mean cumulative function against SurPyval and against a plain sum over nodes."""

import warnings

import numpy as np
import pytest

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.mcf import POINTS_MAX, mean_cumulative

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from surpyval import NonParametricCounting

NODES, WINDOW_H = 120, 500.0


def fleet():
    random = numpy_stream(3, "mcf")
    counts = random.poisson(random.gamma(0.9, 1.5, NODES))
    node = np.repeat(np.arange(NODES), counts)
    times = random.uniform(1, WINDOW_H, len(node))
    order = np.argsort(times)
    return times[order], node[order]


def oracle(times, node):
    """Every node ends with a censored row at the window's end, which is how it learns of nodes without faults."""
    x = np.concatenate((times, np.full(NODES, WINDOW_H)))
    i = np.concatenate((node, np.arange(NODES)))
    c = np.concatenate((np.zeros(len(times)), np.ones(NODES)))
    return NonParametricCounting.fit(x, i=i, c=c)


def test_value_and_bounds_agree_with_surpyval():
    times, node = fleet()
    found, theirs = (
        mean_cumulative(times, node, nodes=NODES, window_h=WINDOW_H),
        oracle(times, node),
    )
    at = np.array([100.0, 250.0, 499.0])
    mine = np.searchsorted(found.times_h, at, side="right") - 1
    assert found.value[mine] == pytest.approx(theirs.mcf(at))
    bounds = theirs.mcf_cb(at)
    assert found.lo[mine] == pytest.approx(np.min(bounds, axis=-1), rel=5e-3)
    assert found.hi[mine] == pytest.approx(np.max(bounds, axis=-1), rel=5e-3)


def test_the_value_at_the_end_is_events_over_nodes_and_the_error_that_of_a_mean():
    times, node = fleet()
    found = mean_cumulative(times, node, nodes=NODES, window_h=WINDOW_H)
    counts = np.bincount(node, minlength=NODES)
    assert found.end == pytest.approx(len(times) / NODES)
    assert found.se[-1] == pytest.approx(counts.std() / NODES**0.5)


def test_nodes_that_all_stay_give_the_same_with_and_without_their_times():
    times, node = fleet()
    plain = mean_cumulative(times, node, nodes=NODES, window_h=WINDOW_H)
    timed = mean_cumulative(
        times,
        node,
        nodes=NODES,
        window_h=WINDOW_H,
        enter_h=np.zeros(NODES),
        leave_h=np.full(NODES, WINDOW_H),
    )
    assert timed.value == pytest.approx(plain.value)
    assert timed.se == pytest.approx(plain.se)


def test_nodes_that_come_and_go_are_weighed_by_the_nodes_at_risk():
    """Two nodes, one leaves at 10: an event at 5 counts a half, one at 20 counts whole."""
    found = mean_cumulative(
        np.array([5.0, 20.0]),
        np.array([0, 1]),
        nodes=2,
        window_h=30.0,
        leave_h=np.array([10.0, 30.0]),
    )
    assert found.value.tolist() == [0.5, 1.5, 1.5]
    # Deviations of the nodes at the end: 1/2 - 1/4, and 0 + 1 - (1/4 + 1).
    assert found.se[-1] == pytest.approx((0.25**2 + 0.25**2) ** 0.5)


def test_few_nodes_have_a_curve_and_no_bounds():
    found = mean_cumulative(np.array([1.0, 2.0]), np.array([0, 1]), nodes=3, window_h=5.0)
    assert found.end == pytest.approx(2 / 3)
    assert np.isnan(found.lo).all()


def test_very_many_events_make_no_longer_a_curve():
    times = np.linspace(0, WINDOW_H, 100_000)
    found = mean_cumulative(times, np.arange(100_000) % NODES, nodes=NODES, window_h=WINDOW_H)
    assert len(found.times_h) == POINTS_MAX
    assert found.end == pytest.approx(100_000 / NODES)


def test_no_events_are_a_flat_curve():
    found = mean_cumulative(np.array([]), np.array([], dtype=int), nodes=10, window_h=5.0)
    assert (found.end, found.events) == (0.0, 0)


def test_a_node_outside_the_fleet_is_refused():
    with pytest.raises(BadInput, match="node at risk"):
        mean_cumulative(np.array([1.0]), np.array([3]), nodes=3, window_h=5.0)


def test_very_many_nodes_get_fewer_points():
    times = np.linspace(0, WINDOW_H, 50_000)
    found = mean_cumulative(times, np.arange(50_000), nodes=50_000, window_h=WINDOW_H)
    assert len(found.times_h) == 80
    assert found.end == pytest.approx(1.0)


def test_nodes_without_an_event_are_counted_and_not_listed():
    """Ten thousand million nodes take no longer than ten, and give what a list of them would give."""
    times, node = np.linspace(1, WINDOW_H, 60), np.arange(60) % 7
    huge = mean_cumulative(times, node, nodes=10**10, window_h=WINDOW_H)
    assert huge.end == pytest.approx(60 / 10**10)
    listed = mean_cumulative(
        times,
        node,
        nodes=50,
        window_h=WINDOW_H,
        enter_h=np.zeros(50),
        leave_h=np.full(50, WINDOW_H),
    )
    for part in (10, 50):
        some = {"enter_h": np.zeros(part), "leave_h": np.full(part, WINDOW_H)} if part < 50 else {}
        found = mean_cumulative(times, node, nodes=50, window_h=WINDOW_H, **some)
        assert found.se[-1] == pytest.approx(listed.se[-1])
        assert found.hi[-1] == pytest.approx(listed.hi[-1])
