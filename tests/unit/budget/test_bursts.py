"""Bursts of starts on several nodes, and the domain that they share."""

import numpy as np

from lastgood.base.rng import numpy_stream
from lastgood.budget.bursts import bursts


def random(*names):
    return numpy_stream(3, "bursts", *names)


def fleet(together=()):
    """100 starts at random on 64 nodes, and the given nodes at hour 500 within a minute."""
    times = np.concatenate(
        (random("t").uniform(0, 1000, 100), 500 + np.linspace(0, 1 / 60, len(together)))
    )
    node = np.concatenate((random("n").integers(0, 64, 100), np.array(together, dtype=int)))
    return times, node


RACKS = np.arange(64) // 8


def test_eight_nodes_of_one_rack_within_a_minute_are_one_burst_with_a_candidate():
    times, node = fleet(range(16, 24))
    found = bursts(times, node, window_h=1000.0, domains={"rack": RACKS})
    assert (found.top[0].count, found.top[0].nodes) == (8, tuple(range(16, 24)))
    (candidate,) = found.candidates
    assert (candidate.kind, candidate.domain, candidate.members, candidate.of) == ("rack", 2, 8, 8)
    assert found.finding.is_rejected


def test_eight_nodes_of_eight_racks_are_a_burst_without_a_candidate():
    times, node = fleet(range(0, 64, 8))
    found = bursts(times, node, window_h=1000.0, domains={"rack": RACKS})
    assert found.top[0].count == 8
    assert found.candidates == ()


def test_two_nodes_of_one_rack_among_eight_are_chance():
    """The second falls into the rack of the first in one case of eight."""
    times, node = fleet([17, 22])
    found = bursts(times, node, window_h=1000.0, domains={"rack": RACKS})
    assert any(set(b.nodes) == {17, 22} for b in found.top)
    assert found.candidates == ()


def test_repeats_of_one_node_are_no_burst():
    times, node = fleet([5] * 8)
    assert all(set(b.nodes) != {5} for b in bursts(times, node, window_h=1000.0).top)


def test_independent_starts_show_no_excess():
    times, node = fleet()
    found = bursts(times, node, window_h=1000.0)
    assert not found.finding.is_rejected


def test_a_burst_is_labelled_by_most_of_its_members():
    times, node = fleet(range(8))
    codes = np.concatenate((np.zeros(100, dtype=int), [1, 1, 1, 1, 1, 0, -1, -1]))
    found = bursts(times, node, window_h=1000.0, labels=("gpu", "fan"), label_codes=codes)
    assert (found.top[0].label, found.top[0].label_count) == ("fan", 5)


def test_where_starts_are_frequent_the_gap_shrinks_until_one_in_ten_follows_by_chance():
    times = np.sort(random("many").uniform(0, 1000, 100_000))
    found = bursts(times, random("nodes").integers(0, 64, 100_000), window_h=1000.0)
    assert found.gap_h < 0.0011
    assert not found.finding.is_rejected


def test_nothing_is_nothing():
    found = bursts(np.array([]), np.array([], dtype=int), window_h=10.0)
    assert (found.count, found.top) == (0, ())
