"""Without a spare, and with errors that every rank raises: waited for, tried once more, then stopped."""

import os
from dataclasses import replace

import pytest

from lastgood.cli.live import describe
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.signals.limits import Limits
from lastgood.training.options import RunOptions
from lastgood.training.supervising.session import run_training
from tests.fault.training_drill import assert_recovered_in_order
from tests.fault.training_scripts import WRONG

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
DO_NOT_REQUEUE = 93
PATIENCE_US = 60_000_000


def be_patient(supervisor) -> None:
    """On a busy machine the ranks raise further apart than is waited for; when all have, nobody waits any longer."""
    state = supervisor.state
    if state.policy.exception_settle_us != PATIENCE_US:
        policy = replace(state.policy, exception_settle_us=PATIENCE_US)
        supervisor.state = replace(state, policy=policy)


class Stopped:
    """What a job without spares left behind; its script has a bug that it never gets past."""

    def __init__(self, folder):
        script, marks = folder / "wrong.py", folder / "marks"
        script.write_text(WRONG)
        marks.mkdir()
        self.said = []
        options = RunOptions(
            script=script, arguments=(str(marks),), ranks=2, spares=0, run_id=f"test-{folder.name}-{os.getpid()}",
            ledger=folder / "ledger.db",
            limits=Limits(step_floor_us=10_000_000, warmup_floor_us=60_000_000),
        )  # fmt: skip
        listener = lambda event: self.said.append(describe(event))
        self.exit_code = run_training(options, listener=listener, on_turn=be_patient).exit_code
        self.ended = marks / "ended"
        with open_store(folder / "ledger.db", create=False) as store:
            self.events = list(store.events())
        self.death, self.transient, self.first, self.last = fold_incidents(self.events)

    def events_of(self, incident, kind):
        return [e for e in self.events if e.kind == kind and e.incident == incident.id]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return Stopped(tmp_path_factory.mktemp("no-spare"))


def test_without_spares_a_death_is_waited_for_in_the_open_and_recovered(stopped):
    assert (stopped.death.symptom, stopped.death.ranks) == ("process_exit", (1,))
    (note,) = [
        e for e in stopped.events_of(stopped.death, "annotation")
        if e.body["text"] == "waiting for a spare"
    ]  # fmt: skip
    assert note.ranks == (1,)
    assert note.body["missing"] == note.body["launching"] == 1
    assert any(line.startswith("waiting for a spare: 1 rank without") for line in stopped.said)
    assert stopped.death.lost_steps == 0
    assert_recovered_in_order(stopped.death)


def test_a_survivor_is_not_waited_for_until_its_step_ends_by_itself(stopped):
    assert stopped.ended.read_text() == "StepInterrupted"
    (isolated,) = stopped.events_of(stopped.death, "isolate")
    assert (isolated.body["parked"], isolated.body["killed"]) == (["w0"], [])


def test_a_trouble_of_every_rank_that_is_over_costs_one_replay_and_no_process(stopped):
    incident = stopped.transient
    assert (incident.symptom, incident.ranks) == ("exception", (0, 1))
    (isolated,) = stopped.events_of(incident, "isolate")
    assert isolated.body["killed"] == []
    assert sorted(isolated.body["parked"]) == ["w0", "w2"]
    assert_recovered_in_order(incident)


def test_a_bug_of_every_rank_is_tried_once_more_and_then_stops_the_run(stopped):
    assert stopped.exit_code == DO_NOT_REQUEUE
    assert [stopped.first.outcome, stopped.last.outcome] == ["recovered", "escalated"]
    (call,) = stopped.events_of(stopped.last, "escalate")
    assert call.body["reason"].startswith("every rank raised KeyError in the same step")
    assert call.body["owner"] == "supervisor"
    (closed,) = stopped.events_of(stopped.last, "incident.close")
    assert closed.body["signature"] == call.body["signature"] == "exception/KeyError"


def test_the_terminal_says_whose_fault_it_is_and_with_which_signature(stopped):
    escalated = [line for line in stopped.said if line.startswith("gave up: ")]
    assert len(escalated) == 1
    assert "a bug of the script, not of a host; signature exception/KeyError" in escalated[0]
    assert "the last time: rank 0 raised KeyError in step " in escalated[0]
    assert "(wrong.py:" in escalated[0], "the line of the script"


def test_nobody_was_started_for_a_bug(stopped):
    launched = [
        e for e in stopped.events if e.kind == "inventory" and e.body["state"] == "launching"
    ]
    assert [e.body["worker"] for e in launched] == ["w0", "w1", "w2"]
