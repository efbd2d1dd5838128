"""Shares and their uncertainty: how many of how many, against chance.

Source: Clopper and Pearson (1934); the binomial tail through the incomplete beta function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Bounds(NamedTuple):
    """The two ends of an interval."""

    lo: float
    hi: float


class Band(NamedTuple):
    """The two ends of an interval at every point of a curve."""

    lo: np.ndarray
    hi: np.ndarray


def clopper_pearson(count: int, n: int, *, level: float = 0.95) -> Bounds:
    """The exact interval of a share.

    Assumes: independent trials with one chance.
    Source: Clopper and Pearson (1934).
    """
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    lo = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    hi = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return Bounds(lo, hi)


def binomial_tail(count: int, n: int, chance: float) -> float:
    """P(at least `count` of `n` trials with this chance).

    Assumes: independent trials with one chance.
    Source: incomplete beta function, Abramowitz and Stegun (1964) 26.5.24.
    """
    from scipy.special import betainc

    if count <= 0:
        return 1.0
    return float(betainc(count, n - count + 1, chance)) if count <= n else 0.0
