"""A quantile of measured durations as a figure, with the interval that needs no distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.base.figures import Figure, Interval, measured
from lastgood.budget.order_statistics import quantile_ranks

LEVEL: Final = 0.95


def quantile_of(
    name: str, values_us: Sequence[int], share: float, *, source: str, as_of_us: int
) -> Figure:
    """A quantile of durations by nearest rank; the interval is left out where there are too few of them for both ends.

    Assumes: for the interval only, independent durations of one distribution.
    """
    if not values_us:
        return measured(name, None, "us", source=source, n=0, as_of_us=as_of_us)
    ordered = sorted(values_us)
    ranks = quantile_ranks(len(ordered), share, level=LEVEL)
    interval = None
    if ranks.lo is not None and ranks.hi is not None:
        interval = Interval(
            lo=ordered[ranks.lo], hi=ordered[ranks.hi], level=LEVEL, method="order statistics"
        )
    return measured(
        name, ordered[ranks.value], "us",
        source=source, n=len(ordered), interval=interval, as_of_us=as_of_us,
    )  # fmt: skip
