"""Stacks of equal text are one group; the largest is usual, the others are named, and a tie names nobody."""

from lastgood.training.watching.stack_groups import (
    THROUGH,
    ProcessStack,
    group_stacks,
    main_thread,
    outlier_ranks,
)

WAITING = """Process 101: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 101 (idle): "MainThread"
    backward (torch/autograd/__init__.py:353)
    <module> (train.py:20)
Thread 144 (idle): "lastgood-dump"
    wait (threading.py:331)
"""
BUSY = """Process 102: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 0x7F00AA (active+gil): "MainThread"
    spin (train.py:14)
    <module> (train.py:20)
"""
LOADER = """Process 201: python train.py

Thread 201 (idle): "MainThread"
    _worker_loop (torch/utils/data/_utils/worker.py:257)
    <module> (train.py:17)
"""
INSIDE = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f2 (most recent call first):
  File "/srv/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", line 353 in backward
  File "train.py", line 20 in <module>
"""


FLUSHING = """Thread 7 (active): "MainThread"
    __subclasscheck__ (<frozen abc>:123)
    flush_files (lastgood/training/teardown.py:82)
    main (lastgood/training/rank/observed.py:75)
    _run_code (<frozen runpy>:88)
"""
CLOSING = """Thread 8 (idle): "MainThread"
    __del__ (train.py:71)
    _note (lastgood/training/teardown.py:70)
"""


def stacks(*texts: str) -> list[ProcessStack]:
    return [ProcessStack(rank, 100 + rank, False, text) for rank, text in enumerate(texts)]


def test_ranks_at_the_same_place_are_one_group_and_the_odd_one_is_named():
    groups = group_stacks(stacks(WAITING, BUSY, WAITING.replace("101", "103"), WAITING))
    assert [(g.ranks, g.is_usual, g.is_outlier) for g in groups] == [
        ((0, 2, 3), True, False),
        ((1,), False, True),
    ]
    assert outlier_ranks(groups) == (1,)
    assert groups[1].stack == ("spin (train.py:14)", "<module> (train.py:20)")


def test_with_a_tie_nobody_is_usual_and_nobody_stands_out():
    groups = group_stacks(stacks(WAITING, BUSY))
    assert {(g.is_usual, g.is_outlier) for g in groups} == {(False, False)}
    assert outlier_ranks(groups) == ()


def test_with_two_largest_groups_the_smaller_one_does_not_stand_out_either():
    other = BUSY.replace("spin", "wait_for_disk")
    groups = group_stacks(stacks(WAITING, WAITING, BUSY, BUSY, other))
    assert [len(g.pids) for g in groups] == [2, 2, 1]
    assert outlier_ranks(groups) == ()


def test_loaders_are_compared_with_loaders_and_never_name_a_rank_as_trainer():
    dumps = [*stacks(WAITING, WAITING, WAITING), ProcessStack(1, 201, True, LOADER)]
    groups = group_stacks(dumps)
    assert [(g.role, g.ranks) for g in groups] == [("trainer", (0, 1, 2)), ("loader", (1,))]
    assert outlier_ranks(groups) == ()


def test_whether_a_thread_was_idle_or_active_makes_no_other_group():
    active = WAITING.replace("(idle)", "(active)")
    assert len(group_stacks(stacks(WAITING, active))) == 1


def test_pythons_own_dump_is_read_too_and_its_last_thread_is_the_main_one():
    assert main_thread(INSIDE) == (
        "backward (torch/autograd/__init__.py:353)",
        "<module> (train.py:20)",
    )


def test_a_dump_without_frames_is_no_stack():
    assert main_thread("Error: no such process\n") == ()
    assert group_stacks(stacks("", WAITING))[0].ranks == (1,)


def test_ranks_behind_their_script_are_one_group_wherever_lastgood_is_at_work():
    dumps = stacks(WAITING, FLUSHING, FLUSHING.replace(":82", ":83"))
    through = [g for g in group_stacks(dumps, through={1, 2}) if g.stack == (THROUGH,)]
    assert [g.ranks for g in through] == [(1, 2)]


def test_what_the_job_does_behind_its_script_is_its_own_code_still():
    (group,) = group_stacks(stacks(CLOSING), through={0})
    assert group.stack[0] == "__del__ (train.py:71)"


def test_a_loader_of_a_rank_behind_its_script_keeps_its_place():
    (group,) = group_stacks([ProcessStack(1, 201, True, LOADER)], through={1})
    assert "_worker_loop" in group.stack[0]
