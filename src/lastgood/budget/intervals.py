"""Intervals of a rate that stay right when failures come in bursts, and the rule that chooses among them.

The exact Poisson interval (Garwood) assumes independent events. On clustered failures it covers the true rate in 50
to 80 of 100 cases where it promises 95. The dispersion-aware interval here keeps the form of Garwood's and gives it
the number of *independent* events that the counts are worth: n over the dispersion, with a Student factor because
the dispersion is itself estimated from a few bins. With dispersion 1 and many bins it is Garwood's interval.

How the headline is chosen, and why so; tests/simulation/test_calibration.py holds what each step earns:
- By the dispersion of the counts: see `spread.py`.
- Where nodes are known and unequal, the variance between nodes takes over: it already holds the bursts that stay on
  one node. What many nodes do at once is added only where the bins show it beyond their cells of node and bin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.budget.block_bootstrap import stationary_block_bootstrap
from lastgood.budget.dispersion import check_times, index_of
from lastgood.budget.finding import EVENTS_MIN, chi_square_tail, format_float, format_p
from lastgood.budget.rate_interval import IntervalMethod, RateInterval, check_rate
from lastgood.budget.spread import CHOOSING_ALPHA, Spread, measure_spread

if TYPE_CHECKING:
    import numpy as np

NODES_MIN = 6
ALPHA_OF_NODES = 0.05
OVER_TIME = "between nodes and over time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The interval that stands first, why it was chosen, and the others beside it."""

    interval: RateInterval
    choice: str
    """The reason in words."""
    is_fixed: bool
    """True when a person fixed the method in advance."""
    all: tuple[RateInterval, ...]
    """Every interval that was computed, the exact one first."""


def garwood(count: int, exposure: float, *, level: float = 0.95) -> RateInterval:
    """The exact Poisson interval of a rate over a window of fixed length.

    Assumes: independent events at a constant rate; on clustered failures it is too narrow.
    Source: Garwood (1936), fiducial limits for the Poisson distribution.
    """
    from lastgood.ledger.ettr import poisson_interval_us

    check_rate(count, exposure, level)
    # Any unit of exposure will do: the function divides it by quantiles of the gamma distribution.
    shortest, longest = poisson_interval_us(count, exposure, level=level)
    return RateInterval(
        count=count,
        exposure=exposure,
        lo=1 / longest if longest else 0.0,
        hi=1 / shortest,
        level=level,
        method=IntervalMethod.EXACT,
        words="exact Poisson (Garwood)",
        is_one_sided=count == 0,
    )


def scaled_garwood(
    count: int, exposure: float, *, index: float, degrees: float, level: float = 0.95
) -> RateInterval:
    """Garwood's interval for the number of independent events that the count is worth.

    The count is divided by its dispersion and by the squared ratio of the Student to the normal quantile, because the
    dispersion is estimated with few degrees of freedom.

    Assumes: a variance in proportion to the mean, events beyond one bin independent, no trend needed.
    Source: quasi-likelihood, Wedderburn (1974), McCullagh and Nelder (1989) section 9.2, in gamma form.
    """
    from scipy.special import gammaincinv, ndtri, stdtrit

    check_rate(count, exposure, level)
    tail = (1 - level) / 2
    ratio = float(stdtrit(degrees, tail)) / float(ndtri(tail))
    worth = count / (max(1.0, index) * ratio * ratio)
    per = count / (worth * exposure)
    return RateInterval(
        count=count,
        exposure=exposure,
        lo=float(gammaincinv(worth, tail)) * per,
        hi=float(gammaincinv(worth + 1, 1 - tail)) * per,
        level=level,
        method=IntervalMethod.QUASI_POISSON,
        words=f"quasi-Poisson, dispersion {format_float(max(1.0, index))}",
        dispersion=max(1.0, index),
        degrees=degrees,
    )


def _quasi(count: int, exposure: float, spread: Spread, level: float) -> RateInterval:
    made = scaled_garwood(count, exposure, index=spread.index, degrees=spread.bins - 1, level=level)
    merged = ", merged because neighbours move together" if spread.is_merged else ""
    return replace(made, words=f"{made.words} over {spread.bins} bins{merged}")


def by_node(
    node_counts: np.ndarray,
    exposure: float,
    *,
    nodes: int | None = None,
    spread: Spread | None = None,
    cell_index: float = 1.0,
    level: float = 0.95,
) -> RateInterval:
    """The interval when nodes differ: what the rate could be for nodes like these, not only for these.

    The dispersion between nodes adds to the one over time; what both see (bursts on one node) is counted once
    through the cells of node and bin. `nodes` counts all nodes; those that `node_counts` lacks had no event.

    Assumes: nodes at risk equally long, drawn from one population.
    Source: cluster-robust variance in two ways, Cameron, Gelbach and Miller (2011); see `mcf.py` for one way.
    """
    n = int(node_counts.sum())
    nodes = len(node_counts) if nodes is None else nodes
    between = index_of(node_counts, of=nodes)
    total, degrees = max(1.0, between), nodes - 1.0
    words = f"between nodes, dispersion {format_float(total)} over {nodes:,} nodes"
    if spread is not None and not spread.is_poisson_like:
        # Bursts that stay on one node are in the variance between nodes already. Only what the bins hold beyond
        # their cells (many nodes at once) is added: it is known from few bins, and adding noise widens for nothing.
        beyond = spread.index / max(1.0, cell_index)
        if chi_square_tail(beyond * (spread.bins - 1), spread.bins - 1) < ALPHA_OF_NODES:
            total = max(total, spread.index, between + spread.index - cell_index)
            degrees = min(degrees, spread.bins - 1.0)
            words = (
                f"{OVER_TIME}: dispersion {format_float(between)} between {nodes:,} nodes, "
                f"{format_float(spread.index)} over {spread.bins} bins"
            )
    made = scaled_garwood(n, exposure, index=total, degrees=degrees, level=level)
    return replace(
        made,
        method=IntervalMethod.BY_NODE,
        words=words,
    )


def headline(
    times_h: np.ndarray,
    window_h: float,
    *,
    exposure: float | None = None,
    node: np.ndarray | None = None,
    nodes: int | None = None,
    method: IntervalMethod = IntervalMethod.AUTO,
    level: float = 0.95,
    seed: int = 0,
) -> Headline:
    """The interval that stands first: chosen by the dispersion of the counts, or fixed in advance by `method`.

    Times in operational time when exposure changes; `exposure` is the denominator, the window when left out.
    `node` (0-based, in the order of the times) and `nodes` (all at risk) let unequal nodes widen it.

    Assumes: what the chosen method assumes; the choice itself is part of the calibrated procedure.
    Source: pre-test procedure, calibrated by simulation; dispersion test of Fisher (1925).
    """
    times = check_times(times_h, window_h)
    n = len(times)
    exposure = exposure or window_h
    exact = garwood(n, exposure, level=level)
    if n < EVENTS_MIN:
        return _few(exact, method)
    spread = measure_spread(times, window_h)
    quasi = _quasi(n, exposure, spread, level)
    made = {IntervalMethod.EXACT: exact, IntervalMethod.QUASI_POISSON: quasi}
    unequal, is_over_time = None, False
    if node is not None and nodes is not None and nodes >= NODES_MIN:
        made[IntervalMethod.BY_NODE], unequal, is_over_time = _between_nodes(
            times_h, node, nodes, window_h=window_h, exposure=exposure, spread=spread, level=level
        )
    if method is IntervalMethod.BLOCK_BOOTSTRAP:
        made[method] = stationary_block_bootstrap(
            times, window_h, exposure=exposure, level=level, seed=seed
        )
    chosen, choice = (
        _choose(spread, unequal, is_over_time) if method is IntervalMethod.AUTO else (method, "")
    )
    if chosen not in made:
        raise BadInput(
            "this interval needs the node of every event and the number of nodes at risk",
            found=f"--interval {method}",
            needs="nodes; or another method",
        )
    return Headline(
        interval=made[chosen],
        choice=choice or f"fixed in advance: {made[chosen].words}; no test chose it",
        is_fixed=method is not IntervalMethod.AUTO,
        all=tuple(made.values()),
    )


class _BetweenNodes(NamedTuple):
    made: RateInterval
    p: float
    """Of the test that nodes are equal."""
    is_over_time: bool
    """The interval carries more than the difference of nodes: many nodes at once."""


class _Choice(NamedTuple):
    method: IntervalMethod
    reason: str


def _between_nodes(
    times_h: np.ndarray,
    node: np.ndarray,
    nodes: int,
    *,
    window_h: float,
    exposure: float,
    spread: Spread,
    level: float,
) -> _BetweenNodes:
    """The interval between nodes, and the p value of the test that nodes are equal."""
    import numpy as np

    # Nodes without an event are counted, not listed: a typed number of nodes may be in the millions.
    _, node = np.unique(np.asarray(node, dtype=np.int64), return_inverse=True)
    counts = np.bincount(node)
    bins = spread.bins
    at = np.minimum((np.asarray(times_h) * (bins / window_h)).astype(np.int64), bins - 1)
    cells = index_of(np.bincount(node * bins + at), of=nodes * bins)
    made = by_node(counts, exposure, nodes=nodes, spread=spread, cell_index=cells, level=level)
    index = index_of(counts, of=nodes)
    p = chi_square_tail(index * (nodes - 1), nodes - 1)
    return _BetweenNodes(made, p, made.words.startswith(OVER_TIME))


def _few(exact: RateInterval, method: IntervalMethod) -> Headline:
    fixed = method is not IntervalMethod.AUTO
    beside = (
        f"; {method} needs at least {EVENTS_MIN} events"
        if fixed and method is not IntervalMethod.EXACT
        else ""
    )
    return Headline(
        interval=exact,
        choice=f"{exact.count} events are too few to test: exact Poisson, which assumes independent events{beside}",
        is_fixed=fixed,
        all=(exact,),
    )


def _choose(spread: Spread, unequal: float | None, is_over_time: bool) -> _Choice:
    if unequal is not None and unequal < ALPHA_OF_NODES:
        so = (
            "and the counts vary over time beyond that, so the interval is one between nodes and over time"
            if is_over_time
            else "so the interval is one between nodes"
        )
        return _Choice(
            IntervalMethod.BY_NODE,
            f"chosen by test: nodes differ more than chance ({format_p(unequal)}), {so}",
        )
    if spread.is_poisson_like:
        shown = f"{format_p(spread.p)}, limit {CHOOSING_ALPHA:g}"
        return _Choice(
            IntervalMethod.EXACT,
            f"chosen by test: the counts do not contradict independent events ({shown})",
        )
    why = (
        f"the counts vary more than those of independent events ({format_p(spread.p)}, limit {CHOOSING_ALPHA:g})"
        if spread.p < CHOOSING_ALPHA
        else "neighbouring bins move together"
    )
    return _Choice(
        IntervalMethod.QUASI_POISSON,
        f"chosen by test: {why}, so the exact interval would be too narrow",
    )
