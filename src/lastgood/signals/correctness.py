"""Is the state that the ranks produce acceptable?

Ordinary telemetry stays green while a model is being ruined, so three questions are asked of every
finished step: is a number no longer a number, did loss or gradient norm jump, and do all replicas hold
the same bits? A replica digest covers what a loss curve cannot show: one flipped bit in one copy.

Fails closed: every comparison is written so that a NaN, in the data or in a threshold, does not pass.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lastgood.signals.reading import Assessment, Question, StepReport, Symptom, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectnessMemory:
    """Thresholds and the rolling reference of accepted steps (bounded)."""

    jump_factor: float = 5.0
    """A loss or gradient norm above this multiple of its reference is a jump."""
    warmup_count: int = 20
    """Accepted steps before jumps are judged: early losses move a lot."""
    window_count: int = 64
    """Accepted steps kept as the reference."""
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()


class CorrectnessResult(NamedTuple):
    """The verdict on one step and the memory after it."""

    assessment: Assessment
    memory: CorrectnessMemory


def assess(
    reports: Sequence[StepReport], *, memory: CorrectnessMemory, world: int, now_us: int
) -> CorrectnessResult:
    """One verdict on one step that all ranks reported; only an ok step enters the reference."""
    if not reports:
        return CorrectnessResult(_answer(Verdict.UNKNOWN, evidence=("no rank reported",)), memory)
    steps = {report.step for report in reports}
    if len(steps) != 1:
        raise ValueError(f"correctness: reports of one step needed, found steps {sorted(steps)}")
    found = (
        _nonfinite(reports, world=world, now_us=now_us)
        or _divergence(reports, world=world, now_us=now_us)
        or _missing(reports, world=world, now_us=now_us)
        or _jump(reports, memory=memory, now_us=now_us)
    )
    if found is not None:
        return CorrectnessResult(found, memory)
    return CorrectnessResult(_answer(Verdict.OK), _learned(reports, memory))


def _nonfinite(reports: Sequence[StepReport], *, world: int, now_us: int) -> Assessment | None:
    """NaN or infinity; a rank's own gradient or loss names it, the reduced norm names nobody."""
    step = reports[0].step
    local = [r for r in reports if r.local_nonfinite or not _is_finite_or_none(r.loss)]
    reduced = [r for r in reports if not _is_finite_or_none(r.grad_norm)]
    if not local and not reduced:
        return None
    # All ranks at once points at the state or the data recipe, not at one of them.
    culprits = [r.rank for r in local] if len(local) < world else []
    evidence = [f"rank {r.rank}: own gradient or loss is not finite in step {step}" for r in local]
    if reduced:
        evidence.append(f"reduced gradient norm is not finite on {len(reduced)} of {world} ranks")
    return _answer(
        Verdict.FAILED,
        Symptom.NONFINITE,
        culprits,
        onset_us=now_us,
        first_divergent_step=step,
        evidence=tuple(evidence),
    )


def _divergence(reports: Sequence[StepReport], *, world: int, now_us: int) -> Assessment | None:
    """Replicas that hold other bits than the majority of the world; a tie names nobody."""
    counts = Counter(r.digest for r in reports if r.digest)
    if len(counts) <= 1:
        return None
    step = reports[0].step
    digest, count = counts.most_common(1)[0]
    words = tuple(f"rank {r.rank}: state {step} has digest {r.digest or '(none)'}" for r in reports)
    has_majority = 2 * count > world
    return _answer(
        Verdict.FAILED if has_majority else Verdict.UNKNOWN,
        Symptom.REPLICA_DIVERGENCE,
        [r.rank for r in reports if r.digest and r.digest != digest] if has_majority else [],
        onset_us=now_us,
        first_divergent_step=step,
        evidence=words
        if has_majority
        else (*words, "no digest has a majority: nobody can be named"),
    )


def _missing(reports: Sequence[StepReport], *, world: int, now_us: int) -> Assessment | None:
    """A digest that is not there is unknown, never ok: the state cannot be accepted."""
    step = reports[0].step
    seen = {r.rank for r in reports if r.digest}
    absent = [rank for rank in range(world) if rank not in seen]
    if not absent:
        return None
    return _answer(
        Verdict.UNKNOWN,
        Symptom.REPLICA_DIVERGENCE,
        onset_us=now_us,
        first_divergent_step=step,
        evidence=(
            f"no digest of ranks {absent} for state {step}: nobody can say that it is right",
        ),
    )


def _jump(
    reports: Sequence[StepReport], *, memory: CorrectnessMemory, now_us: int
) -> Assessment | None:
    found: list[str] = []
    for name, value, reference in (
        ("loss", _mean([r.loss for r in reports]), memory.losses),
        ("gradient norm", _mean([r.grad_norm for r in reports]), memory.grad_norms),
    ):
        if value is None or len(reference) < max(1, memory.warmup_count):
            continue
        usual = statistics.median(map(abs, reference))
        if not (abs(value) <= memory.jump_factor * usual):
            found.append(f"{name} {value:g} in step {reports[0].step}, usual {usual:g}")
    if not found:
        return None
    return _answer(Verdict.SUSPECT, Symptom.NUMERIC_JUMP, onset_us=now_us, evidence=tuple(found))


def _learned(reports: Sequence[StepReport], memory: CorrectnessMemory) -> CorrectnessMemory:
    loss = _mean([r.loss for r in reports])
    norm = _mean([r.grad_norm for r in reports])
    keep = memory.window_count
    return replace(
        memory,
        losses=memory.losses if loss is None else (*memory.losses, loss)[-keep:],
        grad_norms=memory.grad_norms if norm is None else (*memory.grad_norms, norm)[-keep:],
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _is_finite_or_none(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _answer(
    verdict: Verdict,
    symptom: Symptom | None = None,
    culprits: Sequence[int] = (),
    *,
    onset_us: int | None = None,
    first_divergent_step: int | None = None,
    evidence: tuple[str, ...] = (),
) -> Assessment:
    return Assessment(
        question=Question.CORRECTNESS,
        verdict=verdict,
        symptom=symptom,
        culprits=tuple(sorted(culprits)),
        onset_us=onset_us,
        first_divergent_step=first_divergent_step,
        evidence=evidence,
    )
