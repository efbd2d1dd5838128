"""A fault says what, whom and when; everything that is wrong with one is said at once."""

import pytest

from lastgood.contract.taxonomy import FailureClass
from lastgood.faults.spec import (
    FAILURE_CLASS,
    Fault,
    FaultKind,
    Repeat,
    Target,
    When,
    Which,
    expand,
    find_problems,
)


def fault(**changes) -> Fault:
    values = {"id": "f1", "kind": FaultKind.SIGKILL, "target": Target(rank=2), "when": When(step=8)}
    return Fault(**(values | changes))


def wrong(**changes) -> list[str]:
    return [problem.what for problem in find_problems(fault(**changes), where="here")]


def test_a_plain_fault_is_fine():
    assert wrong() == []


def test_every_kind_of_fault_has_a_class_of_the_taxonomy():
    assert set(FaultKind) == set(FAILURE_CLASS)
    assert FAILURE_CLASS[FaultKind.FLIP_PARAMETER] is FailureClass.SDC
    assert FAILURE_CLASS[FaultKind.SIGSTOP] is FailureClass.FAIL_SLOW


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"id": ""}, ["id"]),
        ({"id": "a\nb"}, ["id"]),
        ({"target": Target()}, ["target"]),
        ({"target": Target(rank=1, domain="host:a")}, ["target"]),
        ({"target": Target(rank=-1)}, ["target.rank"]),
        ({"target": Target(domain="planet:a")}, ["target.domain"]),
        ({"target": Target(domain="host:")}, ["target.domain"]),
        ({"when": When()}, ["when"]),
        ({"when": When(step=1, t_us=1)}, ["when"]),
        ({"when": When(step=-1)}, ["when.step"]),
        ({"when": When(t_us=-1)}, ["when.t_us"]),
        ({"when": When(step=1, settle_steps=2)}, ["when.settle_steps"]),
        ({"repeat": Repeat(count=0, every_steps=1)}, ["repeat.count"]),
        ({"repeat": Repeat(count=2)}, ["repeat"]),
        ({"repeat": Repeat(count=2, every_us=5)}, ["repeat"]),
        ({"repeat": Repeat(count=2, every_us=5, every_steps=5)}, ["repeat"]),
        ({"bit": 3}, ["bit"]),
        ({"kind": FaultKind.FLIP_SNAPSHOT, "bit": 8}, ["bit"]),
        ({"kind": FaultKind.FLIP_PARAMETER, "bit": 64}, ["bit"]),
        ({"tensor": "w"}, ["tensor"]),
        ({"which": Which.OLDEST}, ["which"]),
        ({"then_sigkill": True}, ["then_sigkill"]),
        ({"duration_us": 5}, ["duration_us"]),
        ({"kind": FaultKind.SIGSTOP, "duration_us": 0}, ["duration_us"]),
        ({"kind": FaultKind.SIGSTOP, "duration_us": 5}, []),
        ({"kind": FaultKind.SLOW}, ["duration_us", "stopped_ratio"]),
        ({"kind": FaultKind.SLOW, "duration_us": 5, "stopped_ratio": 1.0}, ["stopped_ratio"]),
        ({"kind": FaultKind.SLOW_STEP}, ["factor"]),
        ({"kind": FaultKind.SLOW_STEP, "factor": 1.0}, ["factor"]),
        ({"kind": FaultKind.SLOW_STEP, "factor": float("nan")}, ["factor"]),
        ({"factor": 3.0}, ["factor"]),
    ],
)
def test_each_wrong_part_is_named(changes, what):
    assert wrong(**changes) == what


def test_a_repeated_fault_expands_into_single_ones_with_ids_and_seeds_of_their_own():
    by_step = list(expand(fault(repeat=Repeat(count=3, every_steps=5), seed=7)))
    assert [one.when.step for one in by_step] == [8, 13, 18]
    assert [one.id for one in by_step] == ["f1", "f1#2", "f1#3"]
    assert [one.seed for one in by_step] == [7, 8, 9]
    assert all(one.repeat is None for one in by_step)
    by_time = list(expand(fault(when=When(t_us=10), repeat=Repeat(count=2, every_us=100))))
    assert [one.when.t_us for one in by_time] == [10, 110]


def test_a_single_fault_expands_into_itself():
    assert list(expand(fault())) == [fault()]
