"""Processes that outlive the one that answered for them: loader workers of a killed rank, ranks of a killed supervisor.

A worker and everything that it starts carry the run's folder in their environment, and a worker leads a session of its
own, in which its loader workers stay. A process that left the session on purpose (a logging daemon) is left alone.
The run's folder lists the sessions, so that the next start finds those of a supervisor that was killed.
Processes are held by a descriptor while they are judged, so a number that the kernel gave away again is never hit.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection

    from lastgood.training.rundir import RunDir

_WAIT_US = 5_000_000
"""Longest wait for killed processes; one that the kernel holds longer will not run again either."""
_POLL_US = 5_000


class Leftover(NamedTuple):
    """One process of a run that has nobody to answer for it."""

    pid: int
    worker: str
    """Which worker it belongs to; empty for the checkpoint helper."""
    command: str


def note_session(run: RunDir, pid: int) -> None:
    """Remember that this process leads a session of the run."""
    with suppress(OSError), run.sessions.open("a", encoding="ascii") as out:
        out.write(f"{pid}\n")


def sessions_of(run: RunDir) -> frozenset[int]:
    """Return every session that the run has had since its folder was made."""
    try:
        lines = run.sessions.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return frozenset()
    return frozenset(int(line) for line in lines if line.isdigit())


def find_leftovers(root: Path, *, sessions: Collection[int] | None = None) -> list[Leftover]:
    """Return the processes of a run's folder: all of them, or those that live in one of these sessions.

    Assumes: whoever asks owns the run, or has found its owner dead.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (sessions is None or _session_of(int(name)) in sessions):
            entry = _read(int(name), _mark(root))
            if entry is not None:
                found.append(entry)
    return found


def _mark(root: Path) -> bytes:
    return f"LASTGOOD_RUN_DIR={root}".encode()


def _read(pid: int, mark: bytes) -> Leftover | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if mark not in variables:
            return None
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return None  # of another user, or gone
    workers = [v.partition(b"=")[2] for v in variables if v.startswith(b"LASTGOOD_WORKER=")]
    worker = workers[0].decode(errors="replace") if workers else ""
    return Leftover(pid, worker, command.decode(errors="replace").strip()[:200])


def _session_of(pid: int) -> int:
    with suppress(OSError):
        return os.getsid(pid)
    return 0


def end_leftovers(root: Path, *, sessions: Collection[int], waits: bool = True) -> list[Leftover]:
    """Kill those processes; returns which. With `waits` it comes back once they are gone, at the latest after 5 s."""
    ended = []
    for entry in find_leftovers(root, sessions=sessions):
        try:
            descriptor = os.pidfd_open(entry.pid)
        except OSError:
            continue
        try:
            # Read again now that the number cannot change hands any more.
            if _read(entry.pid, _mark(root)) is not None:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                ended.append(entry)
        except OSError:
            continue
        finally:
            os.close(descriptor)
    if waits:
        _wait_for({entry.pid for entry in ended})
    return ended


def _wait_for(pids: set[int]) -> None:
    clock = SystemClock()
    until_us = clock.monotonic_us() + _WAIT_US
    while clock.monotonic_us() < until_us:
        # A zombie has no environment: it is as good as gone.
        if not any(_has_environment(pid) for pid in pids):
            return
        clock.sleep_us(_POLL_US)


def _has_environment(pid: int) -> bool:
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    return False
