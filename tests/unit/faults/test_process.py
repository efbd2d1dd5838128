"""A stop that ends by itself: the process stands still meanwhile, and runs afterwards."""

import os
import subprocess
import sys

from lastgood.base.clock import SystemClock
from lastgood.faults.process import process_state, stop_for


class Looking(SystemClock):
    """Looks at a process where the stop sleeps; the kernel may take a moment to say that it stands."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid, self.seen = pid, ""

    def sleep_us(self, duration_us: int) -> None:
        assert duration_us == 12_000_000
        until_us = self.monotonic_us() + 20_000_000
        while self.seen not in {"T", "t"} and self.monotonic_us() < until_us:
            self.seen = process_state(self.pid) or ""


def test_a_process_that_is_stopped_for_a_while_stands_still_and_goes_on():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(child.pid)
    clock = Looking(child.pid)
    try:
        stop_for(pidfd, 12_000_000, clock=clock)
        assert clock.seen in {"T", "t"}
        child.communicate(b"\n", timeout=50)
        assert child.returncode == 0, "it runs again"
    finally:
        child.kill()
        child.wait()
        os.close(pidfd)
