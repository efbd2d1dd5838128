"""Snapshots that persist in the background: cheaper to take, older when they are needed.

The snapshot on which a restart builds is the last one that became durable, so a failure throws away the time that
persisting takes as well. That term is what "asynchronous checkpoints are free" leaves out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import BadInput
from lastgood.budget.closed.regime import Regime


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What an asynchronous snapshot costs."""

    copy: float
    """s: time for which the copy blocks the job."""
    persist: float
    """P: time until it is durable; only one is on its way at a time."""
    slowdown: float = 0.0
    """a: share of speed lost while persisting."""

    def __post_init__(self) -> None:
        """Refuse costs that cannot be."""
        if not (self.copy >= 0 and self.persist >= 0 and 0 <= self.slowdown < 1):
            raise BadInput(
                "a snapshot cannot cost this",
                found=f"copy {self.copy}, persist {self.persist}, slowdown {self.slowdown}",
                needs="durations of zero or more and a slowdown from 0 to below 1",
            )


def snapshot_work(snapshot: Snapshot, *, mean_to_stop: float) -> float:
    """τ* = max(P, sqrt(2 (s + a P) M)).

    Source: derived for this project from the first-order budget with one outstanding snapshot.
    Assumes: small waste, Poisson interruptions, τ of at least P.
    """
    cost = snapshot.copy + snapshot.slowdown * snapshot.persist
    return max(snapshot.persist, math.sqrt(2 * cost * mean_to_stop))


def snapshot_waste(work: float, snapshot: Snapshot, regime: Regime) -> float:
    """W = (s + a P)/τ + (τ/2 + P + D + R)/M. Within a point of simulation, on the pessimistic side.

    Source and Assumes: as for `snapshot_work`.
    """
    cost = snapshot.copy + snapshot.slowdown * snapshot.persist
    down = regime.detection + regime.recovery
    return cost / work + (work / 2 + snapshot.persist + down) / regime.mean_to_stop
