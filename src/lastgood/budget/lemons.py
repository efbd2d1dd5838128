"""Which nodes to pull: nodes whose rate is high and *stays* high.

In every fleet some nodes have more faults than others, and most of the list is chance or one bad week. Four steps,
and a node is named only if all of them agree: the fleet is unequal at all (a gamma-Poisson fit against one rate for
all), the order of the first half repeats in the second half, the node's own rate is above three times the fleet's with
probability 0.9 after shrinkage, and its count survives false-discovery control. Where the halves do not repeat, the
counts are bursts around failed repairs, and pulling the top of the list would pull the wrong nodes.

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

if TYPE_CHECKING:
    import numpy as np

TIMES_FLEET = 3.0
"""A lemon fails at least this many times as often as its fleet."""
POSTERIOR_MIN = 0.9
NODES_MIN = 10
STAYED_MIN = 0.9
SHAPE_MIN, SHAPE_MAX = 1e-3, 1e6


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
    limit: str = "Not flagged is not healthy: with few faults per node a real lemon cannot be told from bad luck."

    @property
    def flagged(self) -> tuple[Node, ...]:
        """The nodes to pull."""
        return tuple(node for node in self.top if node.is_flagged)


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaPoisson:
    """Rates of nodes as a gamma law: mean rate and shape."""

    mean_rate: float
    shape: float
    likelihood_ratio: float


class _Profile(NamedTuple):
    """The best rate for one shape."""

    rate: float
    log_likelihood: float


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
    """The lemon study. `nodes` counts all nodes at risk; `exposure` per node, the window for each when left out.

    Assumes: rates constant per node for the fit, which is what the persistence test examines.
    Source: see the module.
    """
    import numpy as np

    times, node = np.asarray(times_h, dtype=np.float64), np.asarray(node, dtype=np.int64)
    at_risk = (
        np.full(nodes, float(window_h))
        if exposure is None
        else np.asarray(exposure, dtype=np.float64)
    )
    counts = np.bincount(node, minlength=nodes)
    is_late = times > window_h / 2
    halves = (
        np.bincount(node[~is_late], minlength=nodes),
        np.bincount(node[is_late], minlength=nodes),
    )
    enough = len(times) >= EVENTS_MIN and nodes >= NODES_MIN
    fit = fit_gamma_poisson(counts, at_risk) if enough else None
    unequal = _unequal(fit, counts, enough=enough)
    # A node that came late or left early cannot repeat anything.
    stayed = at_risk >= STAYED_MIN * at_risk.max(initial=0.0)
    lasts = persistence(halves[0][stayed], halves[1][stayed])
    table, p, adjusted = _table(counts, at_risk, halves, fit, lasts.is_rejected, top)
    return Lemons(
        nodes=nodes,
        events=len(times),
        dispersion=index_of(counts),
        shape=fit.shape if fit else None,
        likelihood_ratio=fit.likelihood_ratio if fit else None,
        unequal=unequal,
        persistence=lasts,
        top=table,
        naive=int((p < ALPHA).sum()),
        controlled=int((adjusted < ALPHA).sum()),
        sentence=_sentence(table, unequal, lasts),
    )


def fit_gamma_poisson(counts: np.ndarray, exposure: np.ndarray) -> GammaPoisson:
    """Mean rate and shape by maximum likelihood, with the likelihood ratio against one common rate.

    Assumes: rates of nodes drawn from one gamma law, counts Poisson given the rate.
    Source: negative binomial likelihood, Gelman and others (2013) section 2.7; golden section over the log of the
    shape, Newton's method for the rate inside.
    """
    import numpy as np

    used = exposure > 0
    # Nodes with the same count and exposure have the same likelihood: one row each.
    rows, weights = np.unique(np.stack((counts[used], exposure[used])), axis=1, return_counts=True)
    c, e, w = rows[0], rows[1], weights.astype(np.float64)
    pooled = float((w * c).sum() / (w * e).sum())
    lo, hi = math.log(SHAPE_MIN), math.log(SHAPE_MAX)
    golden = (math.sqrt(5) - 1) / 2
    a, b = hi - golden * (hi - lo), lo + golden * (hi - lo)
    value = lambda x: _profile(math.exp(x), pooled, c, e, w).log_likelihood  # noqa: E731
    fa, fb = value(a), value(b)
    for _ in range(60):
        if fa > fb:
            hi, b, fb = b, a, fa
            a = hi - golden * (hi - lo)
            fa = value(a)
        else:
            lo, a, fa = a, b, fb
            b = lo + golden * (hi - lo)
            fb = value(b)
    shape = math.exp((lo + hi) / 2)
    rate, best = _profile(shape, pooled, c, e, w)
    plain = float((w * (c * np.log(pooled * e) - pooled * e)).sum())
    return GammaPoisson(mean_rate=rate, shape=shape, likelihood_ratio=max(0.0, 2 * (best - plain)))


def _profile(shape: float, start: float, c: np.ndarray, e: np.ndarray, w: np.ndarray) -> _Profile:
    """The best rate for this shape, and the log likelihood there (without what depends on the counts alone)."""
    import numpy as np
    from scipy.special import gammaln

    rate = start
    for _ in range(50):
        mean = rate * e
        score = float((w * (c - mean) / (1 + mean / shape)).sum()) / rate
        information = float((w * e / (rate * (1 + mean / shape))).sum())
        step = score / information
        rate = max(rate + step, rate / 4)
        if abs(step) <= 1e-12 * rate:
            break
    mean = rate * e
    terms = gammaln(shape + c) - gammaln(shape) - c * math.log(shape)
    terms += c * np.log(mean) - (shape + c) * np.log1p(mean / shape)
    return _Profile(rate, float((w * terms).sum()))


def persistence(first: np.ndarray, second: np.ndarray) -> Finding:
    """Do nodes with many faults in the first half have many in the second?

    Assumes: exchangeable nodes under the null; the permutation law of the correlation, in its normal limit.
    Source: permutation test of a correlation, Pitman (1937).
    """
    import numpy as np

    n, events = len(first), int(first.sum() + second.sum())
    null = "the first half says nothing about the second"
    source, assumes = (
        "correlation of half counts; Pitman (1937)",
        "nodes exchangeable and at risk in both halves",
    )
    if events < EVENTS_MIN or n < NODES_MIN or not (np.ptp(first) and np.ptp(second)):
        return too_few("persistence", null=null, n=events, source=source, assumes=assumes)
    r = float(np.corrcoef(first, second)[0, 1])
    p = 0.5 * math.erfc(r * math.sqrt(n - 1) / math.sqrt(2))
    # The nodes that led the first half: what became of them?
    leads = first >= max(2, int(np.quantile(first[first > 0], 0.9)))
    after, fleet = (float(second[leads].mean()) if leads.any() else 0.0), float(second.mean())
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


def _unequal(fit: GammaPoisson | None, counts: np.ndarray, *, enough: bool) -> Finding:
    null, n = "all nodes have one rate (Poisson)", int(counts.sum())
    source, assumes = (
        "gamma-Poisson likelihood ratio; Gelman and others (2013) 2.7",
        "independent faults on each node",
    )
    if fit is None or not enough:
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
            f"Counts per node differ more than chance (dispersion {index_of(counts):.2f}, {format_p(p)})."
            if is_rejected
            else f"Counts per node differ no more than chance (dispersion {index_of(counts):.2f}, {format_p(p)})."
        ),
        limit="Bursts on one node make unequal counts without any lemon: see persistence.",
        source=source,
        assumes=assumes,
    )


def _table(
    counts: np.ndarray,
    exposure: np.ndarray,
    halves: tuple[np.ndarray, np.ndarray],
    fit: GammaPoisson | None,
    lasts: bool | None,
    top: int,
) -> _Table:
    import numpy as np
    from scipy.special import gammainc, gammaincc

    if fit is None:
        return _Table((), np.ones(len(counts)), np.ones(len(counts)))
    safe = np.maximum(exposure, 1e-300)
    expected = fit.mean_rate * exposure
    p = np.where(counts > 0, gammainc(np.maximum(counts, 1), expected), 1.0)
    adjusted = benjamini_hochberg(p)
    prior = fit.shape / fit.mean_rate
    shrunken = (fit.shape + counts) / (prior + exposure)
    p_lemon = gammaincc(fit.shape + counts, TIMES_FLEET * fit.mean_rate * (prior + exposure))
    flagged = bool(lasts) & (p_lemon > POSTERIOR_MIN) & (adjusted < ALPHA)
    # Every flagged node is in the table, however long it gets.
    order = np.lexsort((-counts, -shrunken, ~flagged))[: max(top, int(flagged.sum()))]
    rows = tuple(
        Node(
            node=int(i),
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
