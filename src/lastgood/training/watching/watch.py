"""The detectors over a live run: what they remember between two looks, and when they look.

Detection itself is pure and lies in `signals`; this only feeds it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.recovery import messages
from lastgood.signals import correctness, liveness, performance
from lastgood.signals.correctness import CorrectnessMemory
from lastgood.signals.limits import Limits, learn, section_key
from lastgood.signals.reading import (
    Assessment,
    Phase,
    Question,
    Raised,
    RankReading,
    Symptom,
    Verdict,
)
from lastgood.training.watching.observing import FinishedStep, finished_step, read_rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lastgood.contract.recovery_table import RecoveryTable
    from lastgood.signals.liveness import LivenessMemory
    from lastgood.training.processes import WorkerProcess

UNDECLARED = (
    "if it was at work there, such as in an evaluation, declare that and it has a limit of its own: "
    'with run.section("eval"): ...'
)
_PAUSES_KEPT = 256
"""Newest pauses that are remembered: older ones lie before any silence that still counts."""
_LONG_PAUSE_US = 1_000_000
"""After this the used processor time of before says nothing any more."""
_RECOVERY_TIMES = ("diagnose_us", "isolate_us", "recover_us", "verify_us")


class AssessedStep(NamedTuple):
    """A step that every rank published, with the verdicts on it."""

    finished: FinishedStep
    correctness: Assessment
    performance: Assessment


class Watch:
    """Looks at the ranks of the current generation."""

    def __init__(
        self,
        limits: Limits,
        *,
        recovery: RecoveryTable | None = None,
        is_observing: bool = False,
    ) -> None:
        """`limits` carries the floors and learns from accepted steps; `recovery` is the contract's word on slow ranks.

        Where the run is only observed, a slow rank is never more than suspect.
        """
        self.limits = limits
        self._is_observing = is_observing
        self._liveness: LivenessMemory | None = None
        self._correctness = CorrectnessMemory()
        self._performance = performance.PerformanceMemory(may_act=not is_observing)
        if recovery is not None:
            # At least as long as the loop remembers: being slow again must not widen the domain or end the run.
            self._performance = performance.PerformanceMemory(
                may_act=recovery.slow.act == "replace",
                assumed_cost_us=recovery.slow.cost_us,
                again_us=max(self._performance.again_us, recovery.recurrence.window_us),
            )
        self.generation = 0
        self.next_step = 1
        self._pauses: deque[tuple[int, int]] = deque(maxlen=_PAUSES_KEPT)

    def forgive(self, *, since_us: int, until_us: int) -> None:
        """The watcher itself did not look for a while: that time is nobody's silence, and the rest of it still is."""
        self._pauses.append((since_us, until_us))
        if until_us - since_us >= _LONG_PAUSE_US:
            self._liveness = None

    def heard_us(self, progress_us: int) -> int:
        """When a rank was last heard, on a clock that stands still while nobody looks."""
        missed = sum(max(0, end - max(start, progress_us)) for start, end in self._pauses)
        return progress_us + missed

    def begin_generation(self, generation: int, *, next_step: int) -> None:
        """Start over for a new generation; what was learned about durations stays."""
        self.generation = generation
        self.next_step = next_step
        self._liveness = None
        self._performance = performance.begin_generation(self._performance)

    def hear(self, action: messages.Action) -> None:
        """Learn from a recovery that is over how long the next one will take."""
        if not isinstance(action, messages.Record) or action.kind != EventKind.INCIDENT_CLOSE:
            return
        body = action.fields.get("body")
        if isinstance(body, dict) and body.get("outcome") == "recovered":
            spent = [action.fields.get(name) for name in _RECOVERY_TIMES]
            stood_us = sum(us for us in spent if isinstance(us, int))
            self._performance = performance.learn_recovery(self._performance, stood_us)

    def assess_steps(
        self, workers: Sequence[WorkerProcess], *, now_us: int
    ) -> Iterator[AssessedStep]:
        """Yield each newly finished step with its verdicts; stops behind the first that is not acceptable."""
        while (finished := self._finished(workers)) is not None:
            found, self._correctness = correctness.assess(
                finished.reports, memory=self._correctness, world=len(workers), now_us=now_us
            )
            self.next_step += 1
            if found.verdict not in (Verdict.OK, Verdict.SUSPECT):
                # How fast a wrong step was says nothing.
                unasked = Assessment(question=Question.PERFORMANCE, verdict=Verdict.UNKNOWN)
                yield AssessedStep(finished, found, unasked)
                return
            self._learn(finished)
            speed, self._performance = performance.assess(
                finished.reports, memory=self._performance, now_us=now_us
            )
            yield AssessedStep(finished, found, speed)
            if speed.verdict is Verdict.FAILED:
                return

    def _finished(self, workers: Sequence[WorkerProcess]) -> FinishedStep | None:
        if any(worker.slot.generation != self.generation for worker in workers):
            return None
        return finished_step(self.next_step, workers)

    def _learn(self, finished: FinishedStep) -> None:
        reports = finished.reports
        limits = learn(self.limits, "compute", *(r.self_us for r in reports))
        self.limits = learn(limits, "collective", *(r.step_us - r.self_us for r in reports))

    def learn_section(self, name: str, duration_us: int) -> None:
        """A section ended well after that long."""
        self.limits = learn(self.limits, section_key(name), duration_us)

    def read(
        self,
        workers: Sequence[WorkerProcess],
        raised: Mapping[int, Raised],
        *,
        asks_kernel: bool = True,
    ) -> list[RankReading]:
        """Return what is known about every rank now."""
        found = [
            read_rank(
                rank,
                worker,
                generation=self.generation,
                raised=raised.get(rank),
                asks_kernel=asks_kernel,
            )
            for rank, worker in enumerate(workers)
        ]
        if not self._pauses:
            return found
        return [replace(r, progress_us=self.heard_us(r.progress_us)) for r in found]

    def assess_liveness(
        self, workers: Sequence[WorkerProcess], raised: Mapping[int, Raised], *, now_us: int
    ) -> Assessment:
        """Return the verdict on whether the ranks move."""
        if any(worker.exit_code is not None for worker in workers):
            # An end speaks for itself, and a recovery waits for this word.
            ended = liveness.assess_ends(self.read(workers, raised, asks_kernel=False))
            if ended is not None:
                return ended
        readings = self.read(workers, raised)
        verdict = liveness.assess(
            readings, limits=self.limits, now_us=now_us, previous=self._liveness
        )
        self._liveness = liveness.remember(self._liveness, readings, now_us=now_us)
        return verdict if self._is_observing else _with_way_out(verdict, readings)


def _with_way_out(verdict: Assessment, readings: Sequence[RankReading]) -> Assessment:
    """A hang between two steps may be a long evaluation that nobody declared: its evidence says what to write."""
    if verdict.symptom is not Symptom.HANG:
        return verdict
    named = [r for r in readings if r.rank in verdict.culprits] or readings
    if all(r.phase is not Phase.BETWEEN for r in named):
        return verdict
    return replace(verdict, evidence=(*verdict.evidence, UNDECLARED))
