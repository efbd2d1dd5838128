"""By how much the useful share of time of one run lies above that of another.

A run is cut at the end of each incident: every piece has its useful time and its length, and the pieces are what
repeats. The share is the sum of the one over the sum of the other, never the mean of shares. Its error comes from how
the pieces scatter around it, so a run with one long and lucky piece is no proof.

Source: ratio estimator, Cochran (1977), 6.3; its variance by leaving out one piece at a time, Quenouille (1956) and
Tukey (1958); renewal reward, Ross (1996), 3.6; Student (1908) with the degrees of freedom of the smallest sample, which
is the least that Welch (1947) can give.
Runs under different conditions are compared within those (strata), each weighed by its time on both sides together.
Assumes: independent pieces of one kind on each side of a stratum. Pieces of very different length lean to one side, which
Welch's own degrees of freedom do not make up for; the calibration is in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

METHOD = "difference of ratio estimators over pieces between incidents, jackknife, Student by the smallest sample"
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
    n_min: int
    """Of the smaller side of the smallest stratum."""

    @property
    def can_tell(self) -> bool:
        """Both sides of each stratum have pieces enough to scatter."""
        return self.n_min >= PIECES_MIN


class PieceStratum(NamedTuple):
    """The pieces of both sides under one set of conditions."""

    a: Sequence[Piece]
    b: Sequence[Piece]


def share_shift(a: Sequence[Piece], b: Sequence[Piece], *, level: float = 0.95) -> ShareShift:
    """The difference of the two shares.

    Assumes: see the module; pieces of some length on both sides.
    """
    return share_shift_within([PieceStratum(a, b)], level=level)


def share_shift_within(strata: Sequence[PieceStratum], *, level: float = 0.95) -> ShareShift:
    """The difference of the two shares, each that of the conditions of both sides together.

    Assumes: see the module; at least one stratum, and pieces of some length on both sides of each.
    """
    from scipy.special import stdtrit

    whole = _weighed(strata, 1.0)
    is_known = _can_tell(strata)
    difference = whole.share_b - whole.share_a
    reach = -float(stdtrit(whole.degrees, (1 - level) / 2)) * whole.error if is_known else math.inf
    return ShareShift(
        share_a=whole.share_a,
        share_b=whole.share_b,
        difference=difference,
        lo=difference - reach,
        hi=difference + reach,
        level=level,
        p=_p(difference, whole.error, whole.degrees) if is_known else 1.0,
        n_a=sum(len(s.a) for s in strata),
        n_b=sum(len(s.b) for s in strata),
        n_min=min(min(len(s.a), len(s.b)) for s in strata),
    )


def p_of_waste_ratio_within(strata: Sequence[PieceStratum], ratio: float) -> float:
    """Two-sided p value of the hypothesis that A wastes `ratio` times the share that B wastes, over strata."""
    if not _can_tell(strata):
        return 1.0
    whole = _weighed(strata, ratio)
    excess = (1 - whole.share_a) - ratio * (1 - whole.share_b)
    return _p(excess, whole.error, whole.degrees)


def pieces_needed(shift: ShareShift, strata: Sequence[PieceStratum]) -> int | None:
    """How many pieces on each side would show a difference of the size that was seen with 80 % power."""
    from scipy.special import ndtri

    if not shift.difference:
        return None
    spread = sum(
        weight * (_side(s.a).variance * len(s.a) + _side(s.b).variance * len(s.b))
        for weight, s in zip(_weights(strata), strata, strict=True)
    )
    reach = float(ndtri(1 - (1 - shift.level) / 2)) + float(ndtri(0.8))
    return max(PIECES_MIN, math.ceil(reach**2 * spread / shift.difference**2))


class _Whole(NamedTuple):
    share_a: float
    share_b: float
    error: float
    degrees: float


def _can_tell(strata: Sequence[PieceStratum]) -> bool:
    return all(min(len(s.a), len(s.b)) >= PIECES_MIN for s in strata)


def _weights(strata: Sequence[PieceStratum]) -> list[float]:
    lengths = [sum(p.length_us for p in (*s.a, *s.b)) for s in strata]
    return [length / (sum(lengths) or 1.0) for length in lengths]


def _weighed(strata: Sequence[PieceStratum], ratio: float) -> _Whole:
    """Both shares over all strata, and the error of A minus `ratio` times B."""
    share_a = share_b = 0.0
    parts: list[tuple[float, int]] = []
    for weight, s in zip(_weights(strata), strata, strict=True):
        one, two = _side(s.a), _side(s.b)
        share_a += weight * one.share
        share_b += weight * two.share
        parts.append((weight**2 * one.variance, len(s.a)))
        parts.append((weight**2 * ratio**2 * two.variance, len(s.b)))
    return _Whole(share_a, share_b, *_student(parts))


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


def _student(parts: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Standard error of a sum of independent parts (variance, pieces), and the least degrees of freedom of it."""
    return math.sqrt(sum(v for v, _ in parts)), max(1, min(n for _, n in parts) - 1)


def _p(difference: float, error: float, degrees: float) -> float:
    from lastgood.budget.finding import student_p

    if not error:
        return 1.0 if not difference else 0.0
    return student_p(difference / error, degrees)
