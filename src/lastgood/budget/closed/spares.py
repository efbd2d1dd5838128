"""How many spares a job needs so that a failed node rarely waits for one.

The number of nodes under repair at a random moment is Poisson with mean (failure rate x refill time), whatever the
distribution of the refill time: repairs do not wait for each other. A failure finds a spare when fewer nodes are under
repair than there are spares.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.base.errors import BadInput, Refused

SPARE_COUNT_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparePool:
    """A pool size with all that it depends on; none of it is left out when it is shown."""

    spare_count: int
    chance_wanted: float
    """p: chance, wanted, that a failure finds a spare."""
    chance: float
    """The chance that this many spares give."""
    refill: float
    """Mean time until a failed node, or its replacement, is a spare again."""
    window: float
    """The window over which the last number counts."""
    waits: float
    """Failures in the window that find no spare, on average."""


def spare_pool(*, mean_to_stop: float, refill: float, chance: float, window: float) -> SparePool:
    """The smallest pool in which a failure finds a spare with at least this chance.

    Source: Palm's theorem (M/G/∞ occupancy is Poisson) and PASTA (a failure sees the average state).
    Assumes: Poisson failures of single nodes; refills independent and unlimited in number; no batch of nodes evicted
        together, which needs its own spares on top.
    """
    if not (mean_to_stop > 0 and refill > 0 and window > 0 and 0 < chance < 1):
        raise BadInput(
            "a spare pool needs durations above zero and a chance between 0 and 1",
            found=f"mean {mean_to_stop}, refill {refill}, window {window}, p {chance}",
        )
    busy = refill / mean_to_stop
    count = 0
    while (covered := _poisson_below(count, busy)) < chance:
        count += 1
        if count > SPARE_COUNT_MAX:
            raise Refused(
                "no reasonable pool of spares is enough",
                found=f"{busy:,.0f} nodes under repair on average",
                needs=f"at most {SPARE_COUNT_MAX:,} spares",
            )
    return SparePool(
        spare_count=count,
        chance_wanted=chance,
        chance=covered,
        refill=refill,
        window=window,
        waits=window / mean_to_stop * (1 - covered),
    )


def _poisson_below(count: int, mean: float) -> float:
    """Chance of fewer than `count` at this mean."""
    if count == 0:
        return 0.0
    from scipy.special import pdtr

    return float(pdtr(count - 1, mean))
