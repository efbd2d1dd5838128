"""The recovery loop: `(state, observation, now) -> (state, actions)`.

    RUNNING -> SUSPECT -> ISOLATING -> RESTORING -> VERIFYING -> RUNNING
                              ^------------'------------'           (new fault, wrong bytes, other replay)
    any of them -> ESCALATED                                        (bounds of the contract are used up)

Read `policy.py` for the table. Every observation first changes what is *known* (`_observe`), then the loop
moves as far as what is known allows (`_advance`): one place decides each move, whatever made it possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lastgood.recovery import attempt, closing, new_fault
from lastgood.recovery.case import Case, opening_records
from lastgood.recovery.crew import Standing
from lastgood.recovery.diagnosis import diagnose
from lastgood.recovery.escalation import escalate, last_seen
from lastgood.recovery.messages import (
    Assessed,
    CatalogueRead,
    DumpStacks,
    Observation,
    Progress,
    RefillSpare,
    Replayed,
    Restored,
    SpareLost,
    SpareReady,
    StacksDumped,
    StopRequested,
    Tick,
    WorkerGone,
    WorkerParked,
    WorkerUnkillable,
)
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.state import LoopState, Step, initial_state
from lastgood.recovery.turn import Turn
from lastgood.signals.liveness import exit_words
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict

_STACK_SYMPTOMS = frozenset({Symptom.HANG, Symptom.GROUP_ERROR, Symptom.SLOW})
"""Where the stacks of living processes say something that the verdict does not."""
_MOVES_PER_STEP_MAX = 8
"""More moves than this on one observation is a broken loop."""

__all__ = ["LoopState", "Step", "initial_state", "step"]


def step(state: LoopState, observation: Observation, now_us: int) -> Step:
    """The loop after one observation, and what has to be done now."""
    turn = Turn(state, now_us)
    if state.phase is LoopPhase.ESCALATED:
        return turn.done()
    _observe(turn, observation)
    for _ in range(_MOVES_PER_STEP_MAX):
        if not _advance(turn):
            break
    else:
        raise AssertionError(f"the loop did not settle after {observation}")
    _refill(turn)
    return turn.done()


# --- what is known --------------------------------------------------------------------------------


def _observe(turn: Turn, observation: Observation) -> None:
    """Takes one observation into the state; moves only where a new fault is the observation itself."""
    match observation:
        case Assessed(assessment):
            _take_verdict(turn, assessment)
        case WorkerGone(worker, is_cascade, exit_code):
            _take_end(turn, worker, is_cascade=is_cascade, exit_code=exit_code)
        case SpareLost(worker):
            _take_end(turn, worker)
        case WorkerUnkillable(worker):
            _take_unkillable(turn, worker)
        case WorkerParked(worker, generation):
            if (
                generation in (None, turn.state.generation)
                and turn.crew.of(worker) is Standing.ACTIVE
            ):
                turn.set_crew(turn.crew.moved([worker], Standing.PARKED))
        case SpareReady(worker):
            turn.set_crew(turn.crew.spare_ready(worker))
        case StacksDumped(worker, locator):
            if turn.case is not None and worker in turn.case.awaited_stacks:
                stacks = {**turn.case.stacks, worker: locator}
                awaited = turn.case.awaited_stacks - {worker}
                turn.change_case(stacks=stacks, awaited_stacks=awaited)
        case CatalogueRead(candidates=candidates):
            if (
                turn.case is not None
                and turn.phase is LoopPhase.RESTORING
                and turn.case.catalogue is None
            ):
                turn.change_case(catalogue=tuple(candidates))
        case Restored() | Replayed():
            attempt.take_answer(turn, observation)
        case Progress(step=published, generation=generation):
            _take_progress(turn, published, generation)
        case StopRequested(reason):
            if not turn.state.is_stopping:
                turn.change(is_stopping=True)
                turn.note("stop requested", {"reason": reason, "phase": turn.phase.value})
        case Tick():
            pass


def _take_progress(turn: Turn, published: int, generation: int) -> None:
    if turn.phase is not LoopPhase.RUNNING or generation != turn.state.generation:
        return
    if published > turn.state.published_step:
        turn.change(published_step=published, trust=turn.state.trust.republished(published))


def _take_verdict(turn: Turn, assessment: Assessment) -> None:
    """A detector's verdict: remark on it, open an incident, or count it as a new fault of the open one."""
    # A rank that this job does not have is nobody's fault.
    known = tuple(rank for rank in assessment.culprits if rank < turn.state.world)
    assessment = replace(assessment, culprits=known)
    if assessment.symptom is Symptom.PROCESS_EXIT and assessment.question is Question.LIVENESS:
        ended = [turn.crew.serving[rank] for rank in assessment.culprits]
        turn.set_crew(turn.crew.moved(ended, Standing.GONE))
    is_actionable = assessment.verdict is Verdict.FAILED or (
        assessment.verdict is Verdict.UNKNOWN and assessment.symptom is not None
    )
    if not is_actionable:
        _remark(turn, assessment)
    elif turn.phase is LoopPhase.RUNNING:
        if not turn.state.is_stopping:
            _open(turn, assessment)
    else:
        new_fault.take_new_fault(turn, assessment)


def _take_end(
    turn: Turn, worker: str, *, is_cascade: bool = False, exit_code: int | None = None
) -> None:
    """A process ended. For a rank that serves and was not ordered to die this is a fault by itself.

    One that ended of another's end is replaced like any other, and never named.
    """
    standing = turn.crew.of(worker)
    if standing in (None, Standing.SPARE):
        turn.set_crew(turn.crew.spare_lost(worker))
        return
    if standing in (Standing.GONE, Standing.UNKILLABLE):
        return
    rank = turn.crew.rank_of(worker)
    assert rank is not None, f"{worker} is {standing} and serves no rank"
    turn.set_crew(turn.crew.moved([worker], Standing.GONE))
    if standing is Standing.DOOMED:
        return
    how = "" if exit_code is None else f": {exit_words(exit_code)}"
    assessment = Assessment(
        question=Question.LIVENESS,
        verdict=Verdict.FAILED,
        symptom=Symptom.GROUP_ERROR if is_cascade else Symptom.PROCESS_EXIT,
        culprits=() if is_cascade else (rank,),
        onset_us=turn.now_us,
        evidence=(f"rank {rank} ({worker}) ended{how}",),
    )
    _take_verdict(turn, assessment)


def _take_unkillable(turn: Turn, worker: str) -> None:
    if turn.crew.of(worker) is not Standing.DOOMED:
        return
    turn.set_crew(turn.crew.moved([worker], Standing.UNKILLABLE))
    rank = turn.crew.rank_of(worker)
    turn.note(
        "an unkillable process: nobody waits for it, and its host is marked",
        {"what": "host.quarantine", "host": turn.state.host, "worker": worker, "rank": rank},
        ranks=None if rank is None else (rank,),
    )


def _remark(turn: Turn, assessment: Assessment) -> None:
    """Records a verdict that nothing is done about, once for as long as it stays the same."""
    if assessment.verdict is Verdict.OK:
        return
    words = (assessment.question, assessment.verdict, assessment.symptom, assessment.culprits)
    if turn.state.noted == words:
        return
    turn.change(noted=words)
    turn.note(
        f"{assessment.question.value}: {assessment.verdict.value}",
        {"evidence": list(assessment.evidence)},
        symptom=assessment.symptom.value if assessment.symptom else None,
        ranks=assessment.culprits,
        t_occurred_us=assessment.onset_us,
    )


def _open(turn: Turn, assessment: Assessment) -> None:
    """RUNNING -> SUSPECT: opens the incident and takes the evidence that a kill would destroy."""
    state = turn.state
    policy = state.policy
    window_us = policy.recurrence_window_us
    earlier = tuple(o for o in state.closed if turn.now_us - o.closed_us <= window_us)
    diagnosis = diagnose(assessment, earlier=earlier, window_us=window_us, now_us=turn.now_us)
    onset_us = min(
        assessment.onset_us if assessment.onset_us is not None else turn.now_us, turn.now_us
    )
    case = Case(
        id=f"{state.run}/incident-{state.case_count + 1}",
        diagnosis=diagnosis,
        assessment=assessment,
        onset_us=onset_us,
        detected_us=turn.now_us,
        published_step=state.published_step,
        below_step=assessment.first_divergent_step,
        host=state.host,
        culprits=diagnosis.culprits,
    )
    turn.change(case=case, case_count=state.case_count + 1, closed=earlier, noted=())
    if state.is_launch_given_up:
        # Whatever killed the last spares may be over: a new incident is worth as many new tries.
        turn.change(is_launch_given_up=False)
        turn.set_crew(replace(turn.crew, launch_failure_count=0))
    turn.say(*opening_records(case, generation=state.generation))
    is_exception = assessment.symptom is Symptom.EXCEPTION
    if is_exception:
        raised, words = frozenset(assessment.culprits), assessment.evidence
        turn.change_case(raised=raised, raised_key=assessment.key, raised_words=words)
    turn.enter(LoopPhase.SUSPECT, timeout_us=policy.exception_settle_us if is_exception else None)
    if diagnosis.return_count > policy.recurrence_limit:
        words = f"the same failure came back {diagnosis.return_count} times: {diagnosis.signature}"
        escalate(turn, f"{words}{last_seen(assessment.evidence)}")
        return
    _ask_for_stacks(turn, assessment)


def _ask_for_stacks(turn: Turn, assessment: Assessment) -> None:
    """Stacks of the culprits, or of everybody when nobody could be named."""
    if assessment.symptom not in _STACK_SYMPTOMS:
        return
    ranks: Iterable[int] = assessment.culprits or range(turn.state.world)
    workers = tuple(
        w
        for w in (turn.crew.serving[r] for r in ranks)
        if turn.crew.of(w) in (Standing.ACTIVE, Standing.PARKED)
    )
    if workers:
        turn.change_case(awaited_stacks=frozenset(workers))
        turn.say(DumpStacks(workers))


# --- what follows from it -------------------------------------------------------------------------


def _advance(turn: Turn) -> bool:
    """Moves once if what is known, or the time, allows it; says whether it did."""
    before = (turn.phase, turn.state.entered_us, turn.case)
    match turn.phase:
        case LoopPhase.SUSPECT:
            if turn.is_late or _has_evidence(turn):
                _leave_suspect(turn)
        case LoopPhase.ISOLATING:
            attempt.advance_isolating(turn)
        case LoopPhase.RESTORING | LoopPhase.VERIFYING if new_fault.is_settling(turn):
            new_fault.advance_settling(turn)
        case LoopPhase.RESTORING:
            attempt.advance_restoring(turn)
        case LoopPhase.VERIFYING:
            closing.advance_verifying(turn)
        case LoopPhase.RUNNING | LoopPhase.ESCALATED:
            return False
    return (turn.phase, turn.state.entered_us, turn.case) != before


def _has_evidence(turn: Turn) -> bool:
    """All stacks are there; of an exception, every rank has raised it too or the time to do so is over."""
    case = turn.open_case
    if case.diagnosis.symptom is Symptom.EXCEPTION and turn.state.world > len(case.raised):
        return turn.state.world == 1
    return not case.awaited_stacks


def _leave_suspect(turn: Turn) -> None:
    """SUSPECT -> ISOLATING, unless every rank raised the same error as often as the contract has it tried."""
    if turn.open_case.is_everywhere(turn.state.world):
        new_fault.go_back_together(turn)
    else:
        attempt.isolate(turn)


def _refill(turn: Turn) -> None:
    """Orders spares as soon as one is missing, unless the last ones all died before they were ready."""
    if turn.phase is LoopPhase.ESCALATED:
        return
    failures = turn.crew.launch_failure_count
    if failures >= turn.state.policy.launch_failures_max:
        if not turn.state.is_launch_given_up:
            turn.change(is_launch_given_up=True)
            words = f"no more spares are started: {failures} in a row ended before they were ready"
            turn.note(words, {"failures": failures})
        return
    count = turn.crew.spare_deficit
    if count:
        turn.set_crew(turn.crew.ordered(count))
        turn.say(RefillSpare(count))
