"""What a blocking, periodic checkpoint plan depends on: one mean and three costs.

All durations are floats in one unit. The letters of the sources are in the field docstrings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import BadInput

HUGE_EXPONENT = 700.0
"""exp() of more than this does not fit into a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """The world in which an interval is chosen."""

    mean_to_stop: float
    """M: mean time at risk between two job-stopping interruptions."""
    checkpoint: float
    """C: time for which one checkpoint blocks the job."""
    detection: float = 0.0
    """D: detection and diagnosis; the job is down, so nothing can fail."""
    recovery: float = 0.0
    """R: restart and restore."""
    is_recovery_exposed: bool = True
    """True when another failure can strike during R; False when such failures are absorbed."""

    def __post_init__(self) -> None:
        """Refuse a world that cannot be."""
        for name, value, is_positive in (
            ("mean time to interruption", self.mean_to_stop, True),
            ("checkpoint cost", self.checkpoint, True),
            ("detection time", self.detection, False),
            ("recovery time", self.recovery, False),
        ):
            if not math.isfinite(value) or value < 0 or (is_positive and value == 0):
                needs = "a finite duration above zero" if is_positive else "zero or more"
                raise BadInput(f"a plan cannot use this {name}", found=str(value), needs=needs)


def chance_of_no_stop(elapsed: float, *, mean_to_stop: float) -> float:
    """R(t): the chance that nothing stops the job for this long.

    Source: source chapter, first equation.
    Assumes: Poisson interruptions of constant rate.
    """
    return math.exp(-elapsed / mean_to_stop)


def expected_lost(period: float, *, mean_to_stop: float) -> float:
    """How far into a period a failure strikes on average, given that one strikes in it: about half of it.

    Source: mean of an exponential truncated at the period, 1/λ - T/(exp(λT) - 1).
    Assumes: Poisson interruptions.
    """
    x = period / mean_to_stop
    if x < 1e-2:  # the direct form subtracts two nearly equal numbers here
        return period * (0.5 - x / 12 + x**3 / 720)
    if x > HUGE_EXPONENT:
        return mean_to_stop
    return mean_to_stop - period / math.expm1(x)
