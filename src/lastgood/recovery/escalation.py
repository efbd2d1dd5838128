"""The other end of an incident: the bounds are used up and a person is called."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.recovery.case import closing_record, record
from lastgood.recovery.last_good import choose
from lastgood.recovery.messages import Escalate
from lastgood.recovery.policy import CONTRACT_ROW, LoopPhase
from lastgood.recovery.turn import Turn

_SEEN_MAX = 2
"""Ranks whose error is repeated in the reason: the others mostly say the same."""
_SEEN_CHARS_MAX = 300


def escalate(turn: Turn, reason: str) -> None:
    """-> ESCALATED: records what was reached, closes the incident as escalated and calls the owner."""
    case = turn.open_case
    owner = turn.row.owner
    failed_in = turn.phase
    last_good_step = _last_good_step(turn)
    turn.enter(LoopPhase.ESCALATED)
    case = turn.open_case
    generation = turn.state.generation
    turn.say(
        record(
            case,
            "escalate",
            generation=generation,
            now_us=turn.now_us,
            ranks=case.culprits,
            body={
                "reason": reason,
                "owner": owner,
                "phase": failed_in.value,
                "signature": case.diagnosis.signature,
                "attempt_count": case.attempt_count,
                "last_published_step": case.published_step,
                "last_good_step": last_good_step,
            },
        ),
        closing_record(
            case,
            generation=generation,
            now_us=turn.now_us,
            outcome="escalated",
            world=turn.state.world,
            failed_in=failed_in,
        ),
        Escalate(
            reason=reason,
            incident=case.id,
            owner=owner,
            transition=CONTRACT_ROW[failed_in],
            culprits=case.culprits,
            last_good_step=last_good_step,
        ),
    )
    turn.change(case=None)


def last_seen(evidence: Sequence[str]) -> str:
    """What was seen the last time, as the end of a reason: on which rank, in which step and line, and the error's words.

    One line: of a long message its first line says what is wrong, and the rest what else might be tried.
    """
    told = [line[0][:_SEEN_CHARS_MAX] for line in map(str.splitlines, evidence) if line]
    more = len(told) - _SEEN_MAX
    rest = f"; and {more} more rank{'s' if more > 1 else ''}" if more > 0 else ""
    return f"; the last time: {'; '.join(told[:_SEEN_MAX])}{rest}" if told else ""


def _last_good_step(turn: Turn) -> int | None:
    """Newest state that could be restored; before the states of this incident were listed, the newest verified one."""
    case, trust = turn.open_case, turn.state.trust
    if case.catalogue is None:
        return trust.newest_verified(below_step=case.below_step)
    choice = choose(
        trust,
        case.catalogue,
        published_step=turn.state.published_step,
        below_step=case.below_step,
        failed=case.failed,
    )
    return None if choice is None else choice.candidate.step
