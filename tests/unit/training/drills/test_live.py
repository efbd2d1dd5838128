"""When the job of drills ends: not before its last fault had the time to come and to be noticed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from lastgood.base.figures import FigureKind
from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape
from lastgood.training.drills.live import (
    MORE_STEPS,
    SETTLE_STEPS,
    SLOW_STEPS,
    DrillOptions,
    Injecting,
)


class Supervisor:
    """A job of which the injector has done its part; it takes a step a turn."""

    def __init__(self) -> None:
        self.page = SimpleNamespace(assessed_step=0)
        self.state = SimpleNamespace(case=None)
        self.last_step = self.ended_at = None

    def finish_after(self, steps):
        assert steps == MORE_STEPS
        self.last_step = self.ended_at = self.page.assessed_step


def end_of(*faults, incident_at=None, lasts=5):
    """The step at which the job is told to end."""
    provenance = Provenance(kind=FigureKind.ASSUMED, source="a test")
    tape = Tape(faults=faults, seed=1, provenance=provenance)
    injecting = Injecting(DrillOptions(run=None, tape=tape, folder=Path("nowhere")), None)
    injecting._process = SimpleNamespace(poll=lambda: 0)
    job = Supervisor()
    while job.ended_at is None:
        job.page.assessed_step += 1
        is_open = incident_at is not None and 0 <= job.page.assessed_step - incident_at < lasts
        job.state.case = "open" if is_open else None
        injecting.turn(job)
    return job.ended_at


def fault(kind, step):
    return Fault(id="f", kind=kind, target=Target(rank=1), when=When(step=step))


def test_with_everything_injected_some_settled_steps_pass():
    assert end_of(fault(FaultKind.SIGKILL, 12)) == 1 + SETTLE_STEPS
    assert end_of(fault(FaultKind.SIGKILL, 12), incident_at=1, lasts=5) == 6 + SETTLE_STEPS


@pytest.mark.parametrize(
    ("kind", "least"), [(FaultKind.EXCEPTION, 40), (FaultKind.SLOW_STEP, 40 + SLOW_STEPS)]
)
def test_a_fault_of_a_later_step_is_waited_for(kind, least):
    """Nobody but the rank knows when it comes, and being slow shows only after a while."""
    assert end_of(fault(kind, 40)) == least + SETTLE_STEPS
    assert end_of(fault(kind, 40), incident_at=45, lasts=5) == 50 + SETTLE_STEPS


def test_an_incident_before_the_fault_is_not_that_of_the_fault():
    assert end_of(fault(FaultKind.EXCEPTION, 40), incident_at=10) == 40 + SETTLE_STEPS
