"""Deaths at chosen places: in the start, in a section, by leaving, of a parked spare, in a phase of a recovery."""

import json
import os
import signal
from io import BytesIO

import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.figures import FigureKind
from lastgood.faults.in_step import StepFaults
from lastgood.faults.injector import Player
from lastgood.faults.live_run import LiveRun, Member
from lastgood.faults.process import Identities, NotInjected, victim
from lastgood.faults.spec import Fault, FaultKind, Target, When, find_problems
from lastgood.faults.tape import Provenance, Tape, write_tape
from lastgood.training.rank.injection import StepInjection
from lastgood.training.rundir import RunDir


def tape(kind, *, rank=1, **when):
    fault = Fault(id="f", kind=kind, target=Target(rank=rank), when=When(**(when or {"step": 3})))
    return Tape(
        faults=(fault,), seed=0, provenance=Provenance(kind=FigureKind.ASSUMED, source="a test")
    )


def write_state(folder, **changes):
    known = {
        "generation": 2,
        "phase": "running",
        "spares_parked": 1,
        "ranks": {"0": {"worker": "w0", "pid": 10}},
        "spares": [{"worker": "w4", "pid": os.getppid()}],
    }
    (folder / "state.json").write_text(json.dumps(known | changes))


@pytest.fixture
def injection(tmp_path, monkeypatch):
    """A rank whose tape says what the test puts into it, and that only writes down whom it would kill."""
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    def make(kind):
        write_tape(tape(kind), tmp_path / "tape.jsonl")
        monkeypatch.setenv("LASTGOOD_FAULT_TAPE", str(tmp_path / "tape.jsonl"))
        made = StepInjection(RunDir(tmp_path))
        made.serve_rank(1)
        return made, killed

    return make


def test_a_death_in_the_start_strikes_once_and_in_no_step(tmp_path):
    faults = StepFaults(
        tape(FaultKind.KILL_IN_START), rank=1, mark_dir=tmp_path, clock=ManualClock()
    )
    assert faults.due(3) is None
    assert faults.due_in_start().id == "f"
    assert faults.due_in_start() is None


def test_a_rank_dies_in_its_start_only_where_the_tape_says_so(injection):
    made, killed = injection(FaultKind.KILL_IN_START)
    made.begin_rank()
    assert killed == [(os.getpid(), signal.SIGKILL)]
    other, killed = injection(FaultKind.EXCEPTION)
    other.begin_rank()
    assert len(killed) == 1


def test_a_death_in_a_section_waits_for_the_section_behind_its_step(injection):
    made, killed = injection(FaultKind.KILL_IN_SECTION)
    made.enter_section()
    made.begin_step(3)
    made.strike_if_due()
    assert killed == []
    made.enter_section()
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_leaving_the_loop_is_the_scripts_own_exit_with_code_0(injection):
    made, _ = injection(FaultKind.LEAVE_LOOP)
    made.begin_step(3)
    with pytest.raises(SystemExit) as left:
        made.strike_if_due()
    assert left.value.code == 0


def test_a_parked_spare_is_a_victim_by_its_place_in_the_row(tmp_path):
    write_state(tmp_path)
    run = LiveRun(tmp_path)
    assert run.state().spares == (Member(worker="w4", pid=os.getppid()),)
    for place, reason in ((1, "no such spare is parked"), (0, "its ancestor")):
        # The second pid was found, and is not fair game.
        with (
            pytest.raises(NotInjected, match=reason),
            victim(place, run=run, identities=Identities(), is_spare=True),
        ):
            pass


def test_a_fault_of_a_phase_waits_for_that_phase(tmp_path):
    run = LiveRun(tmp_path)
    fault = tape(FaultKind.SIGKILL, rank=0, t_us=0, phase="verifying").faults[0]
    player = Player(
        tape(FaultKind.SIGKILL), run=run, log=BytesIO(), clock=ManualClock(), limit_us=10
    )
    for phase, is_due in (("running", False), ("restoring", False), ("verifying", True)):
        write_state(tmp_path, phase=phase)
        assert player._is_due(fault, run.state()) is is_due


def test_a_phase_that_does_not_exist_is_refused():
    fault = tape(FaultKind.SIGKILL, t_us=0, phase="dancing").faults[0]
    (problem,) = find_problems(fault, where="x")
    assert problem.needs == "one of isolating, restoring, suspect, verifying"
