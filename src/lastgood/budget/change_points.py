"""When did the rate change? The best cuts of the weekly counts, with a price per cut that knows about bursts.

With the price that independent events would deserve, every burst becomes a change point (nine on a fleet where one
campaign happened). The price here is scaled by the dispersion of the counts, so a cut must explain more than the
bursts do by themselves.

Source: optimal partitioning, Jackson and others (2005); Poisson cost; penalty of Schwarz (1978) scaled by the
dispersion as in quasi-likelihood, McCullagh and Nelder (1989) section 9.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.budget.dispersion import check_times, index_of, whole_bins
from lastgood.budget.finding import EVENTS_MIN

if TYPE_CHECKING:
    import numpy as np

WEEK_H = 168.0
BINS_MIN = 8
BINS_MAX = 600
"""More weeks than this are counted in wider bins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of bins with one rate."""

    first: int
    """0-based bin in which it begins."""
    end: int
    """The bin after its last."""
    begin_h: float
    end_h: float
    count: int
    per_bin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoints:
    """The segments, and what a price for independent events would have found."""

    counts: np.ndarray
    bin_h: float
    segments: tuple[Segment, ...]
    dispersion: float
    """The factor on the price of a cut."""
    naive_changes: int
    """Cuts under the unscaled price: what bursts would be taken for."""
    n: int
    sentence: str
    limit: str = "Cuts are estimates without an interval; a slow drift is cut into steps, and a short burst may be one segment."
    source: str = "optimal partitioning with a dispersion-scaled penalty; Jackson and others (2005)"
    assumes: str = (
        "a rate constant between cuts, counts with one dispersion, equal exposure per bin"
    )

    @property
    def changes(self) -> int:
        """How many times the rate changed."""
        return len(self.segments) - 1


def change_points(
    times_h: np.ndarray, window_h: float, *, bin_h: float | None = None
) -> ChangePoints | None:
    """Cuts of the weekly counts (wider or narrower bins in very long or short windows); None when too few to test.

    Assumes: see `ChangePoints.assumes`.
    Source: Jackson and others (2005), An algorithm for optimal partitioning of data on an interval.
    """
    times = check_times(times_h, window_h)
    bin_h = bin_h or _bin_h(window_h)
    if len(times) < EVENTS_MIN or window_h / bin_h < BINS_MIN:
        return None
    counts = whole_bins(times, window_h, bin_h)
    scale = max(1.0, index_of(counts))
    # On the scale of twice the log likelihood a cut adds two parameters: a rate and a place.
    price = 2 * math.log(len(counts))
    segments = tuple(
        Segment(
            first=a,
            end=b,
            begin_h=a * bin_h,
            end_h=b * bin_h,
            count=int(counts[a:b].sum()),
            per_bin=float(counts[a:b].mean()),
        )
        for a, b in _cut(counts, price * scale)
    )
    return ChangePoints(
        counts=counts,
        bin_h=bin_h,
        segments=segments,
        dispersion=scale,
        naive_changes=len(_cut(counts, price)) - 1,
        n=len(times),
        sentence=_sentence(segments, bin_h),
    )


class _Cut(NamedTuple):
    """A stretch of bins: its first, and the one after its last."""

    first: int
    end: int


def _bin_h(window_h: float) -> float:
    """A week; a day where a week gives too few bins; wider in windows of more than eleven years."""
    if window_h >= BINS_MIN * WEEK_H:
        return WEEK_H * max(1, math.ceil(window_h / WEEK_H / BINS_MAX))
    return 24.0 if window_h >= BINS_MIN * 24.0 else window_h / BINS_MIN


def _cut(counts: np.ndarray, price: float) -> list[_Cut]:
    """The segmentation with the least sum of Poisson costs plus one price per segment.

    Cost of a segment: twice the negative log likelihood at its own mean, less what does not depend on the cuts.
    """
    import numpy as np

    k = len(counts)
    sums = np.concatenate(([0.0], np.cumsum(counts)))
    best, last = np.full(k + 1, np.inf), np.zeros(k + 1, dtype=np.int64)
    best[0] = 0.0
    for end in range(1, k + 1):
        total = sums[end] - sums[:end]
        width = end - np.arange(end)
        logs = np.log(np.maximum(total, 1.0) / width)
        cost = best[:end] + price - 2 * total * np.where(total > 0, logs, 0.0)
        last[end] = int(cost.argmin())
        best[end] = float(cost[last[end]])
    segments, end = [], k
    while end:
        segments.append(_Cut(int(last[end]), end))
        end = int(last[end])
    return segments[::-1]


def _sentence(segments: tuple[Segment, ...], bin_h: float) -> str:
    unit = "week" if bin_h == WEEK_H else "day" if bin_h == 24.0 else "bin"
    if len(segments) == 1:
        return f"No change of the rate shown: {segments[0].per_bin:.3g} per {unit} throughout."
    times = (
        "once"
        if len(segments) == 2
        else "twice"
        if len(segments) == 3
        else f"{len(segments) - 1} times"
    )
    parts = ", then ".join(
        f"{s.per_bin:.3g} per {unit} ({unit} {s.first + 1}"
        + (f" to {s.end})" if s.end > s.first + 1 else ")")
        for s in segments
    )
    return f"The rate changed {times}: {parts}."
