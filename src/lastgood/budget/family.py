"""Verdicts of many groups judged together: with twenty classes one looks significant by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.finding import ALPHA
from lastgood.budget.multiplicity import benjamini_hochberg, holm

if TYPE_CHECKING:
    from lastgood.budget.rates import RateStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted:
    """One group's p value among all groups."""

    name: str
    test: str
    p: float
    p_holm: float
    p_bh: float
    is_rejected: bool
    """By Holm at 0.05: holds for all groups together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The trend tests of all groups, judged together."""

    tests: int
    rows: tuple[Adjusted, ...]
    sentence: str


def judge_together(studies: Sequence[RateStudy]) -> Family:
    """Adjust the trend verdicts of all groups for their number.

    Assumes: nothing for Holm; Benjamini-Hochberg is printed beside it.
    Source: Holm (1979); Benjamini and Hochberg (1995).
    """
    tested = [s for s in studies if s.trend.headline.p is not None]
    p = [s.trend.headline.p or 0.0 for s in tested]
    by_holm, by_bh = holm(p), benjamini_hochberg(p)
    rows = tuple(
        Adjusted(
            name=s.name,
            test=s.trend.headline.test,
            p=s.trend.headline.p or 0.0,
            p_holm=float(h),
            p_bh=float(b),
            is_rejected=bool(h < ALPHA),
        )
        for s, h, b in zip(tested, by_holm, by_bh, strict=True)
    )
    held = [row.name for row in rows if row.is_rejected]
    named = ", ".join(held) if held else "none"
    return Family(
        tests=len(rows),
        rows=rows,
        sentence=f"{len(rows)} groups tested for a trend; after Holm's adjustment it holds for: {named}.",
    )
