"""Did the ranks of a new generation restore the right bytes, and does a replayed step come out equal?

Both answers need *every* rank. One rank that is silent is not "probably fine"; the phase stays open until
it speaks or the time is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from lastgood.recovery.messages import Replayed, ReplayOutcome, Restored, RestorePlan, VerifyMode

RUN_TWICE = "run step"
"""How the name of a test begins that reproduces nothing published: the next step is run twice and compared."""


class RestoreFinding(NamedTuple):
    """What the ranks said about the bytes."""

    silent: tuple[int, ...]
    """Ranks that have not answered."""
    broken: tuple[Restored, ...]
    """Answers that found wrong bytes."""

    @property
    def is_intact(self) -> bool:
        """Every rank answered and none found wrong bytes."""
        return not self.silent and not self.broken


class ReplayFinding(NamedTuple):
    """What the ranks said about the replayed step."""

    silent: tuple[int, ...]
    outcome: ReplayOutcome | None
    """The worst answer; None while a rank is silent."""
    minority: tuple[int, ...]
    """Ranks that came out different while most did not: they are what is wrong, rather than the state."""

    @property
    def is_accepted(self) -> bool:
        """Every rank answered, and none came out different."""
        return self.outcome in (ReplayOutcome.EQUAL, ReplayOutcome.WITHIN_TOLERANCE)


def judge_restore(answers: Mapping[int, Restored], *, world: int) -> RestoreFinding:
    """Collects the answers of all ranks to one restore."""
    silent = tuple(rank for rank in range(world) if rank not in answers)
    return RestoreFinding(silent, tuple(a for _, a in sorted(answers.items()) if not a.is_intact))


def judge_replay(answers: Mapping[int, Replayed], *, world: int) -> ReplayFinding:
    """Collects the answers of all ranks to one replay."""
    silent = tuple(rank for rank in range(world) if rank not in answers)
    if silent:
        return ReplayFinding(silent, None, ())
    counts = Counter(answer.outcome for answer in answers.values())
    different = tuple(r for r, a in sorted(answers.items()) if a.outcome is ReplayOutcome.DIFFERENT)
    if different:
        return ReplayFinding(
            (), ReplayOutcome.DIFFERENT, different if 2 * len(different) < world else ()
        )
    if counts[ReplayOutcome.WITHIN_TOLERANCE]:
        return ReplayFinding((), ReplayOutcome.WITHIN_TOLERANCE, ())
    return ReplayFinding((), ReplayOutcome.EQUAL, ())


def describe_test(plan: RestorePlan) -> str:
    """The verification as it is written into the ledger."""
    if plan.mode is VerifyMode.BEGIN:
        return f"begin again: state {plan.target_step} has one digest on every rank"
    if plan.mode is VerifyMode.PREDECESSOR:
        return f"replay step {plan.target_step} on every rank"
    return f"{RUN_TWICE} {plan.target_step + 1} twice on every rank"
