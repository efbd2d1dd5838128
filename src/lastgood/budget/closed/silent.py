"""Silent errors: verify k times per checkpoint, so that no corrupt state is ever saved as good."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import BadInput

SEGMENT_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentErrors:
    """Rates and costs of a plan that must also survive silent errors."""

    mean_to_stop: float
    """1/λf of fail-stop errors."""
    mean_to_corruption: float
    """1/λs of silent errors."""
    checkpoint: float
    verification: float
    """V: cost of one guaranteed verification of the state."""

    def __post_init__(self) -> None:
        """Refuse costs and rates that cannot be."""
        values = (self.mean_to_stop, self.mean_to_corruption, self.checkpoint, self.verification)
        if not all(value > 0 for value in values):
            raise BadInput(
                "a verified pattern needs durations above zero", found=", ".join(map(str, values))
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPattern:
    """k equal segments, each verified, one checkpoint at the end."""

    segment_count: int
    work: float
    """W: useful work in the whole pattern."""
    overhead: float
    """H at this k and W; recovery not included."""


def pattern_overhead(work: float, *, segment_count: int, errors: SilentErrors) -> float:
    """H(W, k) = (kV + C)/W + W (λf/2 + λs (k + 1)/(2k)).

    Source: re-derived; agrees with Benoit, Cavelan, Robert, Sun, IPDPS 2016.
    Assumes: first order; Poisson errors of both sorts; silent errors strike work only; a verification finds every
        error; simulation lies about a point above.
    """
    k = segment_count
    return (k * errors.verification + errors.checkpoint) / work + work * _hazard(k, errors)


def verified_pattern(segment_count: int, errors: SilentErrors) -> VerifiedPattern:
    """The best W for k segments. Source and Assumes: as for `pattern_overhead`."""
    cost = segment_count * errors.verification + errors.checkpoint
    work = math.sqrt(cost / _hazard(segment_count, errors))
    overhead = pattern_overhead(work, segment_count=segment_count, errors=errors)
    return VerifiedPattern(segment_count=segment_count, work=work, overhead=overhead)


def best_pattern(errors: SilentErrors) -> VerifiedPattern:
    """The best whole k: a neighbour of k* = sqrt(λs C / ((λs + λf) V)).

    Source and Assumes: as for `pattern_overhead`.
    """
    ideal = ideal_segment_count(errors)
    low = min(SEGMENT_COUNT_MAX, max(1, math.floor(ideal)))
    patterns = (verified_pattern(low, errors), verified_pattern(low + 1, errors))
    return min(patterns, key=lambda pattern: pattern.overhead)


def ideal_segment_count(errors: SilentErrors) -> float:
    """k*, not rounded."""
    silent, stop = 1 / errors.mean_to_corruption, 1 / errors.mean_to_stop
    return math.sqrt(silent * errors.checkpoint / ((silent + stop) * errors.verification))


def _hazard(k: int, errors: SilentErrors) -> float:
    return 1 / (2 * errors.mean_to_stop) + (k + 1) / (2 * k * errors.mean_to_corruption)
