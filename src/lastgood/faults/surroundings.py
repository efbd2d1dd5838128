"""Break what surrounds the ranks: the supervisor, the checkpoint helper, a loader worker, a disk, the meeting file.

Who they are is read from the run's folder (`life`, `sessions`) and from the kernel; each is signalled through a
descriptor, and only when it carries the run's folder in its environment, or is the supervisor that the page names.
A full disk is a limit on the size of the files of one process, which the kernel keeps from outside: no byte of a real
disk is taken.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from lastgood.base.clock import Clock
from lastgood.faults.live_run import LiveRun
from lastgood.faults.process import Injected, NotInjected, own_line, send, stop_for
from lastgood.faults.spec import Fault, FaultKind

_PID_WORD = 6
"""Where the supervisor's page `life` names its process."""
_SMALL_FILE_BYTES = 8192
_STORE_WAIT_US = 10_000_000
_POLL_US = 200
_HELPER = b"lastgood.training.rank.checkpoint"


def inject_beside(fault: Fault, *, run: LiveRun, clock: Clock) -> Injected:
    """Carry out a fault of `BESIDE` now. Raises `NotInjected` when what it hits is not there."""
    match fault.kind:
        case FaultKind.KILL_SUPERVISOR | FaultKind.INTERRUPT:
            number = signal.SIGINT if fault.kind is FaultKind.INTERRUPT else signal.SIGKILL
            with _opened(supervisor_of(run.folder)) as pidfd:
                return send(pidfd, number, clock=clock)
        case FaultKind.STOP_SUPERVISOR:
            with _opened(supervisor_of(run.folder)) as pidfd:
                return stop_for(pidfd, fault.duration_us or 0, clock=clock)
        case FaultKind.KILL_HELPER | FaultKind.STOP_HELPER:
            number = signal.SIGKILL if fault.kind is FaultKind.KILL_HELPER else signal.SIGSTOP
            with _opened(helper_of(run.folder)) as pidfd:
                return send(pidfd, number, clock=clock)
        case FaultKind.KILL_LOADER:
            with _opened(loader_of(fault.target.rank or 0, run)) as pidfd:
                return send(pidfd, signal.SIGKILL, clock=clock)
        case FaultKind.FULL_LEDGER:
            return _fill_for(supervisor_of(run.folder), fault, clock=clock)
        case FaultKind.FULL_CHECKPOINTS:
            return _fill_for(helper_of(run.folder), fault, clock=clock)
        case FaultKind.FULL_MEMORY:
            return _fill_memory(run, clock=clock)
        case FaultKind.REMOVE_STORE:
            return _remove_store(run, clock=clock)
        case _:
            raise NotInjected(f"{fault.kind} hits a rank")


def supervisor_of(folder: Path) -> int:
    """The process that the supervisor's page names."""
    try:
        page = (folder / "life").read_bytes()
        return struct.unpack_from("<q", page, 8 * _PID_WORD)[0]
    except (OSError, struct.error) as error:
        raise NotInjected(f"no supervisor is named in {folder / 'life'}: {error}") from None


def helper_of(folder: Path) -> int:
    """The checkpoint helper: the newest session of the run that is one."""
    with suppress(OSError):
        for line in reversed((folder / "sessions").read_text(encoding="ascii").split()):
            with suppress(OSError, ValueError):
                if _HELPER in Path(f"/proc/{int(line)}/cmdline").read_bytes():
                    return int(line)
    raise NotInjected("the run has no checkpoint helper")


def loader_of(rank: int, run: LiveRun) -> int:
    """The newest loader worker of a rank."""
    state = run.state()
    member = state.ranks.get(rank) if state else None
    if member is not None:
        with suppress(OSError):
            children = Path(f"/proc/{member.pid}/task/{member.pid}/children").read_text().split()
            if children:
                return int(children[-1])
    raise NotInjected(f"rank {rank} has no loader worker")


@contextmanager
def _opened(pid: int) -> Generator[int]:
    """A descriptor of a process that is neither this one nor an ancestor of it."""
    if pid <= 1 or pid in own_line():
        raise NotInjected(f"pid {pid} is the injector, its ancestor or init")
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise NotInjected(f"pid {pid}: {error.strerror}") from None
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def _fill_for(pid: int, fault: Fault, *, clock: Clock) -> Injected:
    """Let no file of a process grow for a while."""
    if pid in own_line():
        raise NotInjected(f"pid {pid} is the injector or its ancestor")
    made = Injected(wall_us=clock.wall_us(), monotonic_us=clock.monotonic_us(), detail={"pid": pid})
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE_BYTES, hard))
    except OSError as error:
        raise NotInjected(f"pid {pid}: {error.strerror}") from None
    try:
        clock.sleep_us(fault.duration_us or 0)
    finally:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    return made


def _fill_memory(run: LiveRun, *, clock: Clock) -> Injected:
    """Let no file of a rank or a spare become larger than its snapshots are, until the end of the run."""
    state = run.state()
    members = (*state.ranks.values(), *state.spares) if state else ()
    sizes = [path.stat().st_size for path in run.folder.glob("slots/*/state.*")]
    if not members or not sizes:
        raise NotInjected("the run has no ranks, or no snapshots")
    made = Injected(
        wall_us=clock.wall_us(), monotonic_us=clock.monotonic_us(), detail={"bytes_max": max(sizes)}
    )
    for member in members:
        if member.pid in own_line():
            raise NotInjected(f"pid {member.pid} is the injector or its ancestor")
        with suppress(ProcessLookupError):
            resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (max(sizes), max(sizes)))
    return made


def _remove_store(run: LiveRun, *, clock: Clock) -> Injected:
    """Remove the file through which the present generation meets, again and again while it tries to.

    A file that is only removed once is made anew by the next rank that looks, and nobody is hurt.
    """
    folder = run.folder / "store"
    state = run.state()
    generation = state.generation if state else 0
    path = folder / f"gen{generation}"
    made: Injected | None = None
    until_us = clock.monotonic_us() + _STORE_WAIT_US
    while clock.monotonic_us() < until_us:
        state = run.state()
        if state is not None and state.generation > generation:
            break
        with suppress(OSError):
            path.unlink()
            made = made or Injected(
                wall_us=clock.wall_us(),
                monotonic_us=clock.monotonic_us(),
                detail={"store": path.name},
            )
        clock.sleep_us(_POLL_US)
    if made is None:
        raise NotInjected(f"nobody met in {path.name}")
    return made
