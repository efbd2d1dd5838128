"""How often is a rank called slow that is not? And is one that is called so in time?

Aim: the rate of false alarms of `signals.performance` under noise that is far from normal, beside a bound that does
not know the noise. Method: seeded runs of four ranks whose own times are independent from step to step.

The bound. A step of a rank is slow only above the 90 % point of its n usual steps, the k-th smallest of them with
k = ceil(0.9 n). For any continuous noise the chance p to lie above the k-th of n values that are drawn alike is a
Beta(n+1-k, k) variable (the coverage of an order statistic: Wilks 1941), and of W steps, given p, each is above it
on its own. So the number of slow steps in a window is beta-binomial, and

    P(persistent) <= P(BetaBinomial(W, n+1-k, k) >= m)

whatever the noise is. The other conditions (30 % above what is usual, 2.5 robust deviations, a change of pace, a
loss that reaches the cost of acting) can only lower it. Assumes that steps are independent: a neighbour that takes
the processor for a minute makes a rank slow, and then it is no false alarm. And that every step teaches: slow ones
do not while half of a window is slow, which independent noise does in fewer than one of 200 windows.
"""

import math
import statistics

import numpy as np
import pytest
from scipy.stats import betabinom

from lastgood.base.rng import numpy_stream
from lastgood.signals.performance import PerformanceMemory, assess
from lastgood.signals.reading import StepReport, Verdict

RANKS, STEPS, SLOW_STEPS, RUNS = 4, 2500, 250, 10


def lognormal(sigma):
    return lambda random, shape: np.exp(sigma * random.standard_normal(shape))


def student(random, shape):
    """Logarithms with two degrees of freedom: no variance."""
    return np.exp(np.clip(0.1 * random.standard_t(2, shape), -5, 5))


def pauses(random, shape):
    """One step in ten meets a pause, and pauses have a mean but no variance (Pareto, 1.5)."""
    hit = random.random(shape) < 0.1
    return np.exp(0.05 * random.standard_normal(shape)) + hit * random.pareto(1.5, shape)


NOISES = {"lognormal 0.1": lognormal(0.1), "lognormal 0.25": lognormal(0.25), "lognormal 0.4": lognormal(0.4), "student": student, "pauses": pauses}  # fmt: skip


FAR_FROM_NORMAL = ["lognormal 0.4", "student", "pauses"]


def reports(own_us, step):
    return [
        StepReport(
            rank=rank, step=step, digest="", loss=None, grad_norm=None, local_nonfinite=False,
            self_us=int(us), step_us=int(us), starved_us=0,
        )
        for rank, us in enumerate(own_us)
    ]  # fmt: skip


def play(times_us, memory):
    """Verdict of every step (step, rank)."""
    found = []
    for step, own_us in enumerate(times_us):
        verdict, memory = assess(reports(own_us, step), memory=memory, now_us=step)
        found.append(verdict)
    return found


def bound(memory: PerformanceMemory, steps: int) -> float:
    """Expected number of (rank, step) that are called slow, at the most."""
    total = 0.0
    for step in range(steps):
        n = min(step - memory.skip_count - memory.window_count, memory.usual_count_max)
        if n < memory.usual_count_min:
            continue
        above = n + 1 - math.ceil(0.9 * n)
        total += betabinom.sf(memory.slow_count_min - 1, memory.window_count, above, n + 1 - above)
    return RANKS * total


@pytest.mark.parametrize("name", FAR_FROM_NORMAL)
def test_no_noise_that_is_independent_from_step_to_step_makes_a_slow_rank(name):
    """Acting costs nothing here: every persistent change of pace would replace a rank."""
    memory = PerformanceMemory(assumed_cost_us=0)
    times_us = 50_000 * NOISES[name](numpy_stream(11, "slow", name), (STEPS, RANKS))
    settled = play(times_us, memory)[
        memory.skip_count + memory.window_count + memory.usual_count_min :
    ]
    named = sum(len(v.culprits) for v in settled)
    assert bound(memory, STEPS) < 0.5
    assert named == 0, f"{named} of {RANKS * STEPS} rank-steps, bound {bound(memory, STEPS):.3f}"


@pytest.mark.parametrize("name", FAR_FROM_NORMAL)
def test_the_bound_is_the_rate_when_nothing_but_the_quantile_decides(name):
    """The formula itself, with four of ten steps, so that there is something to count."""
    memory = PerformanceMemory(
        ratio_min=1.0, deviations_min=0.0, slow_count_min=4, may_act=False, usual_count_min=64
    )
    times_us = 50_000 * NOISES[name](numpy_stream(12, "slow", name), (STEPS, RANKS))
    verdicts = play(times_us, memory)[memory.skip_count + memory.window_count + 64 :]
    seen, wanted = sum(len(v.culprits) for v in verdicts), bound(memory, STEPS)
    assert wanted > 100
    assert 0.5 * wanted < seen < 1.5 * wanted  # windows overlap: far fewer are independent


@pytest.mark.parametrize("name", ["lognormal 0.1", "lognormal 0.25", "pauses"])
def test_a_rank_that_becomes_three_times_as_slow_is_named_alone_and_in_time(name):
    """Ten runs: the right rank, nobody else, and not much later than eight slow steps."""
    delays = []
    for seed in range(RUNS):
        memory = PerformanceMemory(assumed_cost_us=0)
        times_us = 50_000 * NOISES[name](numpy_stream(seed, "x3", name), (SLOW_STEPS, RANKS))
        times_us[100:, 2] *= 3
        failed = [
            (step, v.culprits)
            for step, v in enumerate(play(times_us, memory))
            if v.verdict is Verdict.FAILED
        ]
        assert failed[0][1] == (2,)
        assert failed[0][0] >= 100
        delays.append(failed[0][0] - 100 + 1)
    assert statistics.median(delays) <= 20
    assert max(delays) <= 100


def test_the_rule_of_the_ski_rental_never_pays_more_than_twice():
    """However long the rank would have stayed slow, waiting and then acting costs at most twice the best in hindsight."""
    cost_us, excess_us = 3_000_000, 100_000
    for slow_steps in (5, 20, 29, 30, 31, 60, 1000):
        times_us = np.full((100 + slow_steps, RANKS), 50_000.0)
        times_us[100:, 1] += excess_us
        memory = PerformanceMemory(skip_count=0, assumed_cost_us=cost_us)
        failed = [v for v in play(times_us, memory) if v.verdict is Verdict.FAILED]
        waited = (failed[0].lost_device_us or 0) / RANKS if failed else slow_steps * excess_us
        paid = waited + (cost_us if failed else 0)
        assert paid <= 2 * min(slow_steps * excess_us, cost_us) + excess_us
