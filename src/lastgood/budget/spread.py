"""How far the counts of a window are spread beyond chance, for an interval that has to hold for the whole of it.

The dispersion test chooses at 0.20 and not at 0.05: with 20 to 40 events a test at 0.05 misses mild bursts often enough
that the headline covers 92 to 94 %, while choosing the wider interval without need costs a few percent of width. Bins
are merged two by two while neighbours move together (z > 1.28), and the largest dispersion seen is kept: bursts that
cross the edges of bins otherwise hide half of their variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.dispersion import (
    bins_for,
    count_in_bins,
    index_of,
    lag1_of,
    lag1_z_of,
)
from lastgood.budget.finding import chi_square_tail

if TYPE_CHECKING:
    import numpy as np

CHOOSING_ALPHA = 0.20
MERGING_Z = 1.28
MEMORY_Z = 1.645
MERGED_BINS_MIN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The dispersion that an interval of the whole window has to carry."""

    index: float
    bins: int
    """Bins of the count that gave it."""
    p: float
    """Of the test that chose."""
    is_merged: bool
    """Bins were merged because neighbours move together."""
    is_poisson_like: bool


def measure_spread(times_h: np.ndarray, window_h: float) -> Spread:
    """The dispersion for an interval: largest over merged bins while neighbours move together.

    Assumes: equal exposure per bin (operational time), bursts shorter than a sixth of the window.
    Source: batch means, Schmeiser (1982), for the merging; index of dispersion, Fisher (1925), for the test.
    """
    bins = bins_for(len(times_h))
    counts = count_in_bins(times_h, window_h, bins)
    index = index_of(counts)
    p = chi_square_tail(index * (bins - 1), bins - 1)
    z = lag1_z_of(lag1_of(counts), bins)
    has_memory = z > MEMORY_Z
    best, best_bins, merged = index, bins, counts
    while z > MERGING_Z and len(merged) // 2 >= MERGED_BINS_MIN:
        merged = count_in_bins(times_h, window_h, len(merged) // 2)
        z = lag1_z_of(lag1_of(merged), len(merged))
        best_bins = len(merged)
        best = max(best, index_of(merged))
    return Spread(
        index=best,
        bins=best_bins,
        p=p,
        is_merged=best_bins < bins,
        is_poisson_like=p >= CHOOSING_ALPHA and not has_memory and best_bins == bins,
    )
