"""Does 95 % mean 95 %? The headline interval, the MCF bounds and the trend verdict on fleets whose truth is known.

Aim: the procedures as a report uses them, with their own choices, on the kinds of failures that real fleets show.
Method: simulate many windows of 350 days with 350 expected events (200 nodes), run the procedure on each, and count
how often it is right; an exact 95 % interval of that share must meet 93 to 97 %.

Nulls
- poisson: independent events at a constant rate
- clusters 1.7 and 5: independent bursts, geometric size with this mean, members spread over about half a day
- renewal 0.62: one stationary renewal process with Weibull gaps of this shape
- lemons: 200 nodes whose rates are gamma with shape 0.88, each Poisson given its rate; the truth is the mean rate of
  nodes like these, not of these 200
Alternative

- power law 1.3: a Poisson process with this exponent, 350 expected events
Outside the promise
- waves: a rate that wanders with a memory of 10 days; the interval is then somewhat too narrow, and docs say so

Run `pytest tests/simulation/test_calibration.py -s` to see the numbers. The nightly part has 20,000 replicates and
also windows with 20, 40 and 100 expected events.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.budget.compare import rate_ratio
from lastgood.budget.intervals import garwood, headline
from lastgood.budget.lemons import lemons as lemon_study
from lastgood.budget.mcf import mean_cumulative
from lastgood.budget.share import clopper_pearson
from lastgood.budget.trend import trend

DAYS, EVENTS, NODES = 350.0, 350.0, 200
BAND = (0.93, 0.97)
REPLICATES = 4000


@dataclass(frozen=True)
class Window:
    """One simulated window: times in days, and the node of every event."""

    times: np.ndarray
    node: np.ndarray


def on_random_nodes(random: np.random.Generator, times: np.ndarray) -> Window:
    return Window(np.sort(times), random.integers(0, NODES, len(times)))


def poisson(random: np.random.Generator) -> Window:
    return on_random_nodes(random, random.uniform(0, DAYS, random.poisson(EVENTS)))


def clusters(mean: float, spread: float = 0.5) -> Callable[[np.random.Generator], Window]:
    def draw(random: np.random.Generator) -> Window:
        """Bursts that began before the window reach into it, as they do in a record."""
        early = 10 * spread
        count = random.poisson(EVENTS / mean * (DAYS + early) / DAYS)
        size = random.geometric(1 / mean, count)
        times = np.repeat(random.uniform(-early, DAYS, count), size)
        offset = random.exponential(spread, len(times))
        offset[np.cumsum(size) - size] = 0
        times = times + offset
        node = np.repeat(random.integers(0, NODES, count), size)
        inside = (times >= 0) & (times < DAYS)
        order = np.argsort(times[inside])
        return Window(times[inside][order], node[inside][order])

    return draw


def weibull_scale(shape: float, mean: float) -> float:
    return mean / math.gamma(1 + 1 / shape)


def renewal(random: np.random.Generator) -> Window:
    """Begun 300 gaps before the window, so that the window's start is no renewal."""
    scale = weibull_scale(0.62, DAYS / EVENTS)
    times = np.cumsum(scale * random.weibull(0.62, 1600)) - 300 * DAYS / EVENTS
    return on_random_nodes(random, times[(times >= 0) & (times < DAYS)])


def renewal_on_each_node(random: np.random.Generator) -> Window:
    """Every node is a stationary renewal process of its own."""
    mean = DAYS * NODES / EVENTS
    gaps = weibull_scale(0.62, mean) * random.weibull(0.62, (NODES, 40))
    times = np.cumsum(gaps, axis=1) - 15 * mean
    node, at = np.nonzero((times >= 0) & (times < DAYS))
    order = np.argsort(times[node, at])
    return Window(times[node, at][order], node[order])


def lemons(random: np.random.Generator) -> Window:
    rates = random.gamma(0.88, EVENTS / NODES / 0.88, NODES)
    counts = random.poisson(rates)
    times = random.uniform(0, DAYS, counts.sum())
    order = np.argsort(times)
    return Window(times[order], np.repeat(np.arange(NODES), counts)[order])


def power_law(random: np.random.Generator) -> Window:
    return on_random_nodes(random, DAYS * random.uniform(size=random.poisson(EVENTS)) ** (1 / 1.3))


def waves(random: np.random.Generator) -> Window:
    """A log rate that wanders (Ornstein-Uhlenbeck, memory 10 days, standard deviation 0.5) on a grid of 0.1 days."""
    steps, keep = 3500, math.exp(-0.01)
    wander = np.empty(steps)
    wander[0] = random.normal()
    for i, push in enumerate(random.normal(0, math.sqrt(1 - keep * keep), steps - 1)):
        wander[i + 1] = keep * wander[i] + push
    counts = random.poisson(EVENTS / steps * np.exp(0.5 * wander - 0.125))
    at = np.repeat(np.arange(steps), counts) + random.uniform(size=counts.sum())
    return on_random_nodes(random, at * DAYS / steps)


NULLS = {
    "poisson": poisson,
    "clusters 1.7": clusters(1.7),
    "clusters 5": clusters(5),
    "renewal 0.62": renewal,
    "lemons": lemons,
}
FLEETS = {
    "poisson": poisson,
    "clusters 1.7": clusters(1.7),
    "clusters 5": clusters(5),
    "renewal 0.62": renewal_on_each_node,
    "lemons": lemons,
}
FALSE_ALARMS_MAX = {
    "poisson": 0.06,
    "clusters 1.7": 0.06,
    "renewal 0.62": 0.06,
    "clusters 5": 0.09,
    "lemons": 0.06,
}


def windows(name: str, draw: Callable, replicates: int):
    random = numpy_stream(20, "calibration", name)
    return (draw(random) for _ in range(replicates))


def share(hits: int, n: int, what: str) -> tuple[float, float, float]:
    lo, hi = clopper_pearson(hits, n)
    print(f"{what:58s} {100 * hits / n:6.2f} % ({100 * lo:.2f} to {100 * hi:.2f}), {n} replicates")
    return hits / n, lo, hi


def covers(window: Window, *, by_node: bool) -> tuple[bool, bool]:
    """Whether headline and exact interval hold the true rate."""
    node = window.node if by_node else None
    found = headline(window.times, DAYS, node=node, nodes=NODES).interval
    exact = garwood(len(window.times), DAYS)
    truth = EVENTS / DAYS
    return found.lo <= truth <= found.hi, exact.lo <= truth <= exact.hi


def check_headline(name: str, replicates: int, *, by_node: bool) -> None:
    hits = [covers(w, by_node=by_node) for w in windows(name, NULLS[name], replicates)]
    n, known = len(hits), "nodes known" if by_node else "nodes not known"
    found, lo, hi = share(sum(h for h, _ in hits), n, f"headline interval, {name}, {known}")
    share(sum(e for _, e in hits), n, f"  (exact Poisson interval, {name})")
    assert lo <= BAND[1]
    assert hi >= BAND[0]
    assert BAND[0] <= found <= BAND[1]


def check_mcf(name: str, replicates: int) -> None:
    ends = middles = 0
    for window in windows(f"fleet of {name}", FLEETS[name], replicates):
        curve = mean_cumulative(window.times, window.node, nodes=NODES, window_h=DAYS)
        middle = int(np.searchsorted(curve.times_h, DAYS / 2))
        truth = EVENTS / NODES
        ends += curve.lo[-1] <= truth <= curve.hi[-1]
        middles += curve.lo[middle] <= truth * curve.times_h[middle] / DAYS <= curve.hi[middle]
    for where, hits in (("end", ends), ("middle", middles)):
        found, lo, hi = share(hits, replicates, f"MCF bounds at the {where} of the window, {name}")
        assert lo <= BAND[1]
        assert hi >= BAND[0]
        assert BAND[0] <= found <= BAND[1]


def check_false_alarms(name: str, replicates: int) -> None:
    found = [trend(w.times, DAYS) for w in windows(f"trend of {name}", NULLS[name], replicates)]
    alarms, *_ = share(sum(t.direction != 0 for t in found), replicates, f"trend alarms, {name}")
    for test in ("laplace", "lewis_robinson", "mil_hdbk"):
        share(
            sum(bool(getattr(t, test).is_rejected) for t in found), replicates, f"  ({test} alone)"
        )
    assert alarms <= FALSE_ALARMS_MAX[name]


def check_power(replicates: int) -> None:
    found = [trend(w.times, DAYS) for w in windows("power law", power_law, replicates)]
    power, *_ = share(sum(t.direction > 0 for t in found), replicates, "trend power, power law 1.3")
    assert power >= 0.95


@pytest.mark.parametrize("name", NULLS)
def test_the_headline_interval_covers_the_true_rate(name):
    check_headline(name, REPLICATES, by_node=True)


@pytest.mark.parametrize("name", [name for name in NULLS if name != "lemons"])
def test_the_headline_interval_covers_the_true_rate_when_no_node_is_recorded(name):
    """Without nodes nothing can be said about nodes like these, so lemons are not in it."""
    check_headline(name, REPLICATES, by_node=False)


@pytest.mark.parametrize("name", FLEETS)
def test_the_bounds_of_the_mean_cumulative_function_cover(name):
    check_mcf(name, REPLICATES)


@pytest.mark.parametrize("name", NULLS)
def test_the_trend_verdict_does_not_cry_wolf(name):
    check_false_alarms(name, REPLICATES)


def test_the_trend_verdict_sees_a_trend():
    check_power(REPLICATES)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NULLS)
def test_the_interval_and_the_trend_hold_over_many_replicates(name):
    check_headline(name, 5 * REPLICATES, by_node=True)
    check_false_alarms(name, 5 * REPLICATES)
    if name != "lemons":
        check_headline(name, 5 * REPLICATES, by_node=False)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FLEETS)
def test_the_bounds_hold_over_many_replicates(name):
    check_mcf(name, 5 * REPLICATES)


@pytest.mark.nightly
@pytest.mark.parametrize("events", [20, 40, 100])
@pytest.mark.parametrize("name", [name for name in NULLS if name != "clusters 5"])
def test_small_windows_are_covered_too(name, events, monkeypatch):
    """Given that at least ten events were seen, below which nothing is chosen. Bursts of five leave four of them."""
    monkeypatch.setattr(f"{__name__}.EVENTS", float(events))
    tested = [
        w for w in windows(f"{events} of {name}", NULLS[name], REPLICATES) if len(w.times) >= 10
    ]
    hits = sum(covers(w, by_node=False)[0] for w in tested) if name != "lemons" else 0
    if name == "lemons":
        hits = sum(covers(w, by_node=True)[0] for w in tested)
    found, *_ = share(hits, len(tested), f"headline interval, {name}, {events} events expected")
    assert 0.93 <= found <= 0.975


@pytest.mark.nightly
def test_a_rate_that_wanders_is_covered_less_than_promised_and_more_than_by_the_exact_interval():
    """A limit that docs/statistics.md states: no interval knows a wave that is as long as the window."""
    hits = [covers(w, by_node=False) for w in windows("waves", waves, REPLICATES)]
    found, *_ = share(sum(h for h, _ in hits), len(hits), "headline interval, waves of 10 days")
    exact, *_ = share(
        sum(e for _, e in hits), len(hits), "  (exact Poisson interval, waves of 10 days)"
    )
    alarms = [
        trend(w.times, DAYS).direction != 0 for w in windows("trend of waves", waves, REPLICATES)
    ]
    share(sum(alarms), len(alarms), "trend alarms, waves of 10 days")
    assert 0.85 <= found <= 0.95
    assert found > exact + 0.1


@pytest.mark.nightly
@pytest.mark.parametrize("name", NULLS)
def test_a_comparison_of_two_like_fleets_finds_a_difference_in_five_of_a_hundred(name):
    node_of = lambda w: w.node if name == "lemons" else None
    pairs = zip(
        windows(f"A, {name}", NULLS[name], REPLICATES),
        windows(f"B, {name}", NULLS[name], REPLICATES),
        strict=True,
    )
    found = [
        rate_ratio(*(headline(w.times, DAYS, node=node_of(w), nodes=NODES).interval for w in pair))
        for pair in pairs
    ]
    alarms, *_ = share(
        sum(bool(r.finding.is_rejected) for r in found), REPLICATES, f"differences found, {name}"
    )
    assert alarms <= 0.065


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "most"), [("poisson", 0.01), ("clusters 1.7", 0.03), ("clusters 5", 0.05)]
)
def test_no_node_is_named_in_a_fleet_without_lemons(name, most):
    """Bursts that stay on one node are what a list of worst nodes takes for lemons."""
    found = [
        lemon_study(w.times, w.node, nodes=NODES, window_h=DAYS)
        for w in windows(f"no lemons, {name}", NULLS[name], REPLICATES // 2)
    ]
    alarms, *_ = share(
        sum(bool(f.flagged) for f in found), len(found), f"fleets with a node named, {name}"
    )
    assert alarms <= most


@pytest.mark.nightly
def test_nodes_that_are_named_are_lemons():
    """Two years of a gamma fleet, 3.5 faults per node: of the named ones nine of ten fail at three times the rate."""
    random = numpy_stream(20, "calibration", "named")
    named = true = 0
    for _ in range(REPLICATES // 8):
        rates = random.gamma(0.88, 3.5 / 0.88, NODES)
        counts = random.poisson(rates)
        node = np.repeat(np.arange(NODES), counts)
        found = lemon_study(
            random.uniform(0, DAYS, len(node)), node, nodes=NODES, window_h=DAYS
        ).flagged
        named += len(found)
        true += sum(rates[row.node] > 3 * 3.5 for row in found)
    correct, *_ = share(true, named, "named nodes above three times the mean rate")
    assert correct >= 0.85
