"""What only a look from outside has to say: ranks that left early, groups that broke, work that nobody declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lastgood.signals.reading import (
    Assessment,
    Phase,
    ProcessState,
    Question,
    RankReading,
    Symptom,
    Verdict,
)

UNDECLARED = (
    "if it was at work there, such as in an evaluation or a checkpoint, declare that and it has a limit of its own: "
    'with run.section("eval"): ... where the script calls lastgood.start, '
    'with lastgood.attach().section("eval"): ... where it does not'
)
_OWN_CODE = frozenset({Phase.BETWEEN, Phase.COMPUTE})


def with_advice(found: Assessment, readings: Sequence[RankReading]) -> Assessment:
    """The verdict, with how a script says that it is at work, where a rank is called hung in its own code.

    An unchanged script declares nothing, and an evaluation through its wrapper looks like the forward pass of a step.
    """
    if found.symptom is not Symptom.HANG or found.verdict not in {Verdict.FAILED, Verdict.UNKNOWN}:
        return found
    meant = [r for r in readings if r.rank in found.culprits or not found.culprits]
    is_stopped = any(r.process is ProcessState.STOPPED for r in meant)
    if is_stopped or not any(r.phase in _OWN_CODE for r in meant):
        return found
    return replace(found, evidence=(*found.evidence, UNDECLARED))


def numbered_on(reading: RankReading, offset: int) -> RankReading:
    """The reading in the numbers of the ledger."""
    raised = reading.raised
    return replace(
        reading,
        step=reading.step + offset,
        published_step=reading.published_step + offset,
        raised=None if raised is None else replace(raised, step=raised.step + offset),
    )


def has_left(reading: RankReading) -> bool:
    """Whether the rank is through with its script, with code 0; Python may still take its process apart."""
    return reading.phase is Phase.FINISHED and reading.exit_code in {None, 0}


def broken_groups(readings: Sequence[RankReading]) -> dict[int, int]:
    """The ranks whose group broke, each with when it raised the error of it (monotonic)."""
    raised = ((r.rank, r.raised) for r in readings)
    return {rank: e.t_us for rank, e in raised if e is not None and e.is_group_error}


def left_early(
    left: Sequence[RankReading], living: Sequence[RankReading], *, onset_us: int | None
) -> Assessment:
    """Ranks that ended with code 0 while the others wait for them: an end too early."""
    foremost = max(living, key=lambda r: (r.step, r.launches))
    return Assessment(
        question=Question.LIVENESS,
        verdict=Verdict.FAILED,
        symptom=Symptom.PROCESS_EXIT,
        culprits=tuple(sorted(r.rank for r in left)),
        onset_us=min((r.progress_us for r in left), default=onset_us),
        evidence=tuple(
            f"rank {r.rank} ({r.worker}) ended with exit code 0, {place_of(r)}; foremost of the others: {place_of(foremost)}"
            for r in left
        ),
        key="exit code 0",
    )


def of_a_group(
    found: Assessment, readings: Sequence[RankReading], advice: Sequence[str]
) -> Assessment:
    """Only ranks that ended of an error of their group are in sight: messengers, so nobody is named."""
    raised = [(r, r.raised) for r in readings if r.raised is not None and r.raised.is_group_error]
    is_new = all(r.published_step <= 0 for r in readings)
    what = "the process group could not be formed" if is_new else "the process group lost a peer"
    words = [f"rank {r.rank} ended of its group: {e.type_name}: {e.message}" for r, e in raised]
    return replace(
        found,
        verdict=Verdict.UNKNOWN,
        symptom=Symptom.GROUP_ERROR,
        culprits=(),
        onset_us=min((e.t_us for _, e in raised), default=found.onset_us),
        evidence=(f"{what}; which rank was the cause is not known", *words, *(advice if is_new else ())),
        key=",".join(sorted({e.type_name for _, e in raised})),
    )  # fmt: skip


def without_later_ends(
    found: Assessment, readings: Sequence[RankReading], seen_alive: set[int]
) -> Assessment:
    """The verdict without ranks that ended only after a peer's group had broken; the peers' own, if nobody is left."""
    if found.symptom is not Symptom.PROCESS_EXIT or not seen_alive & set(found.culprits):
        return found
    left = tuple(rank for rank in found.culprits if rank not in seen_alive)
    if not left:
        victims = (r.rank for r in readings if r.raised is not None and r.raised.is_group_error)
        return replace(found, culprits=tuple(victims))
    words = (w for w in found.evidence if not any(w.startswith(f"rank {r} ") for r in seen_alive))
    return replace(found, culprits=left, evidence=tuple(words))


def place_of(reading: RankReading) -> str:
    """Where a rank stands. The number in its page is that of the step it is in, which nobody has accepted yet."""
    done = max(0, reading.published_step)
    return f"in step {reading.step}" if reading.step > done else f"after step {done}"
