"""The simulated world of one job: what it does, what can happen to it, and what is left out.

A job does `total_work` in segments of `work`; after each it writes a checkpoint that blocks it. Failures strike after
gaps of time at risk (work, checkpoints and, when exposed, recovery; never during detection). Gaps may be Weibull, and
each failure may be followed by another one soon (a correlated burst); the mean gap stays what was declared. A
checkpoint may fail to be written; the one before it stays. A silent corruption strikes work, taints every checkpoint
taken after it and is found a random latency later; the job then goes back to the newest kept checkpoint that is older,
or to the very beginning when none is left.

Left out: a second corruption before the first is found; failures that depend on load; changing rates; the price of
the storage. All durations are floats in one unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import BadInput
from lastgood.base.units import format_duration
from lastgood.budget.closed.regime import Regime

RETAINED_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """One job in one world."""

    regime: Regime
    work: float
    """τ: useful work between checkpoints."""
    total_work: float
    weibull_shape: float = 1.0
    """k of the gaps between failures: 1 is Poisson, less is clustered."""
    burst_chance: float = 0.0
    """Chance that a failure is followed by another one after a short gap."""
    burst_gap: float = 0.0
    """Mean of that short gap (exponential)."""
    checkpoint_failure_chance: float = 0.0
    mean_to_corruption: float = math.inf
    """Mean work time between silent corruptions."""
    detection_latency: float = 0.0
    """Mean time from a corruption to its detection (exponential)."""
    retained_count: int = 2
    """Newest checkpoints that are kept."""

    def __post_init__(self) -> None:
        """Refuse a world that cannot be simulated."""
        checks = (
            (self.work > 0 and math.isfinite(self.work), "an interval above zero", self.work),
            (self.total_work > 0 and math.isfinite(self.total_work), "work to do", self.total_work),
            (0.1 <= self.weibull_shape <= 10, "a Weibull shape from 0.1 to 10", self.weibull_shape),
            (0 <= self.burst_chance < 1, "a burst chance from 0 to below 1", self.burst_chance),
            (self.burst_gap >= 0, "a burst gap of zero or more", self.burst_gap),
            (
                0 <= self.checkpoint_failure_chance < 1,
                "a checkpoint failure chance from 0 to below 1",
                self.checkpoint_failure_chance,
            ),
            (
                self.mean_to_corruption > 0,
                "a time to corruption above zero",
                self.mean_to_corruption,
            ),
            (self.detection_latency >= 0, "a latency of zero or more", self.detection_latency),
            (
                1 <= self.retained_count <= RETAINED_COUNT_MAX,
                f"1 to {RETAINED_COUNT_MAX} kept checkpoints",
                self.retained_count,
            ),
            (
                self.burst_chance * self.burst_gap < self.regime.mean_to_stop,
                "bursts that fit into the mean time to interruption",
                f"{self.burst_chance:g} times {format_duration(self.burst_gap)}",
            ),
        )
        for is_good, needs, found in checks:
            if not is_good:
                raise BadInput("the simulation cannot use this", found=str(found), needs=needs)
