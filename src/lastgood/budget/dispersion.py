"""Are the events scattered like independent ones? Counts in equal bins, their spread, and their memory.

Independent events at a constant rate have counts whose variance equals their mean. Failures of real fleets never do:
one bad switch, one failed repair or one bad release makes bursts, and then an exact Poisson interval is too narrow
by the square root of the dispersion. So this is looked at first, and it decides how the rate's interval is made.

Source: index of dispersion, Fisher (1925), Cox and Lewis (1966) section 6.3; serial correlation, Moran (1948).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput
from lastgood.budget.finding import (
    ALPHA,
    EVENTS_MIN,
    Finding,
    chi_square_tail,
    format_float,
    format_p,
    normal_p,
    too_few,
)

if TYPE_CHECKING:
    import numpy as np

BINS_MAX = 25
"""Enough for a variance with 24 degrees of freedom, few enough that a burst of days stays inside one bin."""
BINS_MIN = 5
EVENTS_PER_BIN = 2
"""With equal expectations the chi-square law of the index holds down to about one event per bin (Cochran, 1954), and
in small records more bins, which means more degrees of freedom, are worth more than fuller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """Spread and memory of the counts in equal bins of (operational) time."""

    counts: np.ndarray
    bin_h: float
    """Width of a bin in the unit of the times."""
    index: float
    """Variance over mean: 1 for independent events, 2 when they come in pairs."""
    lag1: float
    """Correlation of neighbouring counts."""
    lag1_z: float
    spread: Finding
    """The test of the index."""
    memory: Finding
    """The test of the correlation."""

    @property
    def bins(self) -> int:
        """How many bins."""
        return len(self.counts)

    @property
    def is_poisson_like(self) -> bool | None:
        """False when spread or memory rejects independent events; None where too few to test."""
        if self.spread.is_rejected is None:
            return None
        return not (self.spread.is_rejected or (self.memory.is_rejected and self.lag1 > 0))


def check_times(times_h: np.ndarray, window_h: float) -> np.ndarray:
    """The times as a sorted float array, refused when one lies outside the window.

    The window is the period of observation. It must not end at the last event: that is another kind of sample
    (failure-truncated), and taking one for the other biases every test.
    """
    import numpy as np

    times = np.asarray(times_h, dtype=np.float64)
    if not (math.isfinite(window_h) and window_h > 0):
        raise BadInput("a window needs a length", found=f"{window_h}", needs="more than 0 h")
    if len(times):
        # An event at the very end: hours of two sums differ by a rounding.
        at_end = (times > window_h) & (times <= window_h + 4 * np.spacing(window_h))
        times = np.where(at_end, window_h, times)
    if len(times) and not (
        np.isfinite(times).all() and times.min() >= 0 and times.max() <= window_h
    ):
        raise BadInput(
            "an event lies outside the window",
            found=f"{times.min()} to {times.max()} h",
            needs=f"0 to {window_h} h",
        )
    return times if (times[1:] >= times[:-1]).all() else np.sort(times)


def bins_for(n: int) -> int:
    """How many bins this many events can fill."""
    return min(BINS_MAX, max(BINS_MIN, n // EVENTS_PER_BIN))


def count_in_bins(times_h: np.ndarray, window_h: float, bins: int) -> np.ndarray:
    """Events per equal bin of the window. The times are sorted; the last bin holds its right edge."""
    import numpy as np

    edges = np.arange(1, bins) * (window_h / bins)
    return np.diff(np.searchsorted(times_h, edges), prepend=0, append=len(times_h))


def whole_bins(times_h: np.ndarray, window_h: float, bin_h: float) -> np.ndarray:
    """Events per bin of a fixed width from sorted times; the rest of the window that fills no bin is left out."""
    import numpy as np

    bins = math.floor(window_h / bin_h + 1e-9)
    return np.diff(np.searchsorted(times_h, np.arange(bins + 1) * bin_h))


def index_of(counts: np.ndarray, *, of: int | None = None) -> float:
    """Variance over mean of counts. `of` counts the places in all; those that `counts` lacks hold zero each."""
    n = len(counts) if of is None else of
    mean = float(counts.sum()) / n if n else 0.0
    if n < 2 or not mean > 0:
        return 1.0
    squares = float(((counts - mean) ** 2).sum()) + (n - len(counts)) * mean * mean
    return squares / (n - 1) / mean


def lag1_of(counts: np.ndarray) -> float:
    """Correlation of each count with the one after it."""
    d = counts - counts.mean()
    total = float((d * d).sum())
    return float((d[1:] * d[:-1]).sum()) / total if total > 0 else 0.0


def lag1_z_of(lag1: float, bins: int) -> float:
    """The correlation in standard errors of an independent series.

    Source: Moran (1948): mean -1/(k - 1), variance (k - 2)^2 / (k^2 (k - 1)).
    """
    return (lag1 + 1 / (bins - 1)) * bins * math.sqrt(bins - 1) / (bins - 2)


def dispersion(
    times_h: np.ndarray, window_h: float, *, bins: int | None = None, bin_h: float | None = None
) -> Dispersion:
    """Spread and memory of the counts, in `bins` equal bins or in whole bins of `bin_h`.

    Assumes: equal exposure in every bin, so pass operational time when the device count changes.
    Source: Fisher (1925): (k - 1) times the index is chi-square with k - 1 degrees of freedom for a Poisson process.
    """
    times = check_times(times_h, window_h)
    if bin_h is not None:
        counts = whole_bins(times, window_h, bin_h)
        if len(counts) < 3:
            raise BadInput("too few bins", found=f"{len(counts)} of {bin_h} h", needs="at least 3")
    else:
        counts = count_in_bins(times, window_h, bins or bins_for(len(times)))
        bin_h = window_h / len(counts)
    return of_counts(counts, bin_h=bin_h)


def of_counts(counts: np.ndarray, *, bin_h: float) -> Dispersion:
    """The same from counts that are there already."""
    k, n = len(counts), int(counts.sum())
    index, lag1 = index_of(counts), lag1_of(counts)
    z = lag1_z_of(lag1, k)
    return Dispersion(
        counts=counts,
        bin_h=bin_h,
        index=index,
        lag1=lag1,
        lag1_z=z,
        spread=_spread(index, k, n),
        memory=_memory(lag1, z, n),
    )


def _spread(index: float, k: int, n: int) -> Finding:
    null = "independent events at a constant rate (Poisson)"
    source = "index of dispersion, Fisher (1925)"
    assumes = "equal exposure in every bin"
    if n < EVENTS_MIN:
        return too_few("dispersion", null=null, n=n, source=source, assumes=assumes)
    p = chi_square_tail(index * (k - 1), k - 1)
    is_rejected = p < ALPHA
    if is_rejected:
        sentence = (
            f"The counts vary {format_float(index)} times as much as those of independent events "
            f"({format_p(p)}): they come in bursts or the rate changes."
        )
    else:
        sentence = f"The counts vary like those of independent events ({format_float(index)} times, {format_p(p)})."
    return Finding(
        test="dispersion",
        null=null,
        statistic=index,
        statistic_name="variance / mean",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=sentence,
        limit=(
            "It does not tell bursts from a rate that changes."
            if is_rejected
            else "Bursts shorter than the sample can show may still be there."
        ),
        source=source,
        assumes=assumes,
    )


def _memory(lag1: float, z: float, n: int) -> Finding:
    null = "the count of one bin says nothing about the next"
    source = "serial correlation, Moran (1948)"
    assumes = "equal exposure in every bin; about normal for 12 bins or more"
    if n < EVENTS_MIN:
        return too_few("lag-1 correlation", null=null, n=n, source=source, assumes=assumes)
    p = normal_p(z)
    is_rejected = p < ALPHA
    if not is_rejected:
        sentence = (
            f"Neighbouring bins are not visibly related (correlation {lag1:+.2f}, {format_p(p)})."
        )
    elif lag1 > 0:
        sentence = (
            f"Bad bins follow bad bins (correlation {lag1:+.2f}, {format_p(p)}): "
            "the rate stays high or low for longer than one bin."
        )
    else:
        sentence = f"Neighbouring bins alternate (correlation {lag1:+.2f}, {format_p(p)})."
    return Finding(
        test="lag-1 correlation",
        null=null,
        statistic=lag1,
        statistic_name="r",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=sentence,
        limit="A trend, a wave and long bursts all look like this; the correlation does not tell them apart.",
        source=source,
        assumes=assumes,
    )
