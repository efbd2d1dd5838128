"""Intervals of quantiles that assume no distribution: two of the observed values, chosen by an exact binomial.

Source: order statistics; the number of values below the true quantile is binomial (David and Nagaraja, 2003, 7.1).
Assumes: independent values of one distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class QuantileRanks(NamedTuple):
    """Places (0-based) among n ascending values; an end is None when n is too small for it."""

    value: int
    lo: int | None
    hi: int | None


def quantile_ranks(n: int, share: float, *, level: float) -> QuantileRanks:
    """Which of n ascending values is the quantile (nearest rank), and which two enclose the true one.

    Args: `share` and `level` between 0 and 1. Both tails share the error.
    """
    assert n > 0, "a quantile needs a value"
    tail = (1 - level) / 2
    low = _binomial_quantile(tail, n, share)
    high = _binomial_quantile(1 - tail, n, share) + 1
    has_low = low >= 1 and _binomial_up_to(low - 1, n, share) <= tail
    return QuantileRanks(
        value=min(n - 1, max(0, math.ceil(share * n - 1e-9) - 1)),
        lo=low - 1 if has_low else None,
        hi=high - 1 if high <= n else None,
    )


def _binomial_up_to(count: int, n: int, share: float) -> float:
    # scipy.stats would say the same and take half a second to load.
    from scipy.special import bdtr

    return float(bdtr(count, n, share))


def _binomial_quantile(chance: float, n: int, share: float) -> int:
    """The smallest count that is not exceeded with at least this chance."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if _binomial_up_to(middle, n, share) >= chance else (middle + 1, high)
        )
    return low
