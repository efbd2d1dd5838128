"""The loop is broken on purpose, one duty at a time, and the sweep has to notice each time.

A sweep that passes with a loop that forgets a duty would prove nothing about the loop that keeps it.
"""

import dataclasses
from collections.abc import Callable

import pytest

from lastgood.recovery import attempt, closing, loop, new_fault, write_off
from lastgood.recovery.crew import Crew, Standing
from lastgood.recovery.last_good import TrustBook, choose
from lastgood.recovery.messages import ReplayOutcome, Revoke
from lastgood.recovery.simulated.sweep import sweep
from lastgood.recovery.turn import Turn
from lastgood.recovery.verification import ReplayFinding, RestoreFinding

SEEDS = range(400)


def skip_the_replay(patch: pytest.MonkeyPatch) -> None:
    accepted = ReplayFinding((), ReplayOutcome.EQUAL, ())
    patch.setattr(closing, "judge_replay", lambda answers, *, world: accepted)


def accept_a_replay_that_differs(patch: pytest.MonkeyPatch) -> None:
    def judge(answers, *, world):
        silent = tuple(rank for rank in range(world) if rank not in answers)
        return ReplayFinding(silent, None if silent else ReplayOutcome.EQUAL, ())

    patch.setattr(closing, "judge_replay", judge)


def accept_a_replay_of_most_ranks(patch: pytest.MonkeyPatch) -> None:
    def judge(answers, *, world):
        is_enough = len(answers) > world // 2
        return ReplayFinding((), ReplayOutcome.EQUAL if is_enough else None, ())

    patch.setattr(closing, "judge_replay", judge)


def accept_bytes_that_were_found_wrong(patch: pytest.MonkeyPatch) -> None:
    def judge(answers, *, world):
        return RestoreFinding(tuple(rank for rank in range(world) if rank not in answers), ())

    patch.setattr(attempt, "judge_restore", judge)


def forget_to_revoke(patch: pytest.MonkeyPatch) -> None:
    say = Turn.say

    def quiet(self, *actions):
        say(self, *(action for action in actions if not isinstance(action, Revoke)))

    patch.setattr(Turn, "say", quiet)


def do_not_wait_for_the_survivors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempt, "advance_isolating", attempt._restore)

    def reassigned(crew: Crew) -> Crew:
        standing = {
            worker: Standing.PARKED if crew.standing[worker] is Standing.ACTIVE else known
            for worker, known in crew.standing.items()
        }
        return whole(dataclasses.replace(crew, standing=standing))

    whole = Crew.reassigned
    patch.setattr(Crew, "reassigned", reassigned)


def use_a_generation_twice(patch: pytest.MonkeyPatch) -> None:
    change = Turn.change

    def forget(self, **changes):
        changes.pop("generation", None)
        change(self, **changes)

    patch.setattr(Turn, "change", forget)


def restore_what_is_known_to_be_wrong(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        attempt,
        "choose",
        lambda book, states, **rules: choose(book, states, **{**rules, "below_step": None}),
    )
    patch.setattr(write_off, "mark_tainted", lambda turn: None)


def try_the_same_state_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        attempt,
        "choose",
        lambda book, states, **rules: choose(TrustBook(), states, **{**rules, "failed": ()}),
    )


def restore_from_an_abandoned_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TrustBook, "is_current", lambda book, state, *, published_step: True)
    patch.setattr(write_off, "mark_tainted", lambda turn: None)


def let_a_spare_serve_that_never_came_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Crew, "spare_lost", Crew.spare_ready)


def wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "is_late", property(lambda turn: False))


def forget_to_charge_a_phase(patch: pytest.MonkeyPatch) -> None:
    from lastgood.recovery.case import Case

    patch.setattr(Case, "with_spent", lambda case, phase, duration_us: case)


def assign_a_process_that_the_kernel_holds(patch: pytest.MonkeyPatch) -> None:
    moved = Crew.moved

    def hopeful(crew, workers, standing):
        return moved(
            crew, workers, Standing.PARKED if standing is Standing.UNKILLABLE else standing
        )

    patch.setattr(Crew, "moved", hopeful)


def forget_what_came_back(patch: pytest.MonkeyPatch) -> None:
    diagnose = loop.diagnose

    def fresh(assessment, **rules):
        return diagnose(assessment, **{**rules, "earlier": ()})

    patch.setattr(loop, "diagnose", fresh)


def try_a_bug_of_every_rank_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop, "_leave_suspect", attempt.isolate)


def blame_a_process_for_a_bug_of_every_rank(patch: pytest.MonkeyPatch) -> None:
    from lastgood.recovery.case import Case

    patch.setattr(Case, "is_everywhere", lambda case, world: False)


def blame_a_process_for_a_bug_of_every_replay(patch: pytest.MonkeyPatch) -> None:
    from lastgood.recovery.case import Case

    everywhere = Case.is_everywhere
    patch.setattr(
        Case, "is_everywhere", lambda case, world: not case.is_assigned and everywhere(case, world)
    )


def try_a_bug_of_every_replay_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        new_fault, "go_back_together", lambda turn: attempt.retry(turn, culprits=(), reason="again")
    )


def wait_for_a_spare_in_silence(patch: pytest.MonkeyPatch) -> None:
    note = Turn.note

    def quiet(self, text, body, **fields):
        if text != "waiting for a spare":
            note(self, text, body, **fields)

    patch.setattr(Turn, "note", quiet)


BROKEN = [
    skip_the_replay,
    accept_a_replay_that_differs,
    accept_a_replay_of_most_ranks,
    accept_bytes_that_were_found_wrong,
    forget_to_revoke,
    do_not_wait_for_the_survivors,
    use_a_generation_twice,
    restore_what_is_known_to_be_wrong,
    try_the_same_state_again,
    restore_from_an_abandoned_history,
    let_a_spare_serve_that_never_came_up,
    wait_for_ever,
    forget_to_charge_a_phase,
    assign_a_process_that_the_kernel_holds,
    forget_what_came_back,
    try_a_bug_of_every_rank_for_ever,
    blame_a_process_for_a_bug_of_every_rank,
    blame_a_process_for_a_bug_of_every_replay,
    try_a_bug_of_every_replay_for_ever,
    wait_for_a_spare_in_silence,
]


@pytest.mark.parametrize("break_the_loop", BROKEN, ids=lambda breaker: breaker.__name__)
def test_the_sweep_notices_a_loop_that_would(
    break_the_loop: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
):
    break_the_loop(monkeypatch)
    result = sweep(SEEDS, finding_count_max=1)
    assert len(result.findings) == 1
