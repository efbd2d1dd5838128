"""A rate with its interval: events over exposure, and what the rate could also be."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lastgood.base.errors import BadInput


class IntervalMethod(enum.StrEnum):
    """How an interval is made. `auto` lets the tests choose; anything else is fixed in advance, and said."""

    AUTO = "auto"
    EXACT = "exact"
    QUASI_POISSON = "quasi-poisson"
    BLOCK_BOOTSTRAP = "block-bootstrap"
    BY_NODE = "by-node"
    """Between nodes: for rates that are to hold for other nodes of the same kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateInterval:
    """Events over exposure, and what the rate could also be, in events per unit of exposure."""

    count: int
    exposure: float
    lo: float
    hi: float
    level: float
    method: IntervalMethod
    words: str
    """The method with its numbers, such as `quasi-Poisson, dispersion 5.2, 25 bins`."""
    dispersion: float = 1.0
    """The factor by which its variance exceeds that of independent events."""
    degrees: float | None = None
    """Degrees of freedom of the dispersion."""
    is_one_sided: bool = False
    """No event seen: the upper end holds all of the error."""

    @property
    def rate(self) -> float:
        """Events per unit of exposure."""
        return self.count / self.exposure

    @property
    def mean(self) -> float | None:
        """Exposure per event; None without events."""
        return self.exposure / self.count if self.count else None

    @property
    def mean_lo(self) -> float:
        """Shortest exposure per event that the counts do not contradict."""
        return 1 / self.hi

    @property
    def mean_hi(self) -> float | None:
        """Longest one; None where the rate may be zero."""
        return 1 / self.lo if self.lo > 0 else None


def check_rate(count: int, exposure: float, level: float) -> None:
    """Refuse what is no rate."""
    if count < 0 or not exposure > 0:
        raise BadInput(
            "a rate needs a count of zero or more and an exposure above zero",
            found=f"{count} in {exposure}",
        )
    if not 0 < level < 1:
        raise BadInput("a level is a probability", found=str(level), needs="between 0 and 1")
