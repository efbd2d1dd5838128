"""FSDP2: every rank holds another part of the state, so each one's bytes are held against what it published itself."""

from pathlib import Path

import pytest

from lastgood.faults.spec import FaultKind
from tests.fault.training_drill import (
    FIRST_STEP,
    HANG_AFTER_US,
    assert_ledger_holds,
    assert_recovered_in_order,
    drill,
    fault,
    in_step,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

JOB = Path(__file__).with_name("sharded_job.py")
RANKS = 3


@pytest.fixture(scope="module")
def drilled(tmp_path_factory):
    return drill(
        tmp_path_factory.mktemp("sharded"),
        fault("flip a shard", FaultKind.FLIP_SNAPSHOT, 0, then_sigkill=True),
        fault("stop", FaultKind.SIGSTOP, 2),
        job=JOB,
        ranks=RANKS,
    )


def test_a_flipped_shard_is_found_by_its_own_ranks_digest_and_an_older_state_is_taken(drilled):
    incident = drilled.incident_of("flip a shard")
    assert (incident.symptom, incident.ranks) == ("process_exit", (0,))
    # Which digest finds it depends on the byte: that of the shards, of the step counters or of the random streams.
    assert [
        n for n in incident.notes if n.startswith("rank 0: ") and ("hash" in n or "changed" in n)
    ]
    dropped = [
        e.body["step"]
        for e in drilled.events_of(incident, "state.trust")
        if e.body["state"] == "suspect"
    ]
    (closed,) = drilled.events_of(incident, "incident.close")
    assert closed.body["resumed_step"] == min(dropped) - 1
    assert_recovered_in_order(incident)


def test_a_stopped_rank_is_named_and_its_shard_goes_to_the_spare(drilled):
    incident = drilled.incident_of("stop")
    assert (incident.symptom, incident.ranks, incident.lost_steps) == ("hang", (2,), 0)
    assert incident.detect_us is not None
    assert incident.detect_us >= HANG_AFTER_US
    assert_recovered_in_order(incident)


def test_the_whole_weights_are_those_of_an_undisturbed_plain_run(drilled):
    assert drilled.result.is_bitwise_equal


def test_the_ledger_verifies(drilled):
    assert_ledger_holds(drilled.ledger)


@pytest.mark.nightly
def test_the_same_rank_killed_again_replaces_every_process_and_each_finds_its_shard(tmp_path):
    """The hard path: nobody of the old generation is left, only the snapshots in shared memory are."""
    found = drill(
        tmp_path,
        fault("kill", FaultKind.SIGKILL, 1),
        fault("kill again", FaultKind.SIGKILL, 1),
        job=JOB,
        ranks=RANKS,
    )
    again = found.incident_of("kill again")
    (diagnosed,) = found.events_of(again, "diagnose")
    assert (diagnosed.body["path"], diagnosed.body["domain"]) == ("hard", "host")
    started = [e.body["pids"] for e in found.events if e.kind == "attempt.start"]
    assert not set(started[-1].values()) & set(started[-2].values())
    assert again.lost_steps == 0
    assert_recovered_in_order(again)
    assert found.result.is_bitwise_equal


@pytest.mark.nightly
def test_a_rank_that_spins_in_its_step_is_named_by_the_collectives_that_it_did_not_enter(tmp_path):
    found = drill(
        tmp_path,
        in_step("spin", FaultKind.SPIN, 1, step=FIRST_STEP),
        fault("kill", FaultKind.SIGKILL, 0),
        job=JOB,
        ranks=RANKS,
    )
    incident = found.incident_with(symptom="hang", rank=1)
    assert any(
        "collectives entered" in note and "process stopped" not in note for note in incident.notes
    )
    assert_recovered_in_order(incident)
    assert found.result.is_bitwise_equal
