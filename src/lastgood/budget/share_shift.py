"""By how much the useful share of time of one run lies above that of another.

A run is cut at the end of each incident: every piece has its useful time and its length, and the pieces are what
repeats. The share is the sum of the one over the sum of the other, never the mean of shares. Its error comes from how
the pieces scatter around it, so a run with one long and lucky piece is no proof.

Source: ratio estimator, Cochran (1977), 6.3; its variance by leaving out one piece at a time, Quenouille (1956) and
Tukey (1958); renewal reward, Ross (1996), 3.6; Welch (1947).
Assumes: independent pieces of one kind on each side. With few pieces of very different length the interval is a
little too narrow; its calibration is in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

METHOD = "difference of ratio estimators over pieces between incidents, jackknife, Welch"
PIECES_MIN = 4
"""Fewer on a side have no scatter to speak of."""


class Piece(NamedTuple):
    """From the end of one incident to the end of the next."""

    useful_us: float
    length_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareShift:
    """Share of B minus share of A: above 0 says that B is better."""

    share_a: float
    share_b: float
    difference: float
    lo: float
    hi: float
    level: float
    p: float
    n_a: int
    n_b: int

    @property
    def can_tell(self) -> bool:
        """Both sides have pieces enough to scatter."""
        return min(self.n_a, self.n_b) >= PIECES_MIN


def share_shift(a: Sequence[Piece], b: Sequence[Piece], *, level: float = 0.95) -> ShareShift:
    """The difference of the two shares.

    Assumes: see the module; pieces of some length on both sides.
    """
    from scipy.special import stdtrit

    one, two = _side(a), _side(b)
    difference = two.share - one.share
    error, degrees = _welch(one.variance, two.variance, len(a), len(b))
    is_known = min(len(a), len(b)) >= PIECES_MIN
    reach = -float(stdtrit(degrees, (1 - level) / 2)) * error if is_known else math.inf
    return ShareShift(
        share_a=one.share,
        share_b=two.share,
        difference=difference,
        lo=difference - reach,
        hi=difference + reach,
        level=level,
        p=_p(difference, error, degrees) if is_known else 1.0,
        n_a=len(a),
        n_b=len(b),
    )


def p_of_waste_ratio(a: Sequence[Piece], b: Sequence[Piece], ratio: float) -> float:
    """Two-sided p value of the hypothesis that A wastes `ratio` times the share that B wastes."""
    if min(len(a), len(b)) < PIECES_MIN:
        return 1.0
    one, two = _side(a), _side(b)
    excess = (1 - one.share) - ratio * (1 - two.share)
    error, degrees = _welch(one.variance, ratio**2 * two.variance, len(a), len(b))
    return _p(excess, error, degrees)


def pieces_needed(shift: ShareShift, a: Sequence[Piece], b: Sequence[Piece]) -> int | None:
    """How many pieces on each side would show a difference of the size that was seen with 80 % power."""
    from scipy.special import ndtri

    if not shift.difference:
        return None
    spread = _side(a).variance * len(a) + _side(b).variance * len(b)
    reach = float(ndtri(1 - (1 - shift.level) / 2)) + float(ndtri(0.8))
    return max(PIECES_MIN, math.ceil(reach**2 * spread / shift.difference**2))


class _Side(NamedTuple):
    share: float
    variance: float


def _side(pieces: Sequence[Piece]) -> _Side:
    length = sum(p.length_us for p in pieces)
    share = sum(p.useful_us for p in pieces) / length if length else 0.0
    n = len(pieces)
    if n < 2:
        return _Side(share, 0.0)
    useful = share * length
    without = [
        (useful - p.useful_us) / (length - p.length_us) if length > p.length_us else share
        for p in pieces
    ]
    middle = sum(without) / n
    return _Side(share, (n - 1) / n * sum((value - middle) ** 2 for value in without))


def _welch(var_a: float, var_b: float, n_a: int, n_b: int) -> tuple[float, float]:
    """Standard error of the difference, and its degrees of freedom."""
    total = var_a + var_b
    if not total:
        return 0.0, 1.0
    parts = [(v, n - 1) for v, n in ((var_a, n_a), (var_b, n_b)) if n > 1]
    return math.sqrt(total), total**2 / sum(v * v / df for v, df in parts)


def _p(difference: float, error: float, degrees: float) -> float:
    from lastgood.budget.finding import student_p

    if not error:
        return 1.0 if not difference else 0.0
    return student_p(difference / error, degrees)
