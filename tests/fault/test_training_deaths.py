"""Deaths at hard moments: in the start, on leaving early, in a section, between steps, and of a parked spare.

One job of three ranks has them one after the other. Each fault hits a rank or has a symptom of its own, since the same
failure of the same rank again would widen the domain.
"""

import os
import signal

import pytest

from lastgood.cli.live import describe
from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.signals.limits import Limits
from lastgood.training.options import RunOptions
from lastgood.training.supervising.session import run_training
from tests.fault.training_drill import assert_ledger_holds, assert_recovered_in_order
from tests.fault.training_scripts import DYING

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
RANKS, STEPS = 3, 48
HANG_AFTER_US = 10_000_000
EXIT_STEP, SECTION_STEP, SPARE_STEP, ERROR_STEP = 8, 16, 24, 32


class KillParkedSpare:
    """Kills the parked spare once while the ranks wait for it, and lets them go on when another one has parked."""

    def __init__(self, *, step, refilled):
        self.step, self.refilled, self.name = step, refilled, None

    def __call__(self, supervisor):
        if supervisor.page.assessed_step < self.step or not supervisor.spares:
            return
        if self.name is None:
            self.name = supervisor.spares[0]
            os.kill(supervisor.workers[self.name].pid, signal.SIGKILL)
        elif supervisor.spares[0] != self.name:
            self.refilled.touch()


class Died:
    """What the job left behind."""

    def __init__(self, folder):
        script, marks = folder / "dying.py", folder / "marks"
        script.write_text(DYING)
        marks.mkdir()
        self.ledger, self.said = folder / "ledger.db", []
        self.spare = KillParkedSpare(step=SPARE_STEP, refilled=marks / "refilled")
        options = RunOptions(
            script=script, arguments=(str(marks), str(STEPS)), ranks=RANKS, spares=1,
            run_id=f"test-{folder.name}-{os.getpid()}", ledger=self.ledger,
            limits=Limits(step_floor_us=HANG_AFTER_US, warmup_floor_us=60_000_000),
        )  # fmt: skip
        self.exit_code = run_training(
            options, on_turn=self.spare, listener=lambda e: self.said.append(describe(e))
        ).exit_code
        with open_store(self.ledger, create=False) as store:
            self.events = list(store.events())
        self.incidents = fold_incidents(self.events)
        self.weights = {path.read_text() for path in marks.glob("weights-*")}

    def incident_of(self, *, symptom, rank):
        (found,) = [i for i in self.incidents if i.symptom == symptom and i.ranks == (rank,)]
        return found

    def evidence_of(self, incident):
        (opened,) = [
            e for e in self.events if e.kind == "incident.open" and e.incident == incident.id
        ]
        return opened.body["evidence"]


@pytest.fixture(scope="module")
def died(tmp_path_factory):
    return Died(tmp_path_factory.mktemp("deaths"))


def test_the_run_ends_well_with_one_state_on_all_ranks(died):
    assert died.exit_code == 0
    assert len(died.weights) == 1
    assert len(died.incidents) == 4


def test_a_death_in_the_start_begins_again_with_a_spare_in_its_place(died):
    incident = died.incident_of(symptom="process_exit", rank=1)
    assert incident.class_ == "fail_stop"
    assert died.evidence_of(incident) == ["rank 1 (w1) ended: signal 9"]
    assert incident.lost_steps == 0
    assert incident.verification.test == "begin again: state 0 has one digest on every rank"
    assert_recovered_in_order(incident)


def test_a_rank_that_leaves_its_loop_alone_with_code_0_is_named_early_and_replaced(died):
    incident = died.incident_of(symptom="process_exit", rank=0)
    (evidence,) = died.evidence_of(incident)
    assert evidence.startswith(
        f"rank 0 (w0) left its loop early, with exit code 0, in step {EXIT_STEP}"
    )
    assert incident.lost_steps == 0
    # By what the others did, and not by its patience, which is twice the limit.
    assert incident.detect_us < 2 * HANG_AFTER_US
    assert_recovered_in_order(incident)


def test_a_death_in_a_section_is_recovered_and_costs_no_step(died):
    incident = died.incident_of(symptom="process_exit", rank=2)
    assert died.evidence_of(incident)[0].endswith("ended: signal 9")
    opened = [e for e in died.events if e.kind == "section.begin" and e.body["name"] == "eval"]
    assert opened
    assert incident.lost_steps == 0
    assert_recovered_in_order(incident)


def test_a_section_without_a_limit_is_said_once(died):
    assert len([line for line in died.said if line.startswith("section eval has no limit")]) == 1


def test_an_error_between_two_steps_is_an_exception_with_its_own_trace(died):
    incident = died.incident_of(symptom="exception", rank=0)
    assert incident.lost_steps == 0
    (seen,) = [e for e in died.events if e.kind == "observation" and e.symptom == "exception"]
    assert seen.body["type"] == "KeyError"
    assert "dying.py" in seen.body["trace"]
    assert "runpy" not in seen.body["trace"]
    assert_recovered_in_order(incident)


def test_a_parked_spare_that_dies_is_refilled_and_is_no_incident(died):
    inventory = [(e.body["worker"], e.body["state"]) for e in died.events if e.kind == "inventory"]
    gone = inventory.index((died.spare.name, "gone"))
    assert (died.spare.name, "parked") in inventory[:gone]
    assert [state for _, state in inventory[gone:]][1:3] == ["launching", "parked"]
    assert died.spare.name not in {
        w for e in died.events if e.kind.startswith("exposure") for w in [e.body["worker"]]
    }


def test_only_ranks_are_at_risk_however_many_spares_died(died):
    exposure = measure_exposure(
        died.events, as_of_us=max(e.t_recorded_us or 0 for e in died.events)
    )
    assert max(s.devices for s in exposure.stretches) == 1
    assert {s.key for s in exposure.stretches}


def test_the_ledger_verifies(died):
    assert_ledger_holds(died.ledger)
