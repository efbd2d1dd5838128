"""Which nodes to pull: nodes whose rate is high and *stays* high.

In every fleet some nodes have more faults than others, and most of the list is chance or one bad week. A node is named
only if all of this holds: the order of the first half of the window repeats in the second, for the fleet and for the
node itself; the node's rate is above three times the fleet's with probability 0.9, given its count and all others; and
its count survives false-discovery control. Where the halves do not repeat, the counts are bursts around failed repairs,
and pulling the top of the list would pull the wrong nodes.

Source: empirical Bayes, Robbins (1956), gamma-Poisson as in Gelman and others (2013) section 2.7; Benjamini and
Hochberg (1995).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.budget.dispersion import index_of
from lastgood.budget.finding import ALPHA, EVENTS_MIN, Finding, chi_square_tail, format_p, too_few
from lastgood.budget.multiplicity import benjamini_hochberg
from lastgood.budget.recent import RecentlyBad, recently_bad
from lastgood.budget.shrinkage import (
    GammaPoisson,
    Silent,
    fit_gamma_poisson,
    probability_above,
)

if TYPE_CHECKING:
    import numpy as np

TIMES_FLEET = 3.0
"""A lemon fails at least this many times as often as its fleet."""
TIMES_FLEET_HALF = 2.0
"""And in each half at least this many: half a window holds few faults, so the limit is lower."""
POSTERIOR_MIN = 0.9
PULL_ALPHA = 0.01
"""The halves must agree at this level before a node is named: pulling a node costs more than reading a sentence."""
NODES_MIN = 10
STAYED_MIN = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the table of suspects, shrunken towards the fleet."""

    node: int
    """0-based."""
    count: int
    first_half: int
    second_half: int
    rate: float
    """Own count over own exposure."""
    shrunken_rate: float
    """Posterior mean."""
    p_lemon: float
    """Posterior probability of more than three times the fleet's rate."""
    p: float
    """Chance of this many under the fleet's rate (one-sided Poisson)."""
    p_adjusted: float
    """The same after Benjamini-Hochberg over all nodes."""
    is_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemons:
    """Heterogeneity, persistence, and the nodes that follow."""

    nodes: int
    events: int
    dispersion: float
    """Variance over mean of the counts per node."""
    shape: float | None
    """Of the gamma law of rates: small is unequal; None below ten events or nodes."""
    likelihood_ratio: float | None
    """Twice the log likelihood over one common rate (-> chi-square)."""
    unequal: Finding
    persistence: Finding
    top: tuple[Node, ...]
    """The nodes with the highest shrunken rates, flagged or not."""
    naive: int
    """Nodes with p below 0.05 and no control: what a plain list would name."""
    controlled: int
    """Nodes left after Benjamini-Hochberg, before persistence is asked."""
    sentence: str
    recent: tuple[RecentlyBad, ...] = ()
    """Nodes that look bad in the recent part only: leads, never named for pulling."""
    limit: str = "Not flagged is not healthy: with few faults per node a real lemon cannot be told from bad luck."

    @property
    def flagged(self) -> tuple[Node, ...]:
        """The nodes to pull."""
        return tuple(node for node in self.top if node.is_flagged)


class _Table(NamedTuple):
    """The rows that are shown, and the p values of all nodes."""

    rows: tuple[Node, ...]
    p: np.ndarray
    adjusted: np.ndarray


def lemons(
    times_h: np.ndarray,
    node: np.ndarray,
    *,
    nodes: int,
    window_h: float,
    exposure: np.ndarray | None = None,
    top: int = 20,
) -> Lemons:
    """The lemon study. `nodes` counts all nodes at risk; `exposure` per node, the window for each when left out, and for
    the nodes beyond its length.

    Assumes: rates constant per node for the fit, which is what the persistence test examines.
    Source: see the module.
    """
    import numpy as np

    times, node = np.asarray(times_h, dtype=np.float64), np.asarray(node, dtype=np.int64)
    recent = recently_bad(times, node, nodes=nodes, window_h=window_h)
    fleet = _counted(times, node, nodes=nodes, window_h=window_h, exposure=exposure)
    counts, at_risk, silent = fleet.counts, fleet.at_risk, fleet.silent
    enough = len(times) >= EVENTS_MIN and nodes >= NODES_MIN
    fit = fit_gamma_poisson(counts, at_risk, silent=silent) if enough else None
    unequal = _unequal(fit, counts, nodes=nodes)
    lasts = _lasting(fleet)
    lasts_surely = lasts.p is not None and lasts.p < PULL_ALPHA
    table, p, adjusted = _table(fleet, fit, lasts=lasts_surely, top=top)
    flagged = [row.node for row in table if row.is_flagged]
    return Lemons(
        nodes=nodes,
        events=len(times),
        dispersion=index_of(counts, of=nodes),
        shape=fit.shape if fit else None,
        likelihood_ratio=fit.likelihood_ratio if fit else None,
        unequal=unequal,
        persistence=lasts,
        top=table,
        naive=int((p < ALPHA).sum()),
        controlled=int((adjusted < ALPHA).sum()),
        sentence=_sentence(table, unequal, lasts),
        recent=tuple(found for found in recent if enough and found.node not in flagged),
    )


class _Fleet(NamedTuple):
    """Counts of the nodes that are listed, and how many more there are."""

    listed: np.ndarray
    """Their numbers."""
    counts: np.ndarray
    halves: tuple[np.ndarray, np.ndarray]
    at_risk: np.ndarray
    """Hours of each."""
    silent: Silent


def _counted(
    times: np.ndarray,
    node: np.ndarray,
    *,
    nodes: int,
    window_h: float,
    exposure: np.ndarray | None,
) -> _Fleet:
    import numpy as np

    if exposure is None:
        # Nodes without a fault are counted, not listed.
        listed, node = np.unique(node, return_inverse=True)
        at_risk = np.full(len(listed), float(window_h))
    else:
        at_risk = np.asarray(exposure, dtype=np.float64)
        listed = np.arange(len(at_risk))
    is_late = times > window_h / 2
    first, second = (np.bincount(node[rows], minlength=len(listed)) for rows in (~is_late, is_late))
    silent = Silent(nodes - len(listed), float(window_h))
    return _Fleet(listed, first + second, (first, second), at_risk, silent)


def _lasting(fleet: _Fleet) -> Finding:
    """Persistence over the nodes that were there: one that came late or left early cannot repeat anything."""
    silent = fleet.silent
    longest = max(fleet.at_risk.max(initial=0.0), silent.exposure if silent.nodes else 0.0)
    stayed = fleet.at_risk >= STAYED_MIN * longest
    others = silent.nodes if silent.exposure >= STAYED_MIN * longest else 0
    return persistence(fleet.halves[0][stayed], fleet.halves[1][stayed], silent=others)


def persistence(first: np.ndarray, second: np.ndarray, *, silent: int = 0) -> Finding:
    """Do nodes with many faults in the first half have many in the second?

    `silent` more nodes had no fault in either.

    Assumes: exchangeable nodes under the null; the permutation law of the correlation, in its normal limit.
    Source: permutation test of a correlation, Pitman (1937).
    """
    import numpy as np

    n, events = len(first) + silent, int(first.sum() + second.sum())
    null = "the first half says nothing about the second"
    source, assumes = (
        "correlation of half counts; Pitman (1937)",
        "nodes exchangeable and at risk in both halves",
    )
    if events < EVENTS_MIN or n < NODES_MIN or not (_varies(first, n) and _varies(second, n)):
        return too_few("persistence", null=null, n=events, source=source, assumes=assumes)
    r = _correlation(first, second, n)
    p = 0.5 * math.erfc(r * math.sqrt(n - 1) / math.sqrt(2))
    # The nodes that led the first half: what became of them?
    leads = first >= max(2, int(np.quantile(first[first > 0], 0.9)))
    after, fleet = (float(second[leads].mean()) if leads.any() else 0.0), float(second.sum()) / n
    story = f"nodes that led the first half had {after:.2f} faults each in the second, the fleet {fleet:.2f}"
    is_rejected = p < ALPHA
    return Finding(
        test="persistence",
        null=null,
        statistic=r,
        statistic_name="r",
        p=p,
        n=events,
        is_rejected=is_rejected,
        sentence=(
            f"High counts last: correlation {r:+.2f} between the halves ({format_p(p)}); {story}."
            if is_rejected
            else f"High counts do not last: correlation {r:+.2f} between the halves ({format_p(p)}); {story}."
        ),
        limit="A node repaired for good at half time looks like one that never was a lemon.",
        source=source,
        assumes=assumes,
    )


def _varies(counts: np.ndarray, n: int) -> bool:
    return bool(
        counts.max(initial=0) > (counts.min(initial=0) if len(counts) < n else counts.min())
    )


def _correlation(first: np.ndarray, second: np.ndarray, n: int) -> float:
    """Correlation over n pairs; those that the arrays lack are zero in both."""
    a, b = first - first.sum() / n, second - second.sum() / n
    missing, a0, b0 = n - len(first), first.sum() / n, second.sum() / n
    together = float((a * b).sum()) + missing * a0 * b0
    squares = (float((a * a).sum()) + missing * a0 * a0) * (
        float((b * b).sum()) + missing * b0 * b0
    )
    return together / math.sqrt(squares)


def _unequal(fit: GammaPoisson | None, counts: np.ndarray, *, nodes: int) -> Finding:
    null, n = "all nodes have one rate (Poisson)", int(counts.sum())
    source, assumes = (
        "gamma-Poisson likelihood ratio; Gelman and others (2013) 2.7",
        "independent faults on each node",
    )
    if fit is None:
        return too_few("equal nodes", null=null, n=n, source=source, assumes=assumes)
    # The shape lies at the edge of its range under the null: half of the chi-square tail.
    p = 0.5 * chi_square_tail(fit.likelihood_ratio, 1)
    is_rejected = p < ALPHA
    return Finding(
        test="equal nodes",
        null=null,
        statistic=fit.likelihood_ratio,
        statistic_name="likelihood ratio",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=(
            f"Counts per node differ more than chance (dispersion {index_of(counts, of=nodes):.2f}, {format_p(p)})."
            if is_rejected
            else f"Counts per node differ no more than chance (dispersion {index_of(counts, of=nodes):.2f}, {format_p(p)})."
        ),
        limit="Bursts on one node make unequal counts without any lemon: see persistence.",
        source=source,
        assumes=assumes,
    )


def _table(fleet: _Fleet, fit: GammaPoisson | None, *, lasts: bool, top: int) -> _Table:
    import numpy as np
    from scipy.special import gammainc

    listed, counts, halves, exposure, silent = fleet
    if fit is None:
        return _Table((), np.ones(len(counts)), np.ones(len(counts)))
    safe = np.maximum(exposure, 1e-300)
    expected = fit.mean_rate * exposure
    p = np.where(counts > 0, gammainc(np.maximum(counts, 1), expected), 1.0)
    adjusted = benjamini_hochberg(p, tests=len(p) + silent.nodes)
    prior = fit.shape / fit.mean_rate
    shrunken = (fit.shape + counts) / (prior + exposure)
    p_lemon = probability_above(TIMES_FLEET * fit.mean_rate, counts, exposure, silent=silent)
    # Its own halves must agree, too: a node whose faults all came in one half had a bad time, and is no lemon.
    repeats = np.minimum(halves[0], halves[1]) > TIMES_FLEET_HALF * fit.mean_rate * exposure / 2
    flagged = lasts & repeats & (p_lemon > POSTERIOR_MIN) & (adjusted < ALPHA)
    # Every flagged node is in the table, however long it gets.
    order = np.lexsort((-counts, -shrunken, ~flagged))[: max(top, int(flagged.sum()))]
    rows = tuple(
        Node(
            node=int(listed[i]),
            count=int(counts[i]),
            first_half=int(halves[0][i]),
            second_half=int(halves[1][i]),
            rate=float(counts[i] / safe[i]),
            shrunken_rate=float(shrunken[i]),
            p_lemon=float(p_lemon[i]),
            p=float(p[i]),
            p_adjusted=float(adjusted[i]),
            is_flagged=bool(flagged[i]),
        )
        for i in order
        if counts[i] > 0
    )
    return _Table(rows, p, adjusted)


def _sentence(table: tuple[Node, ...], unequal: Finding, lasts: Finding) -> str:
    flagged = sum(node.is_flagged for node in table)
    if unequal.is_rejected is None or lasts.is_rejected is None:
        return "Too few faults or nodes to look for lemons."
    if flagged:
        nodes = "1 node keeps" if flagged == 1 else f"{flagged} nodes keep"
        return f"{nodes} failing at more than {TIMES_FLEET:g} times the rate of the fleet: pull and examine."
    if not unequal.is_rejected:
        return "No lemon: the counts per node are what chance gives."
    if not lasts.is_rejected:
        return "No node to pull: counts differ, but the order of the first half does not repeat in the second."
    return f"No node to pull: none is above {TIMES_FLEET:g} times the fleet's rate with enough certainty."
