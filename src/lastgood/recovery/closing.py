"""The end of an incident that everybody wants: a replay that every rank accepts."""

from __future__ import annotations

from lastgood.recovery import attempt, write_off
from lastgood.recovery.case import closing_record, record, verification_of
from lastgood.recovery.diagnosis import Occurrence
from lastgood.recovery.last_good import Trust, key_of
from lastgood.recovery.messages import Resume, VerifyMode
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.turn import Turn
from lastgood.recovery.verification import ReplayFinding, judge_replay
from lastgood.signals.reading import Symptom


def advance_verifying(turn: Turn) -> None:
    """VERIFYING -> RUNNING only when every rank of this generation replayed and none came out different."""
    finding = judge_replay(turn.open_case.replayed, world=turn.state.world)
    if finding.is_accepted:
        _accept(turn)
    elif finding.outcome is not None:
        _reject(turn, finding)
    elif turn.is_late:
        attempt.take_silence(turn, silent=finding.silent)


def _accept(turn: Turn) -> None:
    """The state is verified: the run goes on from it and the incident is closed."""
    case = turn.open_case
    assert case.plan is not None
    assert case.target is not None
    generation = turn.state.generation
    plan = case.plan
    step = plan.target_step
    verify_us = turn.now_us - turn.state.entered_us
    book = turn.state.trust.marked(key_of(case.target), Trust.VERIFIED)
    book = book.resumed(generation=generation, step=step, at_us=turn.now_us)
    turn.enter(LoopPhase.RUNNING)
    case = turn.open_case
    verification = verification_of(case)
    turn.say(
        record(
            case,
            "verify",
            generation=generation,
            now_us=turn.now_us,
            verify_us=verify_us,
            verification=verification,
            body={"step": step, "target": plan.target_step, "mode": plan.mode.value},
        ),
        record(
            case,
            "state.trust",
            generation=generation,
            now_us=turn.now_us,
            body={
                "step": step,
                "tier": plan.tier.value,
                "state": Trust.VERIFIED.value,
                "reason": str(verification["test"]),
            },
        ),
        Resume(generation, step),
        closing_record(
            case,
            generation=generation,
            now_us=turn.now_us,
            outcome="recovered",
            world=turn.state.world,
        ),
    )
    closed = (*turn.state.closed, Occurrence(case.diagnosis.signature, turn.now_us))
    turn.change(case=None, trust=book, published_step=step, closed=closed, noted=())


def _reject(turn: Turn, finding: ReplayFinding) -> None:
    """The replay came out different: the state is suspect; a rank that is alone with it twice must leave."""
    case = turn.open_case
    details = "; ".join(
        f"rank {rank}: {answer.detail or answer.outcome.value}"
        for rank, answer in sorted(case.replayed.items())
    )
    refuted = case.target
    is_refuted = case.plan is not None and case.plan.mode is VerifyMode.PREDECESSOR
    counts = dict(case.minority_counts)
    for rank in finding.minority:
        counts[rank] = counts.get(rank, 0) + 1
    turn.change_case(minority_counts=counts)
    write_off.give_up_target(
        turn,
        reason=f"replay differs: {details}",
        symptom=Symptom.REPLAY_MISMATCH,
        ranks=finding.minority,
    )
    if refuted is not None and is_refuted and not finding.minority:
        write_off.give_up_copies(
            turn, refuted, reason=f"same digest, and the replay differs: {details}"
        )
    repeated = tuple(rank for rank in finding.minority if counts[rank] > 1)
    attempt.retry(turn, culprits=repeated, reason="the replayed step came out different")
