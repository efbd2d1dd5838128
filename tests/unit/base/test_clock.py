"""Time: the system's clock agrees with the kernel's, the manual one moves only when told."""

import time
from pathlib import Path

import pytest

from lastgood.base import clock as clock_module
from lastgood.base.clock import (
    ManualClock,
    RunClock,
    SystemClock,
    boot_id,
    clock_id,
    read_clock_sync,
    wall_offset_us,
)


def test_the_system_clock_counts_microseconds_of_utc():
    before_us = time.time_ns() // 1000
    now_us = SystemClock().wall_us()
    assert before_us <= now_us <= time.time_ns() // 1000


def test_the_monotonic_time_is_the_one_that_all_processes_of_a_host_share():
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    now_us = SystemClock().monotonic_us()
    assert before_us <= now_us <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_sleep_lets_at_least_the_asked_time_pass():
    clock = SystemClock()
    began_us = clock.monotonic_us()
    clock.sleep_us(2_000)
    assert clock.monotonic_us() - began_us >= 2_000


@pytest.mark.parametrize("duration_us", [0, -1])
def test_a_sleep_of_nothing_returns_at_once(duration_us):
    SystemClock().sleep_us(duration_us)


def test_a_manual_clock_moves_both_times_together_and_only_when_told():
    clock = ManualClock(1_000)
    assert (clock.wall_us(), clock.monotonic_us()) == (1_000, 0)
    clock.sleep_us(5)
    clock.advance_us(2)
    assert (clock.wall_us(), clock.monotonic_us()) == (1_007, 7)


def test_a_wall_step_leaves_the_monotonic_time_alone():
    clock = ManualClock(1_000)
    clock.advance_us(10)
    clock.step_wall_us(-500)
    assert (clock.wall_us(), clock.monotonic_us()) == (510, 10)


def test_a_manual_clock_does_not_go_back():
    with pytest.raises(AssertionError):
        ManualClock().advance_us(-1)


def test_the_boot_id_is_the_kernels():
    path = Path("/proc/sys/kernel/random/boot_id")
    assert boot_id() == (path.read_text().strip() if path.exists() else "unknown")


def test_a_boot_that_cannot_be_read_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(clock_module, "_BOOT_ID_PATH", tmp_path / "nothing")
    assert clock_module.boot_id.__wrapped__() == "unknown"


def test_the_clock_id_hides_the_hosts_name_and_does_not_change():
    import os

    assert clock_id() == clock_id()
    assert os.uname().nodename not in clock_id()


def test_the_sync_state_never_claims_an_uncertainty_for_a_free_running_clock():
    sync = read_clock_sync()
    assert sync.uncertainty_us is None or (sync.is_synchronised and sync.uncertainty_us >= 0)


def test_a_host_without_adjtimex_answers_unknown(monkeypatch):
    class NoLibrary:
        def __init__(self, *_, **__):
            raise OSError

    monkeypatch.setattr(clock_module.ctypes, "CDLL", NoLibrary)
    assert read_clock_sync().is_synchronised is None


def test_the_time_base_of_a_run_does_not_follow_the_wall_clock():
    clock = ManualClock(1_000_000_000)
    base = RunClock(clock)
    for jump_us in (-3_600_000_000, 7_200_000_000):
        clock.advance_us(10)
        clock.step_wall_us(jump_us)
    assert (base.wall_us(), base.monotonic_us()) == (1_000_000_020, 20)
    assert base.moved_us() == 3_600_000_000
    assert RunClock(clock, base.offset_us).wall_us() == base.wall_us()  # another process of the run


class Interrupted(ManualClock):
    """A clock whose reader is stopped for a second between two readings, the first times."""

    def __init__(self, *, stops: int) -> None:
        super().__init__(1_000_000_000)
        self.stops = stops

    def wall_us(self) -> int:
        if self.stops:
            self.stops -= 1
            self.advance_us(1_000_000)
        return super().wall_us()


@pytest.mark.parametrize("stops", [0, 1, 4])
def test_a_stop_between_the_two_readings_is_no_distance(stops):
    assert wall_offset_us(Interrupted(stops=stops)) == 1_000_000_000


def test_the_closest_pair_of_readings_counts_when_none_is_close():
    gaps_us = iter([800_000, 4_000, 900_000, 700_000, 600_000])

    class Slow(ManualClock):
        def wall_us(self) -> int:
            self.advance_us(next(gaps_us))
            return super().wall_us()

    # Read at the end of a gap, and taken for its middle: half of the closest gap is the error.
    assert wall_offset_us(Slow(1_000_000_000)) == 1_000_000_000 + 2_000


def test_the_two_clocks_of_this_host_keep_their_distance():
    first = wall_offset_us(SystemClock())
    assert abs(wall_offset_us(SystemClock()) - first) < 1_000_000
