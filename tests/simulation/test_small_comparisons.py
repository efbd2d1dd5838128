"""Is a fleet called different from itself when one side of a comparison is small?

Aim: the comparison as `lastgood rates --compare` makes it, for groups of which one side has few events, where the
dispersion of the larger side is all that is known.
Method: 400 pairs of windows of 350 days with one rate per device and bursts of one size (geometric, members spread over
about half a day); count the pairs that are called different. Above 5 % is too many, give or take the 400.

Run `pytest tests/simulation/test_small_comparisons.py -s` to see the numbers.
"""

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.budget.compare import compare
from lastgood.budget.operational import constant
from lastgood.budget.rates import study
from lastgood.budget.sample import Sample

WINDOW_H, PAIRS, SPREAD_H = 350 * 24.0, 400, 12.0
MOST = 0.05 + 2 * (0.05 * 0.95 / PAIRS) ** 0.5


def one_side(random, mean, expected, devices):
    """Bursts that began before the window reach into it, as they do in a record."""
    early = 10 * SPREAD_H
    count = random.poisson(expected / mean * (WINDOW_H + early) / WINDOW_H)
    size = random.geometric(1 / mean, count)
    times = np.repeat(random.uniform(-early, WINDOW_H, count), size)
    offset = random.exponential(SPREAD_H, len(times))
    offset[np.cumsum(size) - size] = 0
    times = times + offset
    inside = np.sort(times[(times >= 0) & (times < WINDOW_H)])
    return study(
        Sample(name="side", begin_h=inside, window_h=WINDOW_H),
        exposure=constant(devices, window_h=WINDOW_H),
    )


@pytest.mark.nightly
@pytest.mark.parametrize("mean", [1.0, 1.7, 5.0])
@pytest.mark.parametrize(("many", "few"), [(40, 10), (40, 5), (15, 15), (8, 8), (12, 3)])
def test_a_small_side_of_the_same_fleet_is_seldom_called_different(mean, many, few):
    random = numpy_stream(11, "small comparisons", str(mean), str(many), str(few))
    called = made = 0
    for _ in range(PAIRS):
        pair = one_side(random, mean, many, 100), one_side(random, mean, few, 100 * few / many)
        if sum(side.sample.count for side in pair):
            made += 1
            called += bool(compare(*pair).rate.finding.is_rejected)
    print(f"bursts of {mean}, {many} against {few}: {called / made:.1%} called different")
    assert called / made <= MOST
