"""Every other fault of one host: a stopped rank, a raising step, NaN, broken snapshots, a flipped bit in memory."""

import pytest

from lastgood.faults.spec import FaultKind
from lastgood.training.states.striping import SnapshotForm
from tests.fault.training_drill import (
    HANG_AFTER_US,
    assert_ledger_holds,
    assert_recovered_in_order,
    drill,
    fault,
    in_step,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

RAISING_STEP, NAN_STEP = 6, 9


@pytest.fixture(scope="module")
def drilled(tmp_path_factory):
    return drill(
        tmp_path_factory.mktemp("faults"),
        in_step("raise", FaultKind.EXCEPTION, 2, step=RAISING_STEP),
        in_step("nan", FaultKind.NAN_GRADIENT, 3, step=NAN_STEP),
        fault("stop", FaultKind.SIGSTOP, 1),
        fault("flip a snapshot", FaultKind.FLIP_SNAPSHOT, 0, then_sigkill=True),
        fault("cut a snapshot", FaultKind.TRUNCATE_SNAPSHOT, 3, then_sigkill=True),
        fault("flip a parameter", FaultKind.FLIP_PARAMETER, 2, bit=20),
        # The other drills keep whole copies.
        snapshots=SnapshotForm.STRIPED,
    )


def test_a_stopped_rank_is_named_after_the_limit_and_killed(drilled):
    incident = drilled.incident_of("stop")
    assert (incident.symptom, incident.class_, incident.ranks) == ("hang", "fail_slow", (1,))
    assert incident.detect_us is not None
    assert incident.detect_us >= HANG_AFTER_US
    assert incident.lost_steps == 0
    assert any("stopped" in note for note in incident.notes)
    assert_recovered_in_order(incident)


def test_the_stacks_of_a_stopped_rank_are_kept(drilled):
    incident = drilled.incident_of("stop")
    assert incident.detected_us is not None
    assert incident.isolated_us is not None
    dumps = [
        event.body["text"]
        for event in drilled.events
        if event.kind == "observation"
        and event.body.get("what") == "stack dump"
        and incident.detected_us <= (event.t_observed_us or 0) <= incident.isolated_us
    ]
    assert len(dumps) == 1
    assert "drill_job.py" in dumps[0]


def test_an_exception_in_the_step_names_its_rank_and_keeps_its_trace(drilled):
    incident = drilled.incident_with(symptom="exception", rank=2)
    assert incident.class_ == "fail_stop"
    assert incident.lost_steps == 0
    traces = [
        e.body for e in drilled.events if e.kind == "observation" and e.symptom == "exception"
    ]
    assert [t["type"] for t in traces] == ["InjectedFault"]
    assert "train_step" in traces[0]["trace"]
    assert_recovered_in_order(incident)


def test_a_nan_gradient_names_the_rank_that_had_it_before_the_reduction(drilled):
    incident = drilled.incident_with(symptom="nonfinite", rank=3)
    assert incident.class_ == "sdc"
    assert incident.first_divergent_step == NAN_STEP
    assert_recovered_in_order(incident)


def test_after_a_nan_the_run_goes_on_below_the_divergent_step(drilled):
    incident = drilled.incident_with(symptom="nonfinite", rank=3)
    (closed,) = drilled.events_of(incident, "incident.close")
    assert closed.body["resumed_step"] < NAN_STEP


@pytest.mark.parametrize(("name", "rank"), [("flip a snapshot", 0), ("cut a snapshot", 3)])
def test_a_broken_snapshot_is_found_on_re_reading_and_an_older_state_is_taken(drilled, name, rank):
    incident = drilled.incident_of(name)
    assert incident.ranks == (rank,)
    suspect = drilled.events_of(incident, "state.trust")
    dropped = [e.body["step"] for e in suspect if e.body["state"] == "suspect"]
    assert dropped, "the broken state was built upon"
    (closed,) = drilled.events_of(incident, "incident.close")
    assert closed.body["resumed_step"] < min(dropped)
    # The broken state may be that of a step which nobody had accepted yet: then nothing that counted is lost with it.
    (opened,) = drilled.events_of(incident, "incident.open")
    accepted = [e.body["last"] for e in drilled.events if e.kind == "step" and e.seq < opened.seq][
        -1
    ]
    lost = accepted - closed.body["resumed_step"]
    assert closed.body["lost_steps"] == incident.lost_steps == lost
    assert max(dropped) <= accepted + 1
    assert_recovered_in_order(incident)


def test_every_rank_kept_a_stripe_and_the_ledger_says_so(drilled):
    (start,) = [e.body for e in drilled.events if e.kind == "run.start"]
    assert start["snapshots"] == "striped"
    first = next(e.body for e in drilled.events if e.kind == "attempt.start")
    assert first["stripes"] == first["world"] == 4


def test_a_flipped_parameter_bit_is_named_by_the_majority_and_rolled_back(drilled):
    incident = drilled.incident_of("flip a parameter")
    assert (incident.symptom, incident.class_, incident.ranks) == (
        "replica_divergence",
        "sdc",
        (2,),
    )
    assert incident.first_divergent_step is not None
    (closed,) = drilled.events_of(incident, "incident.close")
    assert closed.body["resumed_step"] < incident.first_divergent_step
    assert_recovered_in_order(incident)


def test_the_final_weights_are_those_of_an_undisturbed_plain_run(drilled):
    assert drilled.result.is_bitwise_equal


def test_the_ledger_verifies(drilled):
    assert_ledger_holds(drilled.ledger)
