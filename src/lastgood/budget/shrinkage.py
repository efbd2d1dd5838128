"""Rates of single nodes borrowed from their fleet: a gamma law for the summary, a free-form law for the tail.

The gamma law says how unequal a fleet is, in one number. For the question *is this node a lemon* its tail is the
wrong guide: three bad nodes among two hundred good ones make a fleet that looks nearly equal, and the gamma law then
pulls the three back among the others. There the law of rates is left free and estimated from all nodes together.

Source: empirical Bayes, Robbins (1956); gamma-Poisson, Gelman and others (2013) section 2.7; free-form law, Laird
(1978), by expectation-maximisation on a grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

SHAPE_MIN, SHAPE_MAX = 1e-3, 1e6
GRID, STEPS = 80, 100
"""Rates on a logarithmic grid, and steps from a flat start. More steps would pile the law up on a few rates, and a
probability beyond a limit would then hang on which side of it a pile happens to stand."""

ROUNDED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaPoisson:
    """Rates of nodes as a gamma law: mean rate and shape."""

    mean_rate: float
    shape: float
    likelihood_ratio: float


class Silent(NamedTuple):
    """Nodes without an event that are only counted: a typed number of nodes may be in the millions."""

    nodes: int = 0
    exposure: float = 0.0
    """Of each of them."""


NO_SILENT = Silent()


class _Profile(NamedTuple):
    """The best rate for one shape."""

    rate: float
    log_likelihood: float


def fit_gamma_poisson(
    counts: np.ndarray, exposure: np.ndarray, *, silent: Silent = NO_SILENT
) -> GammaPoisson:
    """Mean rate and shape by maximum likelihood, with the likelihood ratio against one common rate.

    `silent` nodes are fitted with those of the arrays.

    Assumes: rates of nodes drawn from one gamma law, counts Poisson given the rate.
    Source: negative binomial likelihood, Gelman and others (2013) section 2.7; golden section over the log of the
    shape, Newton's method for the rate inside.
    """
    import numpy as np

    used = exposure > 0
    # Nodes with the same count and exposure have the same likelihood: one row each.
    rows, weights = np.unique(np.stack((counts[used], exposure[used])), axis=1, return_counts=True)
    if silent.nodes:
        rows = np.append(rows, [[0.0], [silent.exposure]], axis=1)
        weights = np.append(weights, silent.nodes)
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


def probability_above(
    limit: float, counts: np.ndarray, exposure: np.ndarray, *, silent: Silent = NO_SILENT
) -> np.ndarray:
    """For every node the probability that its rate is above the limit, given its count and all others.

    `silent` nodes are among the others.

    Assumes: rates of nodes drawn from one law of any form, counts Poisson given the rate.
    Source: Laird (1978), nonparametric maximum likelihood of a mixing law, stopped early so that it stays smooth.
    """
    import numpy as np

    # Exposures within one percent of each other share a row: five thousand nodes that came at five thousand times.
    at_risk = _rounded(exposure)
    rows, back, weights = np.unique(
        np.stack((counts, at_risk)), axis=1, return_inverse=True, return_counts=True
    )
    if silent.nodes:
        rows = np.append(rows, [[0.0], [float(_rounded(silent.exposure))]], axis=1)
        weights = np.append(weights, silent.nodes)
    c, e = rows[0][:, None], rows[1][:, None]
    mean = counts.sum() / (exposure.sum() + silent.nodes * silent.exposure)
    highest = max(float((counts / at_risk)[exposure > 0].max()), limit) * 1.5
    grid = np.geomspace(mean / 100, highest, GRID)[None, :]
    logs = c * np.log(grid * e) - grid * e
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    share = weights / weights.sum()
    law = np.full(GRID, 1 / GRID)
    for _ in range(STEPS):
        joint = likelihood * law
        law = share @ (joint / joint.sum(axis=1, keepdims=True))
    joint = likelihood * law
    above = joint[:, grid[0] > limit].sum(axis=1) / joint.sum(axis=1)
    return above[np.ravel(back)]


def _rounded(exposure: ArrayLike) -> np.ndarray:
    import numpy as np

    return np.exp(np.rint(np.log(np.maximum(exposure, 1e-300)) / ROUNDED) * ROUNDED)
