"""Has a rank left the training loop while the others go on?

Leaving together is a script's right: every rank breaks out behind the same step and the run ends with the code that
the scripts end with. Leaving alone is a death in slow motion: the process still lives, says that it is done, and the
others wait for it in their next collective. So a rank that left is at fault once another one goes on: it began a later
step, or it entered more collectives than the one that left ever will.

Pure: who left and when is passed in, by rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lastgood.signals.reading import Assessment, Question, RankReading, Symptom, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A rank that came out of its loop before the data was at an end."""

    exit_code: int
    """With which it wants to end."""
    t_us: int


def assess(
    readings: Sequence[RankReading], left: Mapping[int, Left], *, now_us: int, patience_us: int
) -> Assessment | None:
    """The verdict on those that left alone; None while nobody did, or the others may still follow.

    Args:
        patience_us: how long the others may stay behind without a sign of going on.
    """
    leavers = [r for r in readings if r.rank in left]
    others = [r for r in readings if r.rank not in left]
    if not leavers or not others:
        return None
    onset_us = min(left[r.rank].t_us for r in leavers)
    ahead = [r for r in others if any(_goes_on(r, without=leaver) for leaver in leavers)]
    if not ahead and now_us - onset_us <= patience_us:
        return None
    codes = sorted({left[r.rank].exit_code for r in leavers})
    return Assessment(
        question=Question.LIVENESS,
        verdict=Verdict.FAILED,
        symptom=Symptom.PROCESS_EXIT,
        culprits=tuple(sorted(r.rank for r in leavers)),
        onset_us=onset_us,
        evidence=tuple(
            f"rank {r.rank} ({r.worker}) left its loop early, with exit code {left[r.rank].exit_code}, "
            f"in step {r.step}; {_words(ahead or others, has_gone_on=bool(ahead))}"
            for r in leavers
        ),
        key=",".join(f"early exit code {code}" for code in codes),
    )


def _goes_on(reading: RankReading, *, without: RankReading) -> bool:
    is_same = reading.generation == without.generation
    is_further = reading.step > without.step or reading.launches > without.launches
    return is_same and is_further


def _words(others: Sequence[RankReading], *, has_gone_on: bool) -> str:
    first = others[0]
    if has_gone_on:
        return f"rank {first.rank} went on in step {first.step}"
    return f"rank {first.rank} did not follow"
