"""Nodes that became bad: said beside the verdict, with the multiplicity of nodes and dates paid for."""

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.budget.lemons import lemons
from lastgood.budget.recent import PARTS, recently_bad

WINDOW_H, NODES = 8000.0, 200


def random(*names):
    return numpy_stream(3, "recent", *names)


def fleet(*names, events=300):
    generator = random(*names)
    return generator.uniform(0, WINDOW_H, events), generator.integers(0, NODES, events)


def with_late_lemon(*, begin, count=14):
    times, node = fleet("background")
    node = np.where(node == 7, 8, node)
    own = np.linspace(begin, WINDOW_H - 10, count)
    return np.append(times, own), np.append(node, np.full(count, 7))


def test_a_node_that_became_bad_after_half_time_is_no_lemon_and_is_said():
    times, node = with_late_lemon(begin=0.7 * WINDOW_H)
    found = lemons(times, node, nodes=NODES, window_h=WINDOW_H)
    assert found.flagged == ()
    (lead,) = found.recent
    assert (lead.node, lead.count, lead.total) == (7, 14, 14)
    assert lead.since_h / WINDOW_H in [1 - share for share in PARTS]
    assert lead.p_adjusted < 0.01
    assert lead.times_fleet > 3


def test_a_node_that_was_bad_early_and_got_well_is_not_said():
    times, node = with_late_lemon(begin=0.7 * WINDOW_H)
    assert recently_bad(WINDOW_H - times, node, nodes=NODES, window_h=WINDOW_H) == ()


def test_one_bad_day_is_one_spell_and_not_said():
    times, node = fleet("background")
    times, node = np.append(times, 7900 + np.arange(20)), np.append(node, np.full(20, 7))
    assert all(f.node != 7 for f in recently_bad(times, node, nodes=NODES, window_h=WINDOW_H))


def test_a_node_that_is_flagged_is_not_said_twice():
    times, node = fleet("whole")
    own = random("own").uniform(0, WINDOW_H, 60)
    node = np.append(np.append(node, np.full(60, 7)), np.repeat([3, 5], 40))
    times = np.concatenate((times, own, random("two").uniform(0, WINDOW_H, 80)))
    found = lemons(times, node, nodes=NODES, window_h=WINDOW_H)
    assert {7, 3, 5} == {row.node for row in found.flagged}
    assert not {7, 3, 5} & {lead.node for lead in found.recent}


@pytest.mark.parametrize("burst", [1, 5])
def test_in_fleets_without_lemons_hardly_a_node_is_said(burst):
    """Independent faults, and bursts of five on one node over some hours: at most 3 of 100 fleets name any."""
    named = 0
    for i in range(100):
        times, node = fleet("calm", burst, i, events=350 // burst)
        node = np.repeat(node, burst)
        times = np.repeat(times, burst) + random("in", burst, i).uniform(0, 8, len(node)) * (burst > 1)  # fmt: skip
        times = np.minimum(times, WINDOW_H)
        named += bool(recently_bad(times, node, nodes=NODES, window_h=WINDOW_H))
    assert named <= 3
