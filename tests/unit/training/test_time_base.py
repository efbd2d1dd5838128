"""A run that goes on keeps its time base, so that its times never go back, whatever the wall clock did meanwhile."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.training.resuming.interrupted import Resumption
from lastgood.training.resuming.life import LastSign
from lastgood.training.supervising.session import _time_base

HOUR_US = 3_600_000_000


def sign(turn_us, turn_wall_us):
    return LastSign(1, 4, turn_us, turn_wall_us, None, 77, None)


def test_a_new_run_takes_the_wall_clock_of_its_start():
    clock = ManualClock(5_000_000_000)
    assert _time_base(Resumption(), clock).wall_us() == 5_000_000_000


@pytest.mark.parametrize("jump_us", [-HOUR_US, HOUR_US])
def test_a_supervisor_that_was_killed_hands_its_time_base_on(jump_us):
    clock = ManualClock(5_000_000_000)
    clock.advance_us(2_000_000)
    left = Resumption(sign=sign(2_000_000, 5_002_000_000))
    clock.step_wall_us(jump_us)
    clock.advance_us(1_000_000)
    base = _time_base(left, clock)
    assert base.wall_us() == 5_003_000_000
    assert base.moved_us() == jump_us  # which its recorder notes at its first look


def test_a_run_from_disk_never_begins_before_its_last_sign_of_life():
    clock = ManualClock(5_000_000_000 - HOUR_US)
    assert _time_base(Resumption(alive_us=5_000_000_000), clock).wall_us() == 5_000_000_000
    later = ManualClock(5_000_000_000 + HOUR_US)
    assert _time_base(Resumption(alive_us=5_000_000_000), later).wall_us() == later.wall_us()
