"""How long it takes, with what is still open counted as open: percentiles of durations with censoring.

The mean of the closed incidents is too short: the long ones are the ones still open. An open incident says "at least
this long", and the Kaplan-Meier estimate uses exactly that. A percentile that the record cannot reach is *not
estimable*, which is an answer.

Source: Kaplan and Meier (1958); variance, Greenwood (1926); bounds on log(-log), Kalbfleisch and Prentice (2002) 1.4;
percentile bounds, Brookmeyer and Crowley (1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput
from lastgood.budget.share import Band

if TYPE_CHECKING:
    import numpy as np

QUANTILES = (0.5, 0.9, 0.99)
POINTS_MAX = 1000
"""Steps of the curve that are kept for drawing; percentiles come from all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """The time by which a share of the incidents is done."""

    quantile: float
    value_h: float | None
    """None: not estimable, fewer than this share are known to be done."""
    lo_h: float | None
    hi_h: float | None
    """None: no upper bound from these records."""

    @property
    def name(self) -> str:
        """Such as p90."""
        return f"p{self.quantile * 100:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """One duration (detection, diagnosis, recovery, ...) over all incidents that have begun it."""

    name: str
    percentiles: tuple[Percentile, ...]
    n: int
    """Closed and open together."""
    open: int
    """Still running: they count as longer than seen."""
    steps_h: np.ndarray
    """Durations at which the curve falls, a thousand of them at most,"""
    surviving: np.ndarray
    """and the share longer than each."""
    level: float
    sentence: str
    limit: str = "Open incidents are taken to go on like those that lasted as long; ones never recorded are not in it."
    source: str = "Kaplan and Meier (1958), Greenwood (1926), log(-log) bounds"
    assumes: str = "an incident is not open because it will be a long one, beyond its length so far"

    def at(self, quantile: float) -> Percentile:
        """The percentile for one of the computed shares."""
        return next(p for p in self.percentiles if p.quantile == quantile)


@dataclass(frozen=True, slots=True, kw_only=True)
class KaplanMeier:
    """The curve: share of incidents that last longer than each duration."""

    steps_h: np.ndarray
    surviving: np.ndarray
    greenwood: np.ndarray
    """Greenwood's sum: the variance is the square of the share times this."""


def kaplan_meier(closed_h: np.ndarray, open_h: np.ndarray) -> KaplanMeier:
    """The product-limit estimate at every duration at which something ended.

    Assumes: censoring that tells nothing about the rest.
    Source: Kaplan and Meier (1958); Greenwood (1926). What is open at a duration counts as at risk there.
    """
    import numpy as np

    closed, still = np.sort(closed_h), np.sort(open_h)
    first = np.flatnonzero(np.diff(closed, prepend=-1.0))
    steps = closed[first]
    done = np.diff(first, append=len(closed))
    at_risk = (len(closed) - first) + (len(still) - np.searchsorted(still, steps))
    with np.errstate(divide="ignore"):
        greenwood = np.cumsum(np.where(at_risk > done, done / (at_risk * (at_risk - done)), np.inf))
    return KaplanMeier(steps_h=steps, surviving=np.cumprod(1 - done / at_risk), greenwood=greenwood)


def durations(
    name: str,
    closed_h: np.ndarray,
    open_h: np.ndarray | None = None,
    *,
    quantiles: tuple[float, ...] = QUANTILES,
    level: float = 0.95,
) -> Durations:
    """Percentiles of a duration from closed incidents and from the ages of open ones.

    Assumes: see `Durations.assumes`.
    Source: Kaplan and Meier (1958); Brookmeyer and Crowley (1982) for the bounds.
    """
    import numpy as np

    closed = np.asarray(closed_h, dtype=np.float64)
    still = np.asarray(() if open_h is None else open_h, dtype=np.float64)
    everything = np.concatenate((closed, still))
    if len(everything) and not (np.isfinite(everything).all() and everything.min() >= 0):
        raise BadInput("a duration is zero or more", found=f"{everything.min()} h", where=name)
    curve = kaplan_meier(closed, still)
    lower, upper = _bounds(curve, level)
    percentiles = tuple(
        Percentile(
            quantile=q,
            value_h=_first(curve.steps_h, curve.surviving, 1 - q),
            lo_h=_first(curve.steps_h, lower, 1 - q),
            hi_h=_first(curve.steps_h, upper, 1 - q),
        )
        for q in quantiles
    )
    drawn = np.unique(np.linspace(0, max(len(curve.steps_h) - 1, 0), POINTS_MAX).astype(np.int64))
    drawn = drawn[: len(curve.steps_h)]
    return Durations(
        name=name,
        percentiles=percentiles,
        n=len(everything),
        open=len(still),
        steps_h=curve.steps_h[drawn],
        surviving=curve.surviving[drawn],
        level=level,
        sentence=_sentence(name, percentiles, len(closed), len(still)),
    )


def _bounds(curve: KaplanMeier, level: float) -> Band:
    """Pointwise bounds of the surviving share on the log(-log) scale; where it reaches 0 or 1 there are none."""
    import numpy as np
    from scipy.special import ndtri

    z = -float(ndtri((1 - level) / 2))
    s = curve.surviving
    inside = (s > 0) & (s < 1)
    lower, upper = np.where(s >= 1, 1.0, 0.0), np.where(s <= 0, 0.0, 1.0)
    log_s = np.log(s[inside])
    reach = z * np.sqrt(curve.greenwood[inside]) / np.abs(log_s)
    lower[inside] = np.exp(log_s * np.exp(reach))
    upper[inside] = np.exp(log_s * np.exp(-reach))
    return Band(lower, upper)


def _first(steps_h: np.ndarray, surviving: np.ndarray, share: float) -> float | None:
    """The first duration at which the curve is at or below the share."""
    import numpy as np

    # Shares such as 1 - 0.9 are not exact: a curve that reaches one tenth must count as having reached it.
    below = np.flatnonzero(surviving <= share * (1 + 1e-12) + 1e-15)
    return float(steps_h[below[0]]) if len(below) else None


def format_hours(hours: float | None) -> str:
    """A duration as people read it; `not estimable` for None."""
    from lastgood.base.units import format_duration

    if hours is None:
        return "not estimable"
    return "0 s" if hours == 0 else format_duration(round(hours * 3.6e9))


def _sentence(name: str, percentiles: tuple[Percentile, ...], closed: int, still: int) -> str:
    if not closed + still:
        return f"{name}: not observed."
    shown = ", ".join(f"{p.name} {format_hours(p.value_h)}" for p in percentiles)
    others = f", {still} still open and counted as longer than so far" if still else ""
    few = "" if math.isfinite(closed) and closed >= 10 else " Few: take it as a list, not as a law."
    return f"{name}: {shown} ({closed} closed{others}).{few}"
