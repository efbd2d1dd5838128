"""The power-law process (Crow-AMSAA): how fast the cumulative count grows, as one number.

The expected count up to t is (t / scale)^shape. Shape 1 is a constant rate, above 1 a rising, below 1 a falling one.
It is a description of this window with two numbers; using it beyond the window is a projection.

Source: Crow (1974); MIL-HDBK-189C (2011) section 6.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.dispersion import check_times
from lastgood.budget.finding import EVENTS_MIN
from lastgood.budget.trend import Truncation

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """The fit with its intervals."""

    shape: float
    """Maximum likelihood estimate of the exponent."""
    shape_lo: float
    shape_hi: float
    """The exact interval of a power-law Poisson process."""
    shape_lo_dispersed: float
    shape_hi_dispersed: float
    """The same widened by the dispersion of the counts: what to quote on clustered failures."""
    scale_h: float
    """Time of the first expected event."""
    rate_at_end: float
    """Fitted rate at the window's end, per unit of the times."""
    n: int
    level: float
    sentence: str


def fit_power_law(
    times_h: np.ndarray,
    window_h: float,
    *,
    truncation: Truncation = Truncation.TIME,
    dispersion: float = 1.0,
    level: float = 0.95,
) -> PowerLaw | None:
    """The maximum likelihood fit; None below ten events.

    Assumes: a Poisson process for the exact interval; a constant dispersion for the widened one.
    Source: Crow (1974); MIL-HDBK-189C (2011): 2 n shape / estimate is chi-square (time-truncated: 2 n degrees,
    failure-truncated: 2 (n - 1)).
    """
    import numpy as np
    from scipy.special import gammaincinv, ndtri

    times = check_times(times_h, window_h)
    n = len(times)
    if n < EVENTS_MIN:
        return None
    end_h = float(times[-1]) if truncation is Truncation.FAILURE else window_h
    total = float(np.log(end_h / np.maximum(times, end_h * 1e-12)).sum())
    if total <= 0:
        return None
    shape = n / total
    half = n - 1 if truncation is Truncation.FAILURE else n
    tail = (1 - level) / 2
    lo, hi = (shape * float(gammaincinv(half, q)) / n for q in (tail, 1 - tail))
    reach = -float(ndtri(tail)) * math.sqrt(max(1.0, dispersion) / n)
    lo_dispersed, hi_dispersed = min(lo, shape * math.exp(-reach)), max(hi, shape * math.exp(reach))
    way = "rises" if lo_dispersed > 1 else "falls" if hi_dispersed < 1 else "shows no clear slope"
    return PowerLaw(
        shape=shape,
        shape_lo=lo,
        shape_hi=hi,
        shape_lo_dispersed=lo_dispersed,
        shape_hi_dispersed=hi_dispersed,
        scale_h=end_h / n ** (1 / shape),
        rate_at_end=shape * n / end_h,
        n=n,
        level=level,
        sentence=(
            f"As a power law the rate {way}: exponent {shape:.2f} "
            f"({lo_dispersed:.2f} to {hi_dispersed:.2f}; constant is 1)."
        ),
    )
