"""The hard part: a rank of four is killed, then rank 0, and nothing is lost; at night the other two are killed as well.

Section 0 of the design's main job: survivors that are not neighbours of the dead rank stay blocked in gloo's
collective until their own sockets are cut, and a fresh wrapper must not change a bit.
"""

import pytest

from lastgood.faults.spec import FaultKind
from tests.fault.training_drill import (
    RANKS,
    Drilled,
    assert_ledger_holds,
    assert_recovered_in_order,
    drill,
    fault,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]


KILLED = {"day": (2, 0), "night": (1, 3)}


@pytest.fixture(scope="module", params=["day", pytest.param("night", marks=pytest.mark.nightly)])
def killed(request) -> tuple[int, ...]:
    """The ranks that are killed in this drill, in order."""
    return KILLED[request.param]


@pytest.fixture(scope="module")
def drilled(tmp_path_factory, killed) -> Drilled:
    kills = [fault(f"kill rank {rank}", FaultKind.SIGKILL, rank) for rank in killed]
    return drill(tmp_path_factory.mktemp("kills"), *kills)


@pytest.mark.parametrize("place", [0, 1])
def test_the_killed_rank_is_named_and_replaced_without_losing_a_step(drilled, killed, place):
    rank = killed[place]
    incident = drilled.incident_of(f"kill rank {rank}")
    assert (incident.symptom, incident.class_, incident.ranks) == (
        "process_exit",
        "fail_stop",
        (rank,),
    )
    assert incident.lost_steps == 0
    assert_recovered_in_order(incident)


@pytest.mark.parametrize("place", [0, 1])
def test_survivors_stay_alive(drilled, killed, place):
    incident = drilled.incident_of(f"kill rank {killed[place]}")
    (isolated,) = drilled.events_of(incident, "isolate")
    assert isolated.body["killed"] == []
    assert len(isolated.body["parked"]) == RANKS - 1


def test_every_recovery_took_a_new_generation(drilled):
    attempts = [event.attempt for event in drilled.events if event.kind == "attempt.start"]
    assert attempts == list(range(1, len(drilled.incidents) + 2))


def test_nobody_else_was_ever_named(drilled, killed):
    # With a short limit a busy machine may have a silence of all ranks: nobody is named for it.
    assert [i.ranks for i in drilled.incidents if i.ranks] == [(rank,) for rank in killed]


def test_the_final_weights_are_those_of_an_undisturbed_plain_run(drilled):
    assert drilled.result.is_bitwise_equal
    assert drilled.result.steps > FIRST_STEPS_OF_A_REAL_RUN


FIRST_STEPS_OF_A_REAL_RUN = 24
"""Two faults that each wait for eight settled steps, and as many behind them, can not be over earlier."""


def test_the_ledger_verifies(drilled):
    assert_ledger_holds(drilled.ledger)
