"""Are the ranks moving at the expected rate?

In a synchronous step all ranks look equally slow, because everybody waits for the slowest. So the time
*outside* collectives is compared, each rank against the median of its peers in the same step, and only a
rank that stays slow over a window of steps is named. The verdict is `suspect` and is recorded; nothing is
restarted because of it here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lastgood.signals.reading import Assessment, Question, StepReport, Symptom, Verdict

_MAD_TO_SIGMA = 1.4826
"""Turns a median absolute deviation into a standard deviation for a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceMemory:
    """Thresholds and, per rank, which of the last steps it was slow in (bounded)."""

    ratio_min: float = 1.3
    """A rank is slow in a step when its self time exceeds this multiple of the peers' median."""
    deviations_min: float = 4.0
    """... and lies this many robust standard deviations above it."""
    window_count: int = 10
    """Steps looked back on."""
    slow_count_min: int = 8
    """Slow steps within the window that name a rank."""
    history: Mapping[int, tuple[bool, ...]] = field(default_factory=dict)


class PerformanceResult(NamedTuple):
    """The verdict after one step and the memory after it."""

    assessment: Assessment
    memory: PerformanceMemory


def assess(
    reports: Sequence[StepReport], *, memory: PerformanceMemory, now_us: int
) -> PerformanceResult:
    """Names the ranks whose self time stayed above their peers' over the window."""
    if len(reports) < 2:
        words = ("a rank can be called slow only against peers",)
        return PerformanceResult(
            Assessment(question=Question.PERFORMANCE, verdict=Verdict.UNKNOWN, evidence=words),
            memory,
        )
    # The lower median: with two ranks the faster one is the reference.
    usual_us = statistics.median_low(r.self_us for r in reports)
    spread_us = statistics.median_low(abs(r.self_us - usual_us) for r in reports)
    bar_us = max(
        memory.ratio_min * usual_us, usual_us + memory.deviations_min * _MAD_TO_SIGMA * spread_us
    )
    history = {
        r.rank: (*memory.history.get(r.rank, ()), not (r.self_us <= bar_us))[-memory.window_count :]
        for r in reports
    }
    slow = sorted(rank for rank, marks in history.items() if sum(marks) >= memory.slow_count_min)
    after = replace(memory, history=history)
    if not slow:
        return PerformanceResult(
            Assessment(question=Question.PERFORMANCE, verdict=Verdict.OK), after
        )
    self_us = {r.rank: r.self_us for r in reports}
    return PerformanceResult(
        Assessment(
            question=Question.PERFORMANCE,
            verdict=Verdict.SUSPECT,
            symptom=Symptom.SLOW,
            culprits=tuple(slow),
            onset_us=now_us,
            evidence=tuple(
                f"rank {rank}: {sum(history[rank])} of {len(history[rank])} steps slow, now "
                f"{self_us[rank]} us outside collectives, peers' median {usual_us} us"
                for rank in slow
            ),
        ),
        after,
    )
