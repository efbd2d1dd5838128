"""The hard part: each of four ranks is killed in turn, rank 0 too, and nothing is lost.

Section 0 of the design's main job: survivors that are not neighbours of the dead rank stay blocked in gloo's
collective until their own sockets are cut, and a fresh wrapper must not change a bit.
"""

import pytest

from lastgood.faults.spec import FaultKind
from tests.fault.training_drill import (
    RANKS,
    assert_ledger_holds,
    assert_recovered_in_order,
    drill,
    fault,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def drilled(tmp_path_factory):
    kills = [fault(f"kill rank {rank}", FaultKind.SIGKILL, rank) for rank in range(RANKS)]
    return drill(tmp_path_factory.mktemp("kills"), *kills)


@pytest.mark.parametrize("rank", range(RANKS))
def test_the_killed_rank_is_named_and_replaced_without_losing_a_step(drilled, rank):
    incident = drilled.incident_of(f"kill rank {rank}")
    assert (incident.symptom, incident.class_, incident.ranks) == (
        "process_exit",
        "fail_stop",
        (rank,),
    )
    assert incident.lost_steps == 0
    assert_recovered_in_order(incident)


@pytest.mark.parametrize("rank", range(RANKS))
def test_survivors_stay_alive(drilled, rank):
    incident = drilled.incident_of(f"kill rank {rank}")
    (isolated,) = drilled.events_of(incident, "isolate")
    assert isolated.body["killed"] == []
    assert len(isolated.body["parked"]) == RANKS - 1


def test_every_recovery_took_a_new_generation(drilled):
    attempts = [event.attempt for event in drilled.events if event.kind == "attempt.start"]
    assert attempts == list(range(1, RANKS + 2))


def test_there_are_no_other_incidents(drilled):
    assert len(drilled.incidents) == RANKS


def test_the_final_weights_are_those_of_an_undisturbed_plain_run(drilled):
    assert drilled.result.is_bitwise_equal
    assert drilled.result.steps > FIRST_STEPS_OF_A_REAL_RUN


FIRST_STEPS_OF_A_REAL_RUN = 40
"""Four faults that each wait for eight settled steps can not be over earlier."""


def test_the_ledger_verifies(drilled):
    assert_ledger_holds(drilled.ledger)
