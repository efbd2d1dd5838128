"""A fault of the step happens once in the whole run, whoever serves the rank."""

import json

from lastgood.base.clock import ManualClock
from lastgood.base.figures import FigureKind
from lastgood.faults.in_step import LOG_NAME, StepFaults
from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape


def tape() -> Tape:
    faults = (
        Fault(id="kill", kind=FaultKind.SIGKILL, target=Target(rank=1), when=When(step=2)),
        Fault(id="raise", kind=FaultKind.EXCEPTION, target=Target(rank=1), when=When(step=4)),
        Fault(id="nan", kind=FaultKind.NAN_GRADIENT, target=Target(rank=0), when=When(step=4)),
    )
    return Tape(
        faults=faults, seed=0, provenance=Provenance(kind=FigureKind.ASSUMED, source="a test")
    )


def test_a_fault_of_the_step_is_due_once_for_its_rank_and_step(tmp_path):
    first = StepFaults(tape(), rank=1, mark_dir=tmp_path, clock=ManualClock(5))
    due = [first.due(step) for step in (1, 2, 3, 4, 4, 5)]
    assert [fault.id if fault else None for fault in due] == [None, None, None, "raise", None, None]
    other_rank = StepFaults(tape(), rank=0, mark_dir=tmp_path, clock=ManualClock(5))
    assert other_rank.due(4).kind is FaultKind.NAN_GRADIENT


def test_the_process_that_serves_the_rank_afterwards_does_not_have_it_again(tmp_path):
    assert StepFaults(tape(), rank=1, mark_dir=tmp_path, clock=ManualClock()).due(4) is not None
    assert StepFaults(tape(), rank=1, mark_dir=tmp_path, clock=ManualClock()).due(4) is None


def test_what_happened_is_logged_with_its_times(tmp_path):
    StepFaults(tape(), rank=1, mark_dir=tmp_path, clock=ManualClock(123)).due(4)
    record = json.loads((tmp_path / LOG_NAME).read_text())
    assert (record["fault"], record["rank"], record["step"], record["wall_us"]) == (
        "raise",
        1,
        4,
        123,
    )
