"""The tail of a Poisson count and its inverse, for the small counts of one run: scipy takes 0.3 s to load.

For a whole count both are sums of a few terms. The sum runs where the terms fall, so nothing cancels, and it stops
where they no longer count. Large counts, of fleets, go to scipy, which has expansions for them.
"""

from __future__ import annotations

import math
from functools import lru_cache

COUNT_MAX = 100
"""Up to here the sums are short, and agree with scipy to 1e-12."""


def poisson_tail(count: int, mean: float) -> float:
    """P(N >= count) for a Poisson variable with this mean; 1 for a count of zero.

    Source: the sum of Poisson terms, which for a whole count is the incomplete gamma function P(count, mean).
    """
    assert count >= 0, "a count is not negative"
    assert mean >= 0, "a mean is not negative"
    if count == 0 or mean == 0:
        return float(count == 0)
    if count > COUNT_MAX:
        from scipy.special import gammainc

        return float(gammainc(count, mean))
    if mean < count:
        return _sum(count, mean, step=1)
    return 1.0 - _sum(count - 1, mean, step=-1)


@lru_cache(maxsize=1024)
def mean_of_tail(count: int, probability: float) -> float:
    """The mean at which P(N >= count) is the probability: the quantile of a gamma variable of this shape."""
    assert count > 0, "every mean gives zero or more"
    assert 0 < probability < 1, "a tail is a probability"
    if count > COUNT_MAX:
        from scipy.special import gammaincinv

        return float(gammaincinv(count, probability))
    low, high = 0.0, count + 1.0
    while poisson_tail(count, high) < probability:
        low, high = high, 2 * high
    middle = (low + high) / 2
    while low < middle < high:  # halves until no number lies between
        low, high = (middle, high) if poisson_tail(count, middle) < probability else (low, middle)
        middle = (low + high) / 2
    return middle


def _sum(first: int, mean: float, *, step: int) -> float:
    """Poisson terms from this count on, upwards or downwards, away from the mean."""
    term = math.exp(first * math.log(mean) - mean - math.lgamma(first + 1))
    total, count = 0.0, first
    while term > total * 1e-17 and count >= 0:
        total += term
        term *= mean / (count + 1) if step > 0 else count / mean
        count += step
    return total
