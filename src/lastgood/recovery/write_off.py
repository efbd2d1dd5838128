"""States that did not hold are written off: suspect after any mismatch, tainted when they are not old enough."""

from __future__ import annotations

from lastgood.recovery.case import record
from lastgood.recovery.last_good import StateKey, Trust, key_of
from lastgood.recovery.messages import Candidate, Tier
from lastgood.recovery.turn import Turn
from lastgood.signals.reading import Symptom


def give_up_target(
    turn: Turn, *, reason: str, symptom: Symptom | None, ranks: tuple[int, ...] = ()
) -> None:
    """The state whose trust was to be decided did not hold: it is suspect and never tried again here."""
    target = turn.open_case.target
    assert target is not None
    fail_state(turn, target, reason=reason, symptom=symptom, ranks=ranks)


def give_up_copies(turn: Turn, state: Candidate, *, reason: str) -> None:
    """The step before does not lead to this state: what was computed is wrong, so every copy of it is too."""
    for copy in turn.open_case.catalogue or ():
        is_same = copy.step == state.step and copy.digest == state.digest
        if is_same and (copy.step, copy.tier) not in turn.open_case.failed:
            fail_state(turn, copy, reason=reason, symptom=Symptom.REPLAY_MISMATCH, ranks=())


def fail_state(
    turn: Turn, state: Candidate, *, reason: str, symptom: Symptom | None, ranks: tuple[int, ...]
) -> None:
    """This copy of a state did not hold: suspect, and never tried again in this incident."""
    turn.change(trust=turn.state.trust.marked(key_of(state), Trust.SUSPECT))
    turn.change_case(failed=turn.open_case.failed | {(state.step, state.tier)})
    say_trust(
        turn, state.step, state.tier, Trust.SUSPECT, reason=reason, symptom=symptom, ranks=ranks
    )


def mark_listed(turn: Turn, *, step: int, tier: Tier) -> None:
    """The state before the target had wrong bytes: every listed copy of it in that tier is suspect."""
    book = turn.state.trust
    for candidate in turn.open_case.catalogue or ():
        if candidate.step == step and candidate.tier is tier:
            book = book.marked(key_of(candidate), Trust.SUSPECT)
    turn.change(trust=book.marked(StateKey(step, tier, "", None), Trust.SUSPECT))
    turn.change_case(failed=turn.open_case.failed | {(step, tier)})


def say_trust(
    turn: Turn,
    step: int,
    tier: Tier,
    trust: Trust,
    *,
    reason: str,
    symptom: Symptom | None = None,
    ranks: tuple[int, ...] = (),
) -> None:
    """Records what a state is worth from now on."""
    turn.say(
        record(
            turn.open_case,
            "state.trust",
            generation=turn.state.generation,
            now_us=turn.now_us,
            symptom=symptom.value if symptom is not None else None,
            class_="sdc" if symptom is not None else None,
            ranks=ranks,
            first_divergent_step=turn.open_case.below_step,
            body={"step": step, "tier": tier.value, "state": trust.value, "reason": reason},
        )
    )


def mark_tainted(turn: Turn) -> None:
    """States that are not strictly older than the divergent step are written off, whatever tier keeps them."""
    case = turn.open_case
    if case.below_step is None:
        return
    book = turn.state.trust
    for state in case.catalogue or ():
        is_newer = state.step >= case.below_step and book.is_current(
            state, published_step=case.published_step
        )
        if is_newer and book.trust_of(state) is not Trust.TAINTED:
            book = book.marked(key_of(state), Trust.TAINTED)
            reason = f"not older than the first divergent step {case.below_step}"
            say_trust(turn, state.step, state.tier, Trust.TAINTED, reason=reason)
    turn.change(trust=book)
