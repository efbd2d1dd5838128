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
