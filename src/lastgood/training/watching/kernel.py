"""What the kernel says about a process: its state, its CPU time, and how long its main thread waited to run."""

from __future__ import annotations

import os
from typing import NamedTuple

from lastgood.signals.reading import ProcessState

_TEXT_BYTES_MAX = 4096
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_STATES = {
    "R": ProcessState.RUNNING,
    "S": ProcessState.SLEEPING,
    "I": ProcessState.SLEEPING,
    "T": ProcessState.STOPPED,
    "t": ProcessState.STOPPED,
    "D": ProcessState.UNINTERRUPTIBLE,
    "Z": ProcessState.GONE,
    "X": ProcessState.GONE,
}


class ProcessSample(NamedTuple):
    """One look at a process; times are microseconds since it started running."""

    state: ProcessState
    cpu_us: int
    runqueue_wait_us: int


def sample_process(pid: int) -> ProcessSample:
    """Return what `/proc` says of a process; one that is gone has used no time."""
    try:
        stat = _text_of(f"/proc/{pid}/stat")
        # The command name may hold blanks and parentheses; the fields start behind the last one.
        fields = stat.rpartition(")")[2].split()
        wait_ns = _wait_ns(pid)
    except OSError:
        return ProcessSample(ProcessState.GONE, 0, 0)
    state = _STATES.get(fields[0], ProcessState.SLEEPING)
    return ProcessSample(state, (int(fields[11]) + int(fields[12])) * _TICK_US, wait_ns // 1000)


def waiting_place(pid: int) -> str:
    """Return the kernel function in which the main thread sleeps; empty when it runs or nobody may know."""
    try:
        found = _text_of(f"/proc/{pid}/wchan").strip()
    except OSError:
        return ""
    return "" if found == "0" else found


def _wait_ns(pid: int) -> int:
    """Second field of schedstat of the main thread: time spent runnable but not running. Not every kernel keeps it."""
    try:
        return int(_text_of(f"/proc/{pid}/schedstat").split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _text_of(path: str) -> str:
    """The text of a small file: every rank has three, read many times a second, so nothing is built around them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _TEXT_BYTES_MAX).decode("ascii", errors="replace")
    finally:
        os.close(descriptor)
