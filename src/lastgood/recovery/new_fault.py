"""A verdict while an incident is open: it belongs to that incident, and mostly it costs the present attempt.

An error of user code in the replay waits for the other ranks, as it does in SUSPECT: what every rank raises is a
bug of the script, and no process is killed for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lastgood.recovery import attempt
from lastgood.recovery.diagnosis import count_returns
from lastgood.recovery.escalation import escalate, last_seen
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.turn import Turn
from lastgood.signals.reading import Assessment, Symptom


def take_new_fault(turn: Turn, assessment: Assessment) -> None:
    """More culprits, an older divergent step, or an error that is waited with until the others had their time."""
    assessment = _without_executed(turn, assessment)
    if _is_known(turn, assessment):
        return
    named = _learn(turn, assessment)
    if assessment.symptom is Symptom.EXCEPTION:
        turn.change_case(raised_words=assessment.evidence)
    case = turn.open_case
    living = _living(turn, assessment.culprits)
    if turn.phase is LoopPhase.SUSPECT:
        wider = tuple(sorted({*case.diagnosis.culprits, *assessment.culprits}))
        turn.change_case(diagnosis=replace(case.diagnosis, culprits=wider))
    elif turn.phase is LoopPhase.ISOLATING:
        attempt.kill(turn, [turn.crew.serving[r] for r in living])
        if named:
            attempt.say_diagnosis(turn)
    elif assessment.symptom is Symptom.EXCEPTION and case.is_assigned:
        _take_error(turn, assessment)
    elif is_settling(turn):
        # Something else went wrong as well: this attempt is over, and the error is no error of every rank.
        _relapse(turn, case.raised_key, culprits=(*_living(turn, case.raised), *living))
    elif case.is_assigned or living:
        attempt.retry(turn, culprits=living, reason=str(assessment.symptom))
    elif named:
        # Nobody is left to be isolated; the diagnosis and the plan are made again with what is known now.
        attempt.isolate(turn)
    else:
        # Nothing to isolate, but a plan that waits for workers may have been made for a state that is now
        # known to be wrong: it is made again.
        turn.change_case(plan=None, target=None)


def _learn(turn: Turn, assessment: Assessment) -> tuple[int, ...]:
    """Takes the verdict into the incident; returns the ranks that were not named before."""
    case = turn.open_case
    divergent = [s for s in (case.below_step, assessment.first_divergent_step) if s is not None]
    named = tuple(r for r in assessment.culprits if r not in case.culprits)
    is_same = assessment.symptom is Symptom.EXCEPTION and assessment.key == case.raised_key
    raised = assessment.culprits if is_same and turn.phase is LoopPhase.SUSPECT else ()
    turn.change_case(
        below_step=min(divergent, default=None),
        culprits=tuple(sorted({*case.culprits, *named})),
        raised=case.raised | set(raised),
    )
    if named:
        turn.note(
            "another fault in the same incident",
            {"evidence": list(assessment.evidence)},
            ranks=named,
        )
    return named


def _living(turn: Turn, ranks: Iterable[int]) -> tuple[int, ...]:
    """Those of these ranks whose process has not ended."""
    serving = turn.crew.serving
    return tuple(r for r in sorted(ranks) if turn.crew.of(serving[r]) in attempt.LIVING)


def _without_executed(turn: Turn, assessment: Assessment) -> Assessment:
    """The verdict without the ranks that this recovery itself killed: that they ended is no fault of theirs."""
    if assessment.symptom is not Symptom.PROCESS_EXIT:
        return assessment
    serving, killed = turn.crew.serving, turn.open_case.killed
    own = tuple(r for r in assessment.culprits if serving[r] not in killed)
    return replace(assessment, culprits=own)


def _is_known(turn: Turn, assessment: Assessment) -> bool:
    """Whether nothing of this is new: the end of a rank that was killed here or has raised, or the error of every rank."""
    case = turn.open_case
    has_raised = case.raised.issuperset(assessment.culprits)
    if assessment.symptom is Symptom.PROCESS_EXIT:
        return not assessment.culprits or (is_settling(turn) and has_raised)
    return (
        assessment.symptom is Symptom.EXCEPTION
        and turn.phase is not LoopPhase.SUSPECT
        and not is_settling(turn)
        and case.is_everywhere(turn.state.world)
        and has_raised
    )


# --- errors of user code in an attempt ------------------------------------------------------------


def is_settling(turn: Turn) -> bool:
    """Whether user code raised in the present attempt, and the other ranks have a moment to raise too."""
    case = turn.open_case
    is_trying = turn.phase in (LoopPhase.RESTORING, LoopPhase.VERIFYING) and case.is_assigned
    return is_trying and bool(case.raised)


def _take_error(turn: Turn, assessment: Assessment) -> None:
    """The first error of an attempt gives the other ranks a moment to raise it too; a single rank waits for nobody."""
    case = turn.open_case
    if turn.state.world == 1 or not assessment.culprits:
        _relapse(turn, assessment.key, culprits=_living(turn, assessment.culprits))
        return
    if not is_settling(turn):
        settled_us = turn.now_us + turn.state.policy.exception_settle_us
        until_us = turn.state.deadline_us
        turn.change(deadline_us=settled_us if until_us is None else min(settled_us, until_us))
    keys = {*case.raised_key.split(","), *assessment.key.split(",")} - {""}
    raised = case.raised | set(assessment.culprits)
    turn.change_case(raised=raised, raised_key=",".join(sorted(keys)))


def advance_settling(turn: Turn) -> None:
    """An attempt with errors ends once every rank has raised, or the time to do so is over."""
    case = turn.open_case
    if case.is_everywhere(turn.state.world):
        go_back_together(turn)
    elif turn.is_late or len(case.raised) == turn.state.world:
        _relapse(turn, case.raised_key, culprits=_living(turn, case.raised))


def go_back_together(turn: Turn) -> None:
    """Every rank raised one error: nobody is killed, and it is tried as often as the contract says."""
    case = turn.open_case
    key = case.raised_key
    signature = f"{Symptom.EXCEPTION}/{key}"
    words = f"every rank raised {key} in the same step: a bug of the script, not of a host"
    turn.note(words, {"signature": signature}, ranks=tuple(sorted(case.raised)))
    policy = turn.state.policy
    earlier = count_returns(
        signature,
        earlier=turn.state.closed,
        window_us=policy.recurrence_window_us,
        now_us=turn.now_us,
    )
    count = case.everywhere_counts.get(key, 0)
    if earlier + count >= policy.every_rank_limit:
        escalate(turn, f"{words}; signature {signature}{last_seen(case.raised_words)}")
        return
    turn.change_case(everywhere_counts={**case.everywhere_counts, key: count + 1})
    attempt.retry(turn, culprits=(), reason=f"{key} of every rank")


def _relapse(turn: Turn, key: str, *, culprits: Iterable[int]) -> None:
    """User code of some ranks raised while the state was being verified: tried again, then wider, then never again.

    The bound is that of the same failure coming back, since that is what it is, only sooner.
    """
    count = turn.open_case.relapse_count + 1
    turn.change_case(relapse_count=count)
    if count > turn.state.policy.recurrence_limit:
        words = f"the same error came back in {count} recoveries"
        seen = last_seen(turn.open_case.raised_words)
        escalate(turn, f"{words}: {Symptom.EXCEPTION}/{key}{seen}")
        return
    attempt.retry(turn, culprits=culprits, reason=f"{key} in the replay", is_hard=count > 1)
