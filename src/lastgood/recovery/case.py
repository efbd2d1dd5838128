"""An incident while it is open: what is known, what was tried, and the times spent so far.

The five durations are the times spent in the phases of the loop, so they add up exactly to the time from
the onset to the close, over however many attempts it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lastgood.recovery.diagnosis import Diagnosis
from lastgood.recovery.messages import Candidate, Record, Replayed, Restored, RestorePlan, Tier
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.reading import Assessment


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One open incident. Times are on the loop's clock."""

    id: str
    diagnosis: Diagnosis
    assessment: Assessment
    """The verdict that opened it."""
    onset_us: int
    detected_us: int
    published_step: int
    """Newest state that all ranks had published when it opened: lost steps are counted from here."""
    below_step: int | None
    """Only states strictly older than this may be restored; None when nothing diverged."""
    host: str
    path: str = "soft"
    """`soft`: survivors stayed all along; `hard`: in some attempt every rank was replaced."""
    is_widened: bool = False
    """The present isolation already takes every rank out."""
    attempt_count: int = 0
    """Generations formed so far within the incident."""
    culprits: tuple[int, ...] = ()
    """Every rank that was named during the incident."""
    killed: tuple[str, ...] = ()
    awaited_stacks: frozenset[str] = frozenset()
    stacks: Mapping[str, str] = field(default_factory=dict)
    catalogue: tuple[Candidate, ...] | None = None
    """The answer to `ReadCatalogue` of the present attempt; None while it is awaited."""
    target: Candidate | None = None
    last_target: Candidate | None = None
    """The state of the attempt before: a late bad answer still counts against it."""
    plan: RestorePlan | None = None
    is_assigned: bool = False
    failed: frozenset[tuple[int, Tier]] = frozenset()
    """States that were tried and did not hold: never tried again in this incident."""
    target_attempts: Mapping[tuple[int, Tier], int] = field(default_factory=dict)
    minority_counts: Mapping[int, int] = field(default_factory=dict)
    """How often a rank's replay alone came out different; a second time it is a culprit."""
    raised: frozenset[int] = frozenset()
    """Ranks whose user code raised: before the first attempt, and then anew in each one."""
    raised_key: str = ""
    """What they raised; several names with a comma between them are several errors."""
    raised_words: tuple[str, ...] = ()
    """What the newest verdict on them says of each: its rank, step, line and message. Kept over the attempts."""
    everywhere_counts: Mapping[str, int] = field(default_factory=dict)
    """How often in this incident all go back because every rank raised that error."""
    relapse_count: int = 0
    """Attempts of this incident in which user code of some ranks raised again."""
    is_short_noted: bool = False
    """It was said that this attempt waits for a spare."""
    restored: Mapping[int, Restored] = field(default_factory=dict)
    replayed: Mapping[int, Replayed] = field(default_factory=dict)
    spent_us: Mapping[LoopPhase, int] = field(default_factory=dict)

    def with_spent(self, phase: LoopPhase, duration_us: int) -> Case:
        """The case after some time in a phase of the loop."""
        return replace(
            self, spent_us={**self.spent_us, phase: self.spent_us.get(phase, 0) + duration_us}
        )

    def for_next_attempt(self) -> Case:
        """The case with what belongs to one attempt cleared; what was learned stays."""
        return replace(
            self,
            catalogue=None,
            target=None,
            last_target=self.target,
            plan=None,
            is_assigned=False,
            is_short_noted=False,
            restored={},
            replayed={},
        )

    def is_everywhere(self, world: int) -> bool:
        """Whether every rank of several raised one and the same error: nothing that a process can be blamed for."""
        has_one_error = bool(self.raised_key) and "," not in self.raised_key
        return world > 1 and has_one_error and len(self.raised) == world

    @property
    def target_key(self) -> tuple[int, Tier] | None:
        """The state whose trust is being decided."""
        return None if self.plan is None else (self.plan.target_step, self.plan.tier)

    @property
    def lost_step_count(self) -> int | None:
        """Accepted steps that have to be done again; the replay of a step that is kept does not count."""
        return None if self.plan is None else max(0, self.published_step - self.plan.target_step)


def opening_records(case: Case, *, generation: int) -> tuple[Record, ...]:
    """`incident.open` and `detect`."""
    words = {
        "class_": case.diagnosis.failure_class.value,
        "symptom": case.diagnosis.symptom.value,
        "cause": case.diagnosis.cause.value,
        "cause_status": case.diagnosis.cause_status.value,
        "role": "initiating",
        "ranks": case.diagnosis.culprits,
        "t_occurred_us": case.onset_us,
        "t_observed_us": case.detected_us,
    }
    opened = record(
        case,
        "incident.open",
        generation=generation,
        **words,
        domain=domain_of(case),
        first_divergent_step=case.below_step,
        body={
            "evidence": list(case.assessment.evidence),
            "signature": case.diagnosis.signature,
            "return_count": case.diagnosis.return_count,
            "published_step": case.published_step,
        },
    )
    detected = record(
        case,
        "detect",
        generation=generation,
        **words,
        detect_us=case.detected_us - case.onset_us,
        body={"question": case.assessment.question.value, "verdict": case.assessment.verdict.value},
    )
    return opened, detected


_DURATIONS = {
    LoopPhase.SUSPECT: "diagnose_us",
    LoopPhase.ISOLATING: "isolate_us",
    LoopPhase.RESTORING: "recover_us",
    LoopPhase.VERIFYING: "verify_us",
}
"""What the time in a phase is called once the phase is complete, in the order of the phases."""


def closing_record(
    case: Case,
    *,
    generation: int,
    now_us: int,
    outcome: str,
    world: int,
    failed_in: LoopPhase | None = None,
) -> Record:
    """`incident.close` with every time, and what the incident cost.

    Args:
        failed_in: Where an escalated incident ended. This phase and those behind it were not completed: their
            durations are unknown, not zero, and the time spent in them so far is kept apart.
    """
    order = list(_DURATIONS)
    complete = order if failed_in is None else order[: order.index(failed_in)]
    spent = {phase: case.spent_us.get(phase, 0) for phase in order}
    fields: dict[str, object] = {
        "class_": case.diagnosis.failure_class.value,
        "symptom": case.diagnosis.symptom.value,
        "ranks": case.culprits,
        "detect_us": case.detected_us - case.onset_us,
        **{_DURATIONS[phase]: spent[phase] for phase in complete},
        "lost_device_us": _lost_device_us(case, now_us=now_us, world=world),
        "first_divergent_step": case.below_step,
    }
    body: dict[str, object] = {
        "outcome": outcome,
        "signature": case.diagnosis.signature,
        "attempt_count": case.attempt_count,
        "path": case.path,
        "killed": list(case.killed),
        # A synchronous job stops as a whole, whoever failed.
        "blast_radius": world,
    }
    unfinished = {name: spent[phase] for phase, name in _DURATIONS.items() if phase not in complete}
    if unfinished:
        body["unfinished_us"] = unfinished
    if outcome == "recovered" and case.plan is not None and case.target is not None:
        body["lost_steps"] = case.lost_step_count
        body["resumed_step"] = case.plan.target_step
        if case.target.published_us is not None:
            fields["checkpoint_age_us"] = max(0, case.onset_us - case.target.published_us)
        fields["verification"] = verification_of(case)
    return record(case, "incident.close", generation=generation, now_us=now_us, body=body, **fields)


def _lost_device_us(case: Case, *, now_us: int, world: int) -> int:
    """All ranks of a synchronous job stand still from the onset until new steps are allowed; with a slow rank
    they went on until the detection, and lost what the detector counted.
    """
    slow_us = case.assessment.lost_device_us
    if slow_us is None:
        return world * (now_us - case.onset_us)
    return slow_us + world * (now_us - case.detected_us)


def verification_of(case: Case) -> dict[str, object]:
    """The verification as an event carries it: test, result, and the digest that was reproduced."""
    from lastgood.recovery.verification import describe_test, judge_replay

    assert case.plan is not None
    outcome = judge_replay(case.replayed, world=len(case.replayed)).outcome
    return {
        "test": describe_test(case.plan),
        "result": outcome.value if outcome is not None else "unknown",
        "evidence": case.plan.digest,
    }


def domain_of(case: Case) -> list[dict[str, str]]:
    """The fault domains touched, smallest first."""
    ranks = [{"kind": "rank", "id": str(rank)} for rank in case.diagnosis.culprits]
    return [*ranks, {"kind": "host", "id": case.host}]


def record(
    case: Case, kind: str, *, generation: int, now_us: int | None = None, **fields: Any
) -> Record:
    """One event of the incident; `now_us` sets both times where the fields do not."""
    known = {name: value for name, value in fields.items() if value is not None}
    if now_us is not None:
        known.setdefault("t_occurred_us", now_us)
        known.setdefault("t_observed_us", now_us)
    return Record(kind=kind, fields={"incident": case.id, "attempt": generation, **known})
