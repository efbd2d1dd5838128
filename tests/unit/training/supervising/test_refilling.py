"""A spare that cannot be started is said once and tried again; one that a recovery can do without waits for its end."""

from types import SimpleNamespace

import pytest

from lastgood.recovery.crew import Standing, first_crew
from lastgood.recovery.policy import LoopPhase
from lastgood.training.supervising import refilling
from lastgood.training.supervising.refilling import HOLD_US_MAX, RETRY_US, Refilling


@pytest.fixture
def world(monkeypatch):
    made = SimpleNamespace(time_us=0, started=0, problem=None, events=[])
    crew = first_crew(["w0", "w1"], spare_count=1)
    made.state = SimpleNamespace(phase=LoopPhase.RUNNING, crew=crew)
    made.page = SimpleNamespace(assessed_step=20)
    made.now_us = lambda: made.time_us
    made.recorder = SimpleNamespace(
        record=lambda kind, **fields: made.events.append(fields["body"])
    )

    def start(_supervisor, *, is_spare):
        assert is_spare
        if made.problem is not None:
            raise made.problem
        made.started += 1

    monkeypatch.setattr(refilling, "start_worker", start)
    return made


def test_what_is_ordered_is_started_at_once(world):
    Refilling(world).order(2)
    assert (world.started, world.events) == (2, [])


def test_full_shared_memory_delays_a_spare_and_is_said_once(world):
    spares = Refilling(world)
    world.problem = OSError(28, "No space left on device", "/dev/shm/lastgood-r/status/w5")
    spares.order(2)
    for _ in range(3):
        world.time_us += RETRY_US
        spares.poll()
    assert world.started == 0
    (said,) = world.events
    assert said["text"].startswith("a spare cannot be started: No space left on device (/dev/shm/")
    assert said["owed"] == 2
    world.problem = None
    spares.poll()
    assert world.started == 0, "not before the next attempt is due"
    world.time_us += RETRY_US
    spares.poll()
    assert world.started == 2
    spares.poll()
    assert world.started == 2


def lose_rank(world, *, spares):
    crew = first_crew(["w0", "w1"], spare_count=1)
    for name in spares:
        crew = crew.spare_ready(name)
    world.state.crew = crew.moved(["w1"], Standing.GONE)
    world.state.phase = LoopPhase.ISOLATING


def test_a_spare_that_the_recovery_can_do_without_waits_for_the_first_new_step(world):
    spares = Refilling(world)
    lose_rank(world, spares=["w2"])
    spares.order(1)
    world.state.phase = LoopPhase.VERIFYING
    spares.poll()
    world.state.phase, world.page.assessed_step = LoopPhase.RUNNING, 17  # it went back three steps
    spares.poll()
    assert world.started == 0
    world.page.assessed_step = 18
    spares.poll()
    assert world.started == 1
    spares.order(1)
    assert world.started == 2, "nothing is held back once the run goes on"


def test_a_spare_that_a_rank_waits_for_is_started_in_the_middle_of_the_recovery(world):
    spares = Refilling(world)
    lose_rank(world, spares=[])
    spares.order(2)
    assert world.started == 2


def test_a_long_first_step_does_not_hold_a_spare_back_for_ever(world):
    spares = Refilling(world)
    lose_rank(world, spares=["w2"])
    spares.order(1)
    world.state.phase = LoopPhase.RUNNING
    world.time_us += HOLD_US_MAX - 1
    spares.poll()
    assert world.started == 0
    world.time_us += 1
    spares.poll()
    assert world.started == 1
