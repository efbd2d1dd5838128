"""The shape of the gaps: do failures come soon after failures?

A Weibull shape below 1 says that a gap is most likely to end early: failures follow failures. Above 1 they keep a
distance. The gap that the window's end cuts is censored and counted as such; leaving it out biases the shape.

Source: Weibull likelihood with right censoring, Meeker and Escobar (1998) chapter 8; likelihood ratio against 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.budget.dispersion import check_times
from lastgood.budget.finding import (
    ALPHA,
    EVENTS_MIN,
    Finding,
    chi_square_tail,
    format_p,
    too_few,
)

if TYPE_CHECKING:
    import numpy as np

CELLS = 4096
"""Gaps are collected in this many cells of equal logarithmic width once there are more of them."""
STEPS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GapShape:
    """The Weibull fit of the gaps between events."""

    shape: float | None
    """None below ten gaps, or when all gaps are equal."""
    shape_lo: float | None
    shape_hi: float | None
    scale_h: float | None
    cv: float
    """Standard deviation over mean of the gaps, zero gaps included: 1 for independent events."""
    gaps: int
    """Gaps longer than zero, which the shape rests on."""
    zero_gaps: int
    """Events at the instant of the one before, left out of the shape and counted here."""
    censored_h: float
    """The last gap, cut by the window's end."""
    level: float
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class WeibullFit:
    """Maximum likelihood estimates with their curvature."""

    shape: float
    scale: float
    log_shape_se: float
    """Standard error of the logarithm of the shape."""
    log_likelihood: float
    log_likelihood_exponential: float


class _Weighted(NamedTuple):
    """Values, and how often each counts."""

    values: np.ndarray
    weights: np.ndarray


def gap_shape(times_h: np.ndarray, window_h: float, *, level: float = 0.95) -> GapShape:
    """The Weibull shape of the gaps between events, with the test of shape 1.

    Assumes: gaps independent of each other; bursts make the shape small without any wear or infant mortality.
    Source: Meeker and Escobar (1998) chapter 8.
    """
    import numpy as np
    from scipy.special import ndtri

    times = check_times(times_h, window_h)
    gaps = np.diff(times)
    positive = gaps[gaps > 0]
    censored = window_h - float(times[-1]) if len(times) else window_h
    mean = float(gaps.mean()) if len(gaps) else 0.0
    cv = float(gaps.std(ddof=1)) / mean if len(gaps) > 1 and mean > 0 else 0.0
    fit = None
    if len(positive) >= EVENTS_MIN:
        fit = fit_weibull(positive, np.array([censored]) if censored > 0 else None)
    reach = -float(ndtri((1 - level) / 2)) * fit.log_shape_se if fit else 0.0
    return GapShape(
        shape=fit.shape if fit else None,
        shape_lo=fit.shape * math.exp(-reach) if fit else None,
        shape_hi=fit.shape * math.exp(reach) if fit else None,
        scale_h=fit.scale if fit else None,
        cv=cv,
        gaps=len(positive),
        zero_gaps=len(gaps) - len(positive),
        censored_h=censored,
        level=level,
        finding=_judge(fit, len(positive), len(gaps) - len(positive)),
    )


def fit_weibull(exact: np.ndarray, censored: np.ndarray | None = None) -> WeibullFit | None:
    """Shape and scale from complete and right-censored durations above zero; None when they have no spread.

    Assumes: independent durations of one Weibull law; censoring that does not depend on them.
    Source: profile likelihood, Meeker and Escobar (1998) section 8.2; solved by Newton's method in the shape.
    """
    import numpy as np

    none = np.empty(0)
    x, w = _collected(np.asarray(exact, dtype=np.float64))
    c, v = _collected(none if censored is None else np.asarray(censored, dtype=np.float64))
    n = float(w.sum())
    top = float(max(x.max(), c.max() if len(c) else 0.0))
    logs, weights = np.log(np.concatenate((x, c)) / top), np.concatenate((w, v))
    sum_exact = float((w * np.log(x / top)).sum())
    if n < 2 or float(np.ptp(np.log(x))) == 0:
        return None
    shape = _solve_shape(logs, weights, mean_log=sum_exact / n)
    powers = weights * np.exp(shape * logs)
    s0, s1, s2 = (float((powers * logs**order).sum()) for order in (0, 1, 2))
    scale = top * (s0 / n) ** (1 / shape)
    # Curvature of the profile likelihood in the logarithm of the shape.
    information = n * (1 + shape * shape * (s2 / s0 - (s1 / s0) ** 2))
    likelihood = n * math.log(shape) + (shape - 1) * sum_exact - n * math.log(s0 / n) - n
    plain = float((weights * np.exp(logs)).sum())
    return WeibullFit(
        shape=shape,
        scale=scale,
        log_shape_se=1 / math.sqrt(information),
        log_likelihood=likelihood - n * math.log(top),
        log_likelihood_exponential=-n * math.log(plain / n) - n - n * math.log(top),
    )


def _solve_shape(logs: np.ndarray, weights: np.ndarray, *, mean_log: float) -> float:
    """The root of the profile score: s1 / s0 - 1 / shape - mean of the logarithms, which rises with the shape."""
    import numpy as np

    lo, hi, shape = 1e-4, 1e4, 1.0
    for _ in range(STEPS_MAX):
        powers = weights * np.exp(shape * logs)
        s0, s1, s2 = (float((powers * logs**order).sum()) for order in (0, 1, 2))
        score = s1 / s0 - 1 / shape - mean_log
        lo, hi = (shape, hi) if score < 0 else (lo, shape)
        step = score / (s2 / s0 - (s1 / s0) ** 2 + 1 / shape**2)
        following = shape - step
        if not lo < following < hi:
            following = math.sqrt(lo * hi)
        if abs(following - shape) <= 1e-12 * shape:
            return following
        shape = following
    return shape


def _collected(values: np.ndarray) -> _Weighted:
    """The values with weights; very many are collected in cells that are 1 % wide or less."""
    import numpy as np

    if len(values) <= 4 * CELLS:
        return _Weighted(values, np.ones(len(values)))
    logs = np.log(values)
    lo, width = float(logs.min()), float(np.ptp(logs)) / CELLS or 1.0
    at = np.minimum(((logs - lo) / width).astype(np.int64), CELLS - 1)
    weights = np.bincount(at, minlength=CELLS).astype(np.float64)
    sums = np.bincount(at, weights=logs, minlength=CELLS)
    is_used = weights > 0
    return _Weighted(np.exp(sums[is_used] / weights[is_used]), weights[is_used])


def _judge(fit: WeibullFit | None, n: int, zeros: int) -> Finding:
    null, source = (
        "gaps like those of independent events (Weibull shape 1)",
        "likelihood ratio; Meeker and Escobar (1998)",
    )
    assumes = "gaps independent of each other"
    if fit is None:
        return too_few("Weibull shape", null=null, n=n, source=source, assumes=assumes)
    ratio = max(0.0, 2 * (fit.log_likelihood - fit.log_likelihood_exponential))
    p = chi_square_tail(ratio, 1)
    is_rejected = p < ALPHA
    what = "failures follow soon on failures" if fit.shape < 1 else "failures keep a distance"
    left_out = f" {zeros} gaps of zero length are left out." if zeros else ""
    return Finding(
        test="Weibull shape",
        null=null,
        statistic=fit.shape,
        statistic_name="shape",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=(
            f"{what[0].upper()}{what[1:]}: shape {fit.shape:.2f} ({format_p(p)}).{left_out}"
            if is_rejected
            else f"The gaps look like those of independent events: shape {fit.shape:.2f} ({format_p(p)}).{left_out}"
        ),
        limit="A rate that changes makes the same shape as failures that cause failures.",
        source=source,
        assumes=assumes,
    )
