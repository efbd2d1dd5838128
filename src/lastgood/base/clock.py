"""Time as an argument: the only place where the real clock is read and where anybody sleeps.

Everything else receives a `Clock`, so the same code runs on real ranks and under a seeded simulator.
Wall time (UTC, microseconds) says when something happened and may step; monotonic time measures how
long it took and is comparable only within one boot of one host, which is why an event names its boot.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_TIME_ERROR = 5
"""Return value of adjtimex(2) when the kernel's clock is not synchronised."""
_STATUS_UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""


class Clock(Protocol):
    """What code needs of time."""

    def wall_us(self) -> int:
        """Return microseconds since 1970 in UTC; may jump in both directions."""
        ...

    def monotonic_us(self) -> int:
        """Return microseconds that never go back within one boot; the origin has no meaning."""
        ...

    def sleep_us(self, duration_us: int) -> None:
        """Let that much time pass."""
        ...


monotonic_ns = time.monotonic_ns
"""The bare reading, for the one caller to whom a method call is too dear: the status page of a rank."""


class SystemClock:
    """The clock of this host."""

    __slots__ = ()

    def wall_us(self) -> int:
        """Return microseconds since 1970 in UTC."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return microseconds of CLOCK_MONOTONIC, which all processes of a host share."""
        return time.monotonic_ns() // 1000

    def sleep_us(self, duration_us: int) -> None:
        """Sleep; a duration of zero or less returns at once."""
        if duration_us > 0:
            time.sleep(duration_us / 1_000_000)


class ManualClock:
    """A clock that moves only when told to: for simulators and tests."""

    __slots__ = ("_elapsed_us", "_start_us")

    def __init__(self, start_us: int = 0) -> None:
        """Start the wall at `start_us` and the monotonic time at zero."""
        self._start_us = start_us
        self._elapsed_us = 0

    def wall_us(self) -> int:
        """Return the start plus everything that passed."""
        return self._start_us + self._elapsed_us

    def monotonic_us(self) -> int:
        """Return everything that passed."""
        return self._elapsed_us

    def sleep_us(self, duration_us: int) -> None:
        """Pass the time at once, without waiting."""
        self.advance_us(max(0, duration_us))

    def advance_us(self, duration_us: int) -> None:
        """Move forward; time never goes back."""
        assert duration_us >= 0, "a clock does not go back"
        self._elapsed_us += duration_us

    def step_wall_us(self, offset_us: int) -> None:
        """Step the wall time, as a time daemon does, without touching the monotonic time."""
        self._start_us += offset_us


_OFFSET_TRIES = 5
_OFFSET_GAP_US = 1_000
"""Reading both clocks took no longer than this: their distance is good to half of it."""


def wall_offset_us(clock: Clock) -> int:
    """Return wall time minus monotonic time, from the closest pair of readings of a few.

    The two clocks are read one after the other, and a process may be stopped in between: a distance that was
    read over a long gap says more about the gap than about the clocks.
    """
    best_us, offset_us = None, 0
    for _ in range(_OFFSET_TRIES):
        before_us, wall_us, after_us = clock.monotonic_us(), clock.wall_us(), clock.monotonic_us()
        gap_us = after_us - before_us
        if best_us is None or gap_us < best_us:
            best_us, offset_us = gap_us, wall_us - (before_us + after_us) // 2
        if best_us <= _OFFSET_GAP_US:
            break
    return offset_us


class RunClock:
    """The time base of one run: wall time as it was when the run began, carried on by the monotonic clock.

    A wall clock may jump in either direction. Times that are compared or subtracted must not, so all
    processes of a run write theirs on this one base; how far the real wall clock has moved away from it is
    `moved_us`, which is recorded when it jumps.
    """

    __slots__ = ("_clock", "offset_us")

    def __init__(self, clock: Clock, offset_us: int | None = None) -> None:
        """Take the wall time of now as the base, or that of a process that began before (`offset_us`)."""
        self._clock = clock
        self.offset_us = wall_offset_us(clock) if offset_us is None else offset_us

    def wall_us(self) -> int:
        """Return microseconds since 1970 on the run's time base; never goes back."""
        return self.wall_of_us(self._clock.monotonic_us())

    def wall_of_us(self, monotonic_us: int) -> int:
        """Return the same for another instant of this boot."""
        return monotonic_us + self.offset_us

    def monotonic_us(self) -> int:
        """Return the monotonic time of the clock below."""
        return self._clock.monotonic_us()

    def sleep_us(self, duration_us: int) -> None:
        """Let that much time pass."""
        self._clock.sleep_us(duration_us)

    def moved_us(self) -> int:
        """Return how far the wall clock has moved away from the run's time base."""
        return wall_offset_us(self._clock) - self.offset_us


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot, or `unknown` where the kernel does not say."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return "unknown"


@functools.cache
def clock_id() -> str:
    """Return a short name of the clock that this process reads: equal for equal host and boot.

    Two events with the same clock id can be ordered by their monotonic times. The host's name is
    hashed, so the id carries nothing private.
    """
    identity = f"{os.uname().nodename}\n{boot_id()}".encode()
    return "clk-" + hashlib.sha256(identity).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSync:
    """What the kernel knows about how right the wall clock is."""

    is_synchronised: bool | None
    """None when the kernel could not be asked."""
    uncertainty_us: int | None
    """The kernel's bound of the error (adjtimex `maxerror`); None when there is none worth naming."""


class _Timex(ctypes.Structure):
    """The head of `struct timex` of <sys/timex.h>, padded generously for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("_rest", ctypes.c_long * 64),
    )


def read_clock_sync() -> ClockSync:
    """Ask the kernel whether a time daemon disciplines the clock; never raises, never changes it."""
    state = _Timex()  # modes = 0: read only
    try:
        result = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state))
    except (OSError, AttributeError):
        return ClockSync(is_synchronised=None, uncertainty_us=None)
    if result < 0:
        return ClockSync(is_synchronised=None, uncertainty_us=None)
    is_synchronised = result != _TIME_ERROR and not state.status & _STATUS_UNSYNCHRONISED
    return ClockSync(
        is_synchronised=is_synchronised,
        uncertainty_us=int(state.maxerror) if is_synchronised else None,
    )
