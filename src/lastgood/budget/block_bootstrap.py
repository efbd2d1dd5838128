"""The interval from resampled stretches of the record: blocks of random length keep bursts whole.

On the fleets of tests/simulation/test_calibration.py it covers 90 to 94 % where it promises 95, because a percentile of
few blocks is too narrow; so a person may ask for it, and no test ever chooses it.

Source: Politis and Romano (1994), the stationary bootstrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.rng import numpy_stream
from lastgood.budget.dispersion import check_times, count_in_bins
from lastgood.budget.rate_interval import IntervalMethod, RateInterval, check_rate

if TYPE_CHECKING:
    import numpy as np

BOOTSTRAP_DRAWS = 2000


def stationary_block_bootstrap(
    times_h: np.ndarray,
    window_h: float,
    *,
    exposure: float | None = None,
    level: float = 0.95,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> RateInterval:
    """The interval from resampled stretches of the record: blocks of random length keep bursts whole.

    Works on at most 200 bins, so ten million events cost what two hundred do. The mean block is k^(1/3) bins, at
    least as long as the correlation lasts.

    Assumes: a record without trend that is long against its bursts. With few blocks it is too narrow: on the fleets of
    tests/simulation/test_calibration.py it covers 90 to 94 % where it promises 95, so no test ever chooses it.
    Source: Politis and Romano (1994), the stationary bootstrap; percentile limits.
    """
    import numpy as np

    times = check_times(times_h, window_h)
    n = len(times)
    exposure = exposure or window_h
    check_rate(n, exposure, level)
    bins = int(min(200, max(20, n)))
    counts = count_in_bins(times, window_h, bins)
    block = max(1.0, bins ** (1 / 3), 2.0 * _memory_length(counts))
    generator = numpy_stream(seed, "stationary block bootstrap")
    starts = generator.integers(0, bins, size=(draws, bins))
    is_new = generator.random((draws, bins)) < 1 / block
    is_new[:, 0] = True
    # Position in the record: the start of the running block plus the steps since it began.
    steps = np.arange(bins)
    began = np.maximum.accumulate(np.where(is_new, steps, 0), axis=1)
    at = (np.take_along_axis(starts, began, axis=1) + steps - began) % bins
    totals = counts[at].sum(axis=1)
    lo, hi = np.quantile(totals, [(1 - level) / 2, (1 + level) / 2])
    return RateInterval(
        count=n,
        exposure=exposure,
        lo=float(lo) / exposure,
        hi=float(hi) / exposure,
        level=level,
        method=IntervalMethod.BLOCK_BOOTSTRAP,
        words=f"stationary block bootstrap, {draws} draws, mean block {block:.1f} of {bins} bins, seed {seed}",
        dispersion=float(totals.var() / n) if n else 1.0,
    )


def _memory_length(counts: np.ndarray) -> float:
    """How many bins the correlation lasts: lags until it first falls into the noise."""
    d = counts - counts.mean()
    total = float((d * d).sum())
    bound = 2 / len(counts) ** 0.5
    lag = 0
    while total and lag < len(counts) // 4:
        if float((d[lag + 1 :] * d[: len(d) - lag - 1]).sum()) / total < bound:
            break
        lag += 1
    return float(lag)
