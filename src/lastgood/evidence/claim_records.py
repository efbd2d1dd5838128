"""What is asked about two sides and what is answered, as plain data."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import msgspec

MAY_DIFFER = frozenset({"lastgood"})
"""What an improvement is expected to change; it is printed, and needs no excuse."""
POWER = 0.8
TOO_FEW = "too few"
"""With this begins an obstacle that more incidents would remove."""


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
    """One kind of fault under one set of conditions on both sides; nothing is tested within it."""

    kind: str
    n_before: int
    n_after: int
    before: float | None
    after: float | None
    unknown_before: int = 0
    """Incidents without a value on record."""
    unknown_after: int = 0


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
    next: str = ""
    """What to type, where the conditions left nothing to tell."""
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
    to_name: tuple[str, ...] = ()
    """Conditions that would be no obstacle if they were said to be changed."""
    has_unknown: bool = False
    """Each p value takes what speaks against its own direction for the unknown values."""

    @property
    def p(self) -> float | None:
        """What stands beside the effect: of the direction that holds whatever the unknown values were."""
        if not self.has_unknown or self.is_better:
            return self.result.p
        return self.p_any if self.is_worse else 1.0


def make_result(
    claim: ClaimName, asked: Asked, *, measure: str, unit: str, statistic: str, effect_unit: str,
    before: SideSummary, after: SideSummary, effect: float | None, lo: float | None, hi: float | None, p: float,
    method: str, needed: str, strata: tuple[StratumRow, ...], left_out: tuple[str, ...], is_injected: bool,
) -> ClaimResult:  # fmt: skip
    """What was found, still without an answer."""
    return ClaimResult(
        claim=str(claim), measure=measure, unit=unit, statistic=statistic, before=before, after=after,
        effect=finite(effect), effect_unit=effect_unit, lo=finite(lo), hi=finite(hi), level=asked.level, p=p,
        p_adjusted=None, at_least=asked.at_least, answer="", reasons=(), needed=needed, method=method,
        is_injected=is_injected, differing=(), strata=strata, left_out=left_out,
    )  # fmt: skip


def finite(value: float | None) -> float | None:
    """None for what has no number."""
    return value if value is not None and math.isfinite(value) else None
