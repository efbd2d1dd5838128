"""One attempt to recover: isolate what is at fault, form a new generation, restore.

Everything that goes wrong on the way leads back to ISOLATING in the same incident, with what was learned:
further culprits, a state that did not hold, a wider domain. The number of attempts is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

from lastgood.contract.taxonomy import DomainKind
from lastgood.recovery import write_off
from lastgood.recovery.case import record
from lastgood.recovery.crew import Standing
from lastgood.recovery.escalation import escalate
from lastgood.recovery.last_good import Trust, choose
from lastgood.recovery.messages import (
    Assign,
    Kill,
    ReadCatalogue,
    Replayed,
    ReplayOutcome,
    Restored,
    Revoke,
    Tier,
)
from lastgood.recovery.policy import LoopPhase, OnTimeout
from lastgood.recovery.quarantine import evicted_workers
from lastgood.recovery.staffing import is_complete
from lastgood.recovery.turn import Turn
from lastgood.recovery.verification import judge_restore
from lastgood.signals.reading import Symptom

LIVING = (Standing.ACTIVE, Standing.PARKED)
"""A worker that can still be killed."""


# --- isolating ------------------------------------------------------------------------------------


def isolate(turn: Turn, *, culprits: Iterable[int] = (), is_hard: bool = False) -> None:
    """-> ISOLATING: kills what must leave the next attempt and tells the survivors to leave the generation."""
    case = turn.open_case
    first = turn.phase is LoopPhase.SUSPECT
    if first and case.is_everywhere(turn.state.world):
        # No process is to blame, and new ones would run into the same bug: all of them go back and try once more.
        doomed = set()
    elif first:
        doomed = set(evicted_workers(case.diagnosis, turn.crew))
        is_hard = is_hard or case.diagnosis.domain is DomainKind.HOST
    else:
        doomed = set()
    doomed |= {turn.crew.serving[rank] for rank in culprits}
    if is_hard:
        doomed |= set(turn.crew.serving)
    turn.enter(LoopPhase.ISOLATING, timeout_us=_soft_deadline_us(turn, is_hard=is_hard))
    named = tuple(sorted({*case.culprits, *culprits}))
    turn.change_case(
        culprits=named,
        path="hard" if is_hard else case.path,
        is_widened=is_hard,
        awaited_stacks=frozenset(),
    )
    say_diagnosis(turn, is_first=first)
    kill(turn, doomed)
    survivors = turn.crew.serving_with(Standing.ACTIVE)
    if survivors:
        turn.say(Revoke(turn.state.generation, survivors))


def say_diagnosis(turn: Turn, *, is_first: bool = False) -> None:
    """Records who is at fault, as far as it is known now: the newest diagnosis of an incident decides."""
    case = turn.open_case
    turn.say(
        record(
            case,
            "diagnose",
            generation=turn.state.generation,
            now_us=turn.now_us,
            ranks=case.culprits,
            diagnose_us=case.spent_us.get(LoopPhase.SUSPECT, 0) if is_first else None,
            body={
                "culprits": list(case.culprits),
                "stacks": dict(case.stacks),
                "domain": case.diagnosis.domain.value,
                "return_count": case.diagnosis.return_count,
                "path": case.path,
            },
        )
    )


def advance_isolating(turn: Turn) -> None:
    """ISOLATING -> RESTORING once nobody of the old generation can touch anything any more."""
    if not turn.crew.serving_with(Standing.ACTIVE, Standing.DOOMED):
        _restore(turn)
    elif turn.is_late:
        _isolation_late(turn)


def _isolation_late(turn: Turn) -> None:
    """Someone neither left nor ended: take everybody out; if even that fails, call the owner."""
    case = turn.open_case
    left = turn.crew.serving_with(Standing.ACTIVE, Standing.DOOMED)
    if case.is_widened or turn.row.on_timeout is OnTimeout.ESCALATE:
        escalate(turn, f"{', '.join(left)} neither left the generation nor ended in time")
        return
    turn.change_case(path="hard", is_widened=True)
    kill(turn, turn.crew.serving)
    turn.extend(turn.row.timeout_us)
    turn.note("isolation took too long: every rank is replaced", {"unparked": list(left)})


def _soft_deadline_us(turn: Turn, *, is_hard: bool) -> int | None:
    limit_us = turn.state.policy.rows[LoopPhase.ISOLATING].timeout_us
    if is_hard or limit_us is None:
        return limit_us
    return min(limit_us, turn.state.policy.soft_deadline_us)


def kill(turn: Turn, workers: Iterable[str]) -> None:
    """Orders the end of those of these workers that still live."""
    living = tuple(w for w in turn.crew.serving if w in set(workers) and turn.crew.of(w) in LIVING)
    if living:
        turn.set_crew(turn.crew.moved(living, Standing.DOOMED))
        turn.change_case(killed=(*turn.open_case.killed, *living))
        turn.say(Kill(living))


# --- restoring ------------------------------------------------------------------------------------


def _restore(turn: Turn) -> None:
    """ISOLATING -> RESTORING: records the isolation and asks what could be restored."""
    _settle_target(turn)
    isolated_us = turn.now_us - turn.state.entered_us
    turn.enter(LoopPhase.RESTORING)
    turn.change(case=turn.open_case.for_next_attempt())
    turn.say(
        record(
            turn.open_case,
            "isolate",
            generation=turn.state.generation,
            now_us=turn.now_us,
            isolate_us=isolated_us,
            body={
                "killed": list(turn.open_case.killed),
                "parked": list(turn.crew.serving_with(Standing.PARKED)),
                "path": turn.open_case.path,
            },
        ),
        ReadCatalogue(),
    )


def advance_restoring(turn: Turn) -> None:
    """Plans, assigns as soon as every rank has a worker, and goes to VERIFYING when all bytes were right."""
    case = turn.open_case
    if case.is_assigned:
        finding = judge_restore(case.restored, world=turn.state.world)
        if finding.broken:
            _drop_broken(turn, finding.broken)
        elif finding.is_intact:
            _verify(turn)
        elif turn.is_late:
            take_silence(turn, silent=finding.silent)
        return
    if case.catalogue is not None and case.plan is None:
        _plan(turn)
    has_plan = turn.phase is LoopPhase.RESTORING and turn.open_case.plan is not None
    if has_plan and is_complete(turn):
        _assign(turn)
    elif turn.phase is LoopPhase.RESTORING and turn.is_late and not has_plan:
        escalate(turn, "the states could not be listed in time")


def _plan(turn: Turn) -> None:
    write_off.mark_tainted(turn)
    case = turn.open_case
    assert case.catalogue is not None
    spent = frozenset(
        key
        for key, count in case.target_attempts.items()
        if count >= turn.state.policy.target_attempts_max
    )
    choice = choose(
        turn.state.trust,
        case.catalogue,
        published_step=turn.state.published_step,
        below_step=case.below_step,
        failed=case.failed | spent,
    )
    if choice is None:
        tries = case.target_attempts.get((0, Tier.INITIAL), 0)
        escalate(
            turn,
            f"the run did not get through its start in {tries} attempts"
            if tries
            else "no state is left that may be restored",
        )
        return
    turn.change_case(plan=choice.plan, target=choice.candidate)


def _assign(turn: Turn) -> None:
    """Forms the next generation. The number is new even when the last one never came to life."""
    case = turn.open_case
    assert case.plan is not None
    assert case.target_key is not None
    generation = turn.state.generation + 1
    turn.set_crew(turn.crew.reassigned())
    turn.change(generation=generation)
    tried = case.target_attempts.get(case.target_key, 0) + 1
    turn.change_case(
        is_assigned=True,
        attempt_count=case.attempt_count + 1,
        raised=frozenset(),
        raised_key="",
        target_attempts={**case.target_attempts, case.target_key: tried},
    )
    turn.extend(turn.row.timeout_us)
    plan = case.plan
    body = {
        "plan": {
            "tier": plan.tier.value,
            "mode": plan.mode.value,
            "restore_step": plan.restore_step,
            "target_step": plan.target_step,
            "locator": plan.locator,
        },
        "workers": {str(rank): worker for rank, worker in enumerate(turn.crew.serving)},
    }
    turn.say(
        record(
            turn.open_case, "restore.begin", generation=generation, now_us=turn.now_us, body=body
        ),
        Assign(generation=generation, workers=turn.crew.serving, plan=plan),
    )


def _verify(turn: Turn) -> None:
    """RESTORING -> VERIFYING: all ranks re-read the bytes and hashed them to the published digest."""
    plan = turn.open_case.plan
    assert plan is not None
    restored_us = turn.now_us - turn.state.entered_us
    turn.enter(LoopPhase.VERIFYING)
    turn.say(
        record(
            turn.open_case,
            "restore",
            generation=turn.state.generation,
            now_us=turn.now_us,
            recover_us=restored_us,
            body={"step": plan.restore_step, "tier": plan.tier.value, "intact": True},
        )
    )


def take_answer(turn: Turn, answer: Restored | Replayed) -> None:
    """Keeps what a rank of the newest generation answered; older generations have no say.

    An answer may come late, when another fault has ended the attempt already. A bad one still counts
    against the state; a good one has no value any more.
    """
    case = turn.case
    if (
        case is None
        or answer.generation != turn.state.generation
        or not 0 <= answer.rank < turn.state.world
    ):
        return
    if not case.is_assigned:
        if _is_bad(answer) and case.last_target is not None:
            write_off.fail_state(
                turn,
                case.last_target,
                reason="a late answer",
                symptom=_symptom(answer),
                ranks=(answer.rank,),
            )
            turn.change_case(plan=None, target=None)
    elif isinstance(answer, Restored):
        turn.change_case(restored={**case.restored, answer.rank: answer})
    else:
        turn.change_case(replayed={**case.replayed, answer.rank: answer})


def _is_bad(answer: Restored | Replayed) -> bool:
    if isinstance(answer, Restored):
        return not answer.is_intact
    return answer.outcome is ReplayOutcome.DIFFERENT


def _symptom(answer: Restored | Replayed) -> Symptom:
    return Symptom.SNAPSHOT_MISMATCH if isinstance(answer, Restored) else Symptom.REPLAY_MISMATCH


# --- what goes wrong on the way -------------------------------------------------------------------


def retry(turn: Turn, *, culprits: Iterable[int], reason: str, is_hard: bool = False) -> None:
    """Back to ISOLATING for another attempt, unless the bound is reached."""
    if turn.open_case.attempt_count >= turn.state.policy.attempts_max:
        escalate(turn, f"{turn.open_case.attempt_count} attempts failed, the last one: {reason}")
        return
    isolate(turn, culprits=culprits, is_hard=is_hard)


def _settle_target(turn: Turn) -> None:
    """A rank that already answered badly is heard, even when another fault ended the attempt first."""
    case = turn.open_case
    if not case.is_assigned or case.target is None or case.target_key in case.failed:
        return
    bad = [a for a in (*case.restored.values(), *case.replayed.values()) if _is_bad(a)]
    if bad:
        ranks = tuple(sorted({a.rank for a in bad}))
        reason = f"bad answers of ranks {list(ranks)}, the others did not finish"
        write_off.fail_state(
            turn, case.target, reason=reason, symptom=_symptom(bad[0]), ranks=ranks
        )


def _drop_broken(turn: Turn, broken: tuple[Restored, ...]) -> None:
    """Bytes did not hash to their published digest: that copy is suspect, and so is the plan built on it."""
    case = turn.open_case
    assert case.plan is not None
    assert case.target is not None
    for answer in broken:
        bad_step = case.plan.restore_step if answer.bad_step is None else answer.bad_step
        if bad_step != case.plan.target_step:
            write_off.mark_listed(turn, step=bad_step, tier=case.plan.tier)
            write_off.say_trust(
                turn,
                bad_step,
                case.plan.tier,
                Trust.SUSPECT,
                reason=f"re-read bytes differ: {answer.detail}",
                symptom=Symptom.SNAPSHOT_MISMATCH,
                ranks=(answer.rank,),
            )
    words = "; ".join(f"rank {a.rank}: {a.detail or 're-read bytes differ'}" for a in broken)
    ranks = tuple(a.rank for a in broken)
    write_off.give_up_target(turn, reason=words, symptom=Symptom.SNAPSHOT_MISMATCH, ranks=ranks)
    retry(turn, culprits=(), reason="the re-read bytes differ from their digest")


def take_silence(turn: Turn, *, silent: tuple[int, ...]) -> None:
    """Ranks of the new generation did not answer in time."""
    late_in = turn.phase.value
    on_timeout = turn.row.on_timeout
    if on_timeout is OnTimeout.ESCALATE:
        escalate(turn, f"ranks {list(silent)} did not answer in {late_in}")
        return
    # There is nothing older than the script's own state: it is tried again, up to the bound of one state.
    is_first = turn.open_case.plan is not None and turn.open_case.plan.tier is Tier.INITIAL
    if on_timeout is OnTimeout.FALL_BACK and not is_first:
        write_off.give_up_target(
            turn, reason=f"ranks {list(silent)} did not answer in {late_in}", symptom=None
        )
    retry(
        turn,
        culprits=silent,
        reason=f"ranks {list(silent)} did not answer in {late_in}",
        is_hard=on_timeout is OnTimeout.WIDEN,
    )
