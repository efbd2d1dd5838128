"""By which factor one sample lies below another, with an exact interval that assumes no distribution.

Two samples of ten incidents have no useful mean and no normal distribution, but their ranks have an exact one. All
ratios of a value of A to a value of B of the same stratum are put in order; their middle is the effect, and two of
them enclose the true factor, chosen by the exact distribution of the Mann-Whitney count. Strata are added up: like is
compared with like, and a kind of fault that one side had more of decides nothing.

Source: Hodges and Lehmann (1963); Mann and Whitney (1947); Lehmann, Nonparametrics (1975), 1.6 and 3.3 for strata;
size of samples: Noether (1987).
Assumes: independent values; for the interval also that both sides have one shape on the logarithmic scale. The test
of no difference is exact without that. Ties count against a difference, which keeps the level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import Refused

if TYPE_CHECKING:
    import numpy as np

EXACT_PAIRS_MAX = 20_000
"""More pairs of one stratum than this: the normal approximation is as good and a thousand times faster."""
PAIRS_MAX = 30_000_000
"""All ratios of a stratum are held in memory: a quarter of a gigabyte."""
METHOD = "Hodges-Lehmann ratio, exact Mann-Whitney within strata"


class Stratum(NamedTuple):
    """The values of one kind on both sides; infinity stands for *never*, and behind every other value."""

    a: Sequence[float]
    b: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioShift:
    """A over B: above 1 says that B is smaller."""

    ratio: float | None
    """None where the middle of all ratios is not a number, such as never over never."""
    lo: float
    hi: float
    level: float
    p: float
    """Two-sided, of no difference."""
    p_min: float
    """The smallest that these numbers of values could ever give."""
    n_a: int
    n_b: int

    @property
    def can_tell(self) -> bool:
        """The samples are large enough for a difference to show at this level."""
        return self.p_min <= 1 - self.level


def ratio_shift(strata: Sequence[Stratum], *, level: float = 0.95) -> RatioShift:
    """The factor between A and B over all strata that have both.

    Assumes: see the module; values above 0.
    """
    import numpy as np

    both = [s for s in strata if len(s.a) and len(s.b)]
    logs = np.sort(np.concatenate([_log_ratios(s) for s in both] or [np.empty(0)]))
    counts = _null_counts([(len(s.a), len(s.b)) for s in both])
    low_place = counts.largest_below((1 - level) / 2)
    n_a, n_b = sum(len(s.a) for s in both), sum(len(s.b) for s in both)
    middle = (
        float((logs[(len(logs) - 1) // 2] + logs[len(logs) // 2]) / 2) if len(logs) else math.nan
    )
    return RatioShift(
        ratio=None if math.isnan(middle) else _exp(middle),
        lo=0.0 if low_place is None else _exp(float(logs[low_place])),
        hi=math.inf if low_place is None else _exp(float(logs[len(logs) - 1 - low_place])),
        level=level,
        p=p_of_ratio(strata, 1.0),
        p_min=min(1.0, 2 * counts.up_to(0)),
        n_a=n_a,
        n_b=n_b,
    )


def p_of_ratio(strata: Sequence[Stratum], ratio: float) -> float:
    """Two-sided p value of the hypothesis that A is `ratio` times B; ties speak for the hypothesis."""
    import numpy as np

    both = [s for s in strata if len(s.a) and len(s.b)]
    if not both:
        return 1.0
    logs = np.concatenate([_log_ratios(s) for s in both])
    bound = math.log(ratio)
    above, below = int(np.sum(logs > bound)), int(np.sum(logs < bound))
    counts = _null_counts([(len(s.a), len(s.b)) for s in both])
    # Half of the ties to either side would be the usual mid-rank; all of them against it keeps the level.
    against = len(logs) - max(above, below)
    return min(1.0, 2 * counts.up_to(against))


def values_needed(
    ratio: float, *, log_spread: float, level: float = 0.95, power: float = 0.8
) -> int | None:
    """How many values on each side show a ratio of that size with that power; None when none is enough.

    Assumes: logarithms normal with this standard deviation on both sides, one stratum.
    Source: Noether (1987).
    """
    from scipy.special import ndtr, ndtri

    if ratio <= 0 or ratio == 1 or log_spread < 0:
        return None
    if log_spread == 0:
        return smallest_n(level)
    favour = float(ndtr(abs(math.log(ratio)) / (log_spread * math.sqrt(2))))
    reach = float(ndtri(1 - (1 - level) / 2)) + float(ndtri(power))
    of_both = reach**2 / (3 * (favour - 0.5) ** 2)
    return max(smallest_n(level), math.ceil(of_both / 2))


def smallest_n(level: float = 0.95) -> int:
    """Fewer values than this on each side of one stratum can show nothing at that level."""
    n = 1
    while 2 / math.comb(2 * n, n) > 1 - level:
        n += 1
    return n


def log_spread(strata: Sequence[Stratum]) -> float | None:
    """Standard deviation of the logarithms within sides and strata; None where nothing has two finite values."""
    import numpy as np

    sums, degrees = 0.0, 0
    for side in (side for s in strata for side in s):
        logs = np.log([v for v in side if 0 < v < math.inf])
        if len(logs) > 1:
            sums += float(np.sum((logs - logs.mean()) ** 2))
            degrees += len(logs) - 1
    return math.sqrt(sums / degrees) if degrees else None


def _log_ratios(stratum: Stratum) -> np.ndarray:
    """Logarithm of every value of A over every one of B; never over never is a tie."""
    import numpy as np

    if len(stratum.a) * len(stratum.b) > PAIRS_MAX:
        raise Refused(
            "too many incidents of one kind to compare every one with every other",
            found=f"{len(stratum.a):,} and {len(stratum.b):,}", needs=f"at most {PAIRS_MAX:,} pairs",
            next="compare shorter ledgers, or one run of each: LEDGER#RUN",
        )  # fmt: skip

    a, b = (np.log(np.asarray(side, dtype=np.float64)) for side in stratum)
    with np.errstate(invalid="ignore"):
        logs = (a[:, None] - b[None, :]).ravel()
    return np.where(np.isnan(logs), 0.0, logs)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


class _Counts(NamedTuple):
    """The distribution of the sum of Mann-Whitney counts when both sides are alike."""

    pairs: int
    up_to_each: np.ndarray | None
    """Chance of at most k, for each k; None: by the normal approximation."""
    sd: float

    def up_to(self, count: int) -> float:
        """The chance of at most this count."""
        if count < 0:
            return 0.0
        if self.up_to_each is not None:
            return float(self.up_to_each[min(count, len(self.up_to_each) - 1)])
        from scipy.special import ndtr

        return float(ndtr((count + 0.5 - self.pairs / 2) / self.sd))

    def largest_below(self, tail: float) -> int | None:
        """Place (0-based) of the ordered ratio that is the lower end; None: too few values for one."""
        if not self.pairs or self.up_to(0) > tail:
            return None
        low, high = 0, self.pairs
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.up_to(middle) <= tail else (low, middle)
        return low


def _null_counts(sizes: Sequence[tuple[int, int]]) -> _Counts:
    import numpy as np

    pairs = sum(m * n for m, n in sizes)
    sd = math.sqrt(sum(m * n * (m + n + 1) for m, n in sizes) / 12)
    if pairs > EXACT_PAIRS_MAX or not sizes:
        return _Counts(pairs, None, sd or 1.0)
    chances = np.ones(1)
    for m, n in sizes:
        chances = np.convolve(chances, _mann_whitney(m, n))
    return _Counts(pairs, np.minimum(np.cumsum(chances), 1.0), sd)


@lru_cache(maxsize=128)
def _mann_whitney(m: int, n: int) -> np.ndarray:
    """Chance of each count of pairs in order, for m and n values that are alike: Gauss' binomial, in whole numbers."""
    import numpy as np

    ways = [1] + [0] * (m * n)
    for i in range(1, n + 1):
        for k in range(m * n, m + i - 1, -1):
            ways[k] -= ways[k - m - i]
        for k in range(i, m * n + 1):
            ways[k] += ways[k - i]
    total = math.comb(m + n, n)
    return np.array([way / total for way in ways])
