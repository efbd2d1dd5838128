"""What is asked about two sides and what is answered, as plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

MAY_DIFFER = frozenset({"lastgood"})
"""What an improvement is expected to change; it is printed, and needs no excuse."""
POWER = 0.8


class ClaimName(enum.StrEnum):
    """What can be claimed to have become better."""

    DETECTION_LATENCY = "detection_latency"
    RECOVERY_TIME = "recovery_time"
    LOST_WORK = "lost_work"
    ETTR = "ettr"


class Answer(enum.StrEnum):
    """What became of a claim."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"


class SideSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One side in numbers: a median for times, a mean for lost steps, the share itself for ETTR."""

    name: str
    n: int
    value: float | None
    """None: never, or nothing known."""
    lo: float | None
    hi: float | None
    never: int = 0
    """Incidents that were never detected or never recovered."""


class StratumRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault on both sides; nothing is tested within it."""

    kind: str
    n_before: int
    n_after: int
    before: float | None
    after: float | None


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said about one claim."""

    claim: str
    measure: str
    """What exactly was compared."""
    unit: str
    statistic: str
    """`median`, `mean` or `share`."""
    before: SideSummary
    after: SideSummary
    effect: float | None
    effect_unit: str
    """`ratio` (before over after), `steps` (before minus after) or `share` (after minus before)."""
    lo: float | None
    hi: float | None
    level: float
    p: float | None
    """Two-sided, of the hypothesis that the improvement is no larger than `at_least`."""
    p_adjusted: float | None
    """After Holm, where several claims were asked."""
    at_least: float
    answer: str
    reasons: tuple[str, ...]
    needed: str
    method: str
    is_injected: bool
    differing: tuple[str, ...]
    """Conditions that differ, those that were said to be changed included."""
    strata: tuple[StratumRow, ...] = ()
    left_out: tuple[str, ...] = ()
    kind: str = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks of the two sides."""

    level: float = 0.95
    at_least: float = 1.0
    """The improvement that is claimed, as a factor; for ETTR of the share that is not useful."""
    changed: frozenset[str] = frozenset()
    """Conditions that were changed on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A claim in numbers, before the answer."""

    result: ClaimResult
    p_better: float
    """Of no more than `at_least`."""
    p_any: float
    """Of no difference."""
    is_better: bool
    is_worse: bool
    obstacles: tuple[str, ...]
