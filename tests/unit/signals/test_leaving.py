"""Leaving the loop together is a script's right; leaving it alone is a fault, named as soon as another rank goes on."""

from dataclasses import replace

import pytest

from lastgood.signals import liveness
from lastgood.signals.leaving import Left, assess
from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase, ProcessState, Raised, RankReading, Symptom, Verdict

S = 1_000_000


def reading(rank, *, step=5, launches=10, generation=1, phase=Phase.BETWEEN):
    return RankReading(
        rank=rank, worker=f"w{rank}", pid=1, generation=generation, exit_code=None, phase=phase, step=step,
        published_step=step, launches=launches, completions=launches, progress_us=0,
        process=ProcessState.SLEEPING, cpu_us=0, runqueue_wait_us=0,
    )  # fmt: skip


def look(readings, *, left, code=0, now_us=2 * S):
    found = {rank: Left(exit_code=code, t_us=S) for rank in left}
    return assess(readings, found, now_us=now_us, patience_us=30 * S)


def test_a_rank_that_leaves_alone_is_named_once_another_begins_a_later_step():
    found = look([reading(0, step=6), reading(1), reading(2)], left=[1])
    assert (found.verdict, found.symptom, found.culprits, found.onset_us) == (
        Verdict.FAILED, Symptom.PROCESS_EXIT, (1,), S,
    )  # fmt: skip
    assert found.key == "early exit code 0"
    assert found.evidence == (
        "rank 1 (w1) left its loop early, with exit code 0, in step 5; rank 0 went on in step 6",
    )


def test_a_rank_that_leaves_inside_a_step_is_named_by_the_collectives_it_never_enters():
    ahead = reading(0, launches=11, phase=Phase.COLLECTIVE)
    assert look([ahead, reading(1)], left=[1], code=3).key == "early exit code 3"


@pytest.mark.parametrize("left", [[0], [0, 1], []])
def test_nobody_is_named_while_the_others_may_still_follow(left):
    assert look([reading(0), reading(1), reading(2)], left=left) is None


def test_ranks_that_all_left_are_no_fault():
    assert look([reading(0), reading(1)], left=[0, 1], now_us=100 * S) is None


def test_others_that_neither_follow_nor_go_on_are_waited_for_up_to_the_limit():
    readings = [reading(0), reading(1)]
    assert look(readings, left=[1], now_us=31 * S) is None
    assert look(readings, left=[1], now_us=31 * S + 1).evidence[0].endswith("rank 0 did not follow")


def test_a_rank_of_an_older_generation_has_not_gone_on():
    assert look([reading(0, step=9, generation=2), reading(1)], left=[1]) is None


def test_a_process_that_ends_with_code_0_before_its_last_step_is_called_early():
    done = replace(reading(1), exit_code=0)
    found = liveness.assess([reading(0), done], limits=Limits(), now_us=S)
    assert (found.symptom, found.culprits, found.key) == (Symptom.PROCESS_EXIT, (1,), "exit code 0")
    assert found.evidence == ("rank 1 (w1) ended early, before its last step: exit code 0",)


def test_a_process_that_ends_with_code_0_behind_its_last_step_is_no_fault():
    done = replace(reading(1, phase=Phase.FINISHED), exit_code=0)
    found = liveness.assess([reading(0), done], limits=Limits(), now_us=S)
    assert found.verdict is Verdict.OK


@pytest.mark.parametrize(("code", "culprits"), [(-9, (1, 2)), (1, (1,)), (-6, (1,))])
def test_a_rank_that_was_killed_is_named_even_when_it_had_lost_its_peer_before(code, culprits):
    """Two ranks are killed at once: the second one sees the first one's end, and is no consequence of it."""
    echo = Raised(type_name="RuntimeError", message="", is_group_error=True, step=5, t_us=0)
    readings = [
        reading(0), replace(reading(1), exit_code=-9), replace(reading(2), exit_code=code, raised=echo),
    ]  # fmt: skip
    assert liveness.assess(readings, limits=Limits(), now_us=S).culprits == culprits
