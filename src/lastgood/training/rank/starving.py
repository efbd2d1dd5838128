"""How long the thread of the steps was ready to run and had no processor: that is the host's doing, not the rank's.

A step pays for two reads of a file that stays open and two of the thread's clock, about three microseconds. The
supervisor could look instead, but not at the moments where a step begins and ends, and least of all on a loaded host.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_OWN_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_BYTES = 64


class OwnWait:
    """The wait of the thread that made this, since a moment that it names. Bound to that thread."""

    __slots__ = ("_cpu_ns", "_descriptor", "_left_out_ns", "_since")

    def __init__(self, path: Path = _OWN_SCHEDSTAT) -> None:
        """Open the kernel's counts; without them every answer is None."""
        self._descriptor = -1
        self._since = b""
        self._cpu_ns = self._left_out_ns = 0
        with suppress(OSError, IndexError, ValueError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            # A kernel that does not count says "0 0 0", also of a thread that has run.
            if int(os.pread(descriptor, _BYTES, 0).split()[0]) > 0:
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        if self._descriptor >= 0:
            self._since, self._left_out_ns = os.pread(self._descriptor, _BYTES, 0), 0
            # The file holds the time on a processor too, but up to a tick old while the thread runs.
            self._cpu_ns = time.thread_time_ns()

    @contextmanager
    def left_out(self) -> Generator[None]:
        """What is spent in the block does not count."""
        if self._descriptor < 0:
            yield
            return
        before, cpu_ns = os.pread(self._descriptor, _BYTES, 0), time.thread_time_ns()
        try:
            yield
        finally:
            after = os.pread(self._descriptor, _BYTES, 0)
            self._left_out_ns += _waited_ns(after) - _waited_ns(before)
            self._cpu_ns += time.thread_time_ns() - cpu_ns

    def starved_us(self, own_us: int) -> int | None:
        """The part of `own_us` that was such a wait; never so much that less than the CPU time is left of it.

        More was waited where `own_us` is not all of the time since the beginning, such as in collectives.
        """
        if self._descriptor < 0:
            return None
        now = os.pread(self._descriptor, _BYTES, 0)
        waited_us = (_waited_ns(now) - _waited_ns(self._since) - self._left_out_ns) // 1000
        cpu_us = (time.thread_time_ns() - self._cpu_ns) // 1000
        return max(0, min(waited_us, own_us - cpu_us))


def _waited_ns(counts: bytes) -> int:
    """Second of the numbers: nanoseconds ready to run, without a processor."""
    return int(counts.split(None, 2)[1])
