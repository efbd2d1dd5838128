"""How long a thread waited for a processor, from the kernel's own counts and from made-up ones."""

import os
import subprocess
import sys
import time

import pytest

from lastgood.training.rank import starving
from lastgood.training.rank.starving import OwnWait

BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: sum(range(2000))"


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """Set what the kernel says: nanoseconds of CPU and of waiting."""
    path, clock = tmp_path / "schedstat", [1]

    def say(cpu_ns: int, waited_ns: int) -> None:
        clock[0] = cpu_ns
        path.write_text(f"{cpu_ns} {waited_ns} 7\n")

    monkeypatch.setattr(starving.time, "thread_time_ns", lambda: clock[0])
    say(1, 0)
    say.path = path
    return say


def test_the_wait_is_the_growth_since_the_beginning(counts):
    counts(5_000_000, 9_000_000)
    wait = OwnWait(counts.path)
    counts(6_000_000, 12_000_000)
    assert wait.starved_us(10_000) == 3000
    wait.begin()
    assert wait.starved_us(10_000) == 0


def test_no_more_is_taken_off_than_leaves_the_time_on_a_processor(counts):
    wait = OwnWait(counts.path)
    counts(4_000_001, 8_000_000)
    assert wait.starved_us(10_000) == 6000
    assert wait.starved_us(3_000) == 0


def test_what_is_left_out_does_not_count(counts):
    wait = OwnWait(counts.path)
    counts(1_000_001, 2_000_000)
    with wait.left_out():
        counts(50_000_001, 90_000_000)
    counts(51_000_001, 91_000_000)
    assert wait.starved_us(5_000) == 3000
    assert wait.starved_us(4_000) == 2000  # two milliseconds on a processor


@pytest.mark.parametrize("text", [None, "0 0 0\n", "nothing"])
def test_a_kernel_that_does_not_count_is_not_taken_for_an_idle_one(tmp_path, text):
    path = tmp_path / "schedstat"
    if text is not None:
        path.write_text(text)
    wait = OwnWait(path)
    with wait.left_out():
        pass
    assert wait.starved_us(10_000) is None


def spend(seconds: float) -> tuple[int, int | None]:
    """Compute for so long; own time and what of it was waited, in microseconds."""
    wait = OwnWait()
    began = time.monotonic_ns()
    while time.monotonic_ns() - began < seconds * 1e9:
        sum(range(1000))
    own_us = (time.monotonic_ns() - began) // 1000
    return own_us, wait.starved_us(own_us)


@pytest.mark.skipif(OwnWait().starved_us(1) is None, reason="this kernel does not count")
def test_a_thread_that_shares_its_processor_waits_half_of_the_time_and_a_sleeping_one_does_not():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    rival = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.5)
        own_us, waited_us = spend(0.5)
        assert waited_us is not None
        assert 0.3 * own_us < waited_us < own_us
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, allowed)
    wait = OwnWait()
    time.sleep(0.3)
    assert (wait.starved_us(300_000) or 0) < 150_000
