"""A spare that cannot be started is said once and tried again; the run does not need it yet."""

from types import SimpleNamespace

import pytest

from lastgood.training.supervising import refilling
from lastgood.training.supervising.refilling import RETRY_US, Refilling


@pytest.fixture
def world(monkeypatch):
    made = SimpleNamespace(time_us=0, started=0, problem=None, events=[])
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
