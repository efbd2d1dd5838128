"""By how much the mean of one sample lies below another, by exchanging values between the sides.

For amounts that add up (steps lost per incident) the mean is what counts, most values may be zero, and neither ranks
nor logarithms help. When both sides are alike, every way to deal the values of a stratum to the two sides is as
likely as the one that was seen. Each such exchange also gives the shift at which it would weigh as much as what was
seen, and these shifts, put in order, are the interval.

Source: Fisher (1935) and Pitman (1937) for the test; Garthwaite (1996) and Tritchler (1984) for the interval.
Assumes: independent values; for the interval also that both sides have one shape. Drawn, not enumerated: the level
holds exactly, since the seen arrangement counts as one of the draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.rng import numpy_stream
from lastgood.budget.rank_shift import Stratum

if TYPE_CHECKING:
    import numpy as np

DRAWS = 9_999
METHOD = "difference of means, values exchanged within strata"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanShift:
    """Mean of A minus mean of B over strata: above 0 says that B is smaller."""

    difference: float
    lo: float
    hi: float
    level: float
    p: float
    """Two-sided, of no difference."""
    p_min: float
    n_a: int
    n_b: int

    @property
    def can_tell(self) -> bool:
        """The samples are large enough for a difference to show at this level."""
        return self.p_min <= 1 - self.level


def mean_shift(strata: Sequence[Stratum], *, level: float = 0.95, seed: int = 0) -> MeanShift:
    """The difference of means; strata weigh as many values as they exchange.

    Assumes: see the module; finite values.
    """
    import numpy as np

    both = [s for s in strata if len(s.a) and len(s.b)]
    moved, exchanged = _exchanges(both, seed)
    is_real = exchanged > 0
    shifts = np.sort(moved[is_real] / exchanged[is_real]) if is_real.any() else np.zeros(1)
    # An exchange of nothing weighs as much as what was seen, at every shift: it counts on both sides.
    idle = int(np.sum(~is_real)) + 1
    place = math.floor((len(moved) + 1) * (1 - level) / 2) - idle
    is_bounded = 0 <= place < len(shifts)
    n_a, n_b = sum(len(s.a) for s in both), sum(len(s.b) for s in both)
    return MeanShift(
        difference=difference_of_means(both),
        lo=float(shifts[place]) if is_bounded else -math.inf,
        hi=float(shifts[len(shifts) - 1 - place]) if is_bounded else math.inf,
        level=level,
        p=_p(moved),
        p_min=min(1.0, 2 / math.prod(math.comb(len(s.a) + len(s.b), len(s.a)) for s in both)),
        n_a=n_a,
        n_b=n_b,
    )


def difference_of_means(strata: Sequence[Stratum]) -> float:
    """A minus B over strata; each counts as much as the smaller of its sides allows: 1 / (1/m + 1/n).

    A stratum with nothing on one side compares nothing.
    """
    both = [s for s in strata if s.a and s.b]
    weights = [len(s.a) * len(s.b) / (len(s.a) + len(s.b)) for s in both]
    parts = [sum(s.a) / len(s.a) - sum(s.b) / len(s.b) for s in both]
    total = sum(weights)
    return sum(w * d for w, d in zip(weights, parts, strict=True)) / total if total else 0.0


def _p(moved: np.ndarray) -> float:
    """How often an exchange gives at least as large a difference; what was seen is one of the draws."""
    import numpy as np

    count = len(moved) + 1
    smaller = max(int(np.sum(moved > 0)), int(np.sum(moved < 0)))
    return min(1.0, 2 * (count - smaller) / count)


def _exchanges(strata: Sequence[Stratum], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each draw: by how much A's sum falls, and how many values changed sides."""
    import numpy as np

    random = numpy_stream(seed, "mean shift")
    moved, exchanged = np.zeros(DRAWS), np.zeros(DRAWS)
    for stratum in strata:
        values = np.asarray([*stratum.a, *stratum.b], dtype=np.float64)
        m = len(stratum.a)
        order = random.permuted(np.tile(np.arange(len(values)), (DRAWS, 1)), axis=1)[:, :m]
        moved += values[:m].sum() - values[order].sum(axis=1)
        exchanged += np.sum(order >= m, axis=1)
    return np.where(np.abs(moved) < 1e-12, 0.0, moved), exchanged
