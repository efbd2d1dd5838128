"""One process of a live run: who it is, how it is signalled, how it is held still.

A process is signalled through a pidfd, and only when three things agree: `state.json` still lists the pid
for that rank, the kernel's start time is the one seen when the pid was first listed, and it is no ancestor
of ours. A pid that was used again belongs to somebody else, and a fault never hits somebody else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lastgood.base.clock import Clock
from lastgood.faults.live_run import LiveRun, Member

STOP_WAIT_US_MAX = 200_000
"""How long a process may take to be seen stopped before its memory or snapshot is touched."""
STOP_POLL_US = 500


class NotInjected(Exception):
    """The fault could not be injected; the message says why. It goes into the injector's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What was done."""

    wall_us: int
    """When, taken immediately before the effect."""
    monotonic_us: int
    detail: dict[str, object]


class Identities:
    """Start time of every pid, as it was when the supervisor first listed it."""

    def __init__(self) -> None:
        """Know nobody."""
        self._start_ticks: dict[tuple[str, int], int] = {}

    def note(self, members: dict[int, Member]) -> None:
        """Remember the pids that are new."""
        for member in members.values():
            key = (member.worker, member.pid)
            if key not in self._start_ticks:
                ticks = start_ticks(member.pid)
                if ticks is not None:
                    self._start_ticks[key] = ticks

    def matches(self, member: Member) -> bool:
        """The process behind the pid is the one that was listed."""
        known = self._start_ticks.get((member.worker, member.pid))
        return known is not None and known == start_ticks(member.pid)


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def process_state(pid: int) -> str | None:
    """The letter of a process's state (`R`, `S`, `T`, ...); None when there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on; the second may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None


@contextmanager
def victim(
    rank: int, *, run: LiveRun, identities: Identities, is_spare: bool = False
) -> Iterator[tuple[Member, int]]:
    """The process of a rank and a descriptor that stays its own even when the pid is used again.

    Args:
        is_spare: `rank` counts the parked spares instead.
    """
    state = run.state()
    if is_spare:
        member = state.spares[rank] if state and rank < len(state.spares) else None
    else:
        member = state.ranks.get(rank) if state else None
    if member is None:
        what = "no such spare is parked" if is_spare else f"nobody serves rank {rank}"
        raise NotInjected(f"{what} in state.json")
    identities.note({rank: member})  # listed since the last look: known from now on, never changed
    if member.pid <= 1 or member.pid in own_line():
        raise NotInjected(f"pid {member.pid} is the injector, its ancestor or init")
    try:
        pidfd = os.pidfd_open(member.pid)
    except OSError as error:
        raise NotInjected(f"pid {member.pid}: {error.strerror}") from None
    try:
        # Looked at after the descriptor is held: from here on the pid cannot change hands unseen.
        if not identities.matches(member):
            raise NotInjected(
                f"pid {member.pid} is not the process that was listed for {member.worker}"
            )
        yield member, pidfd
    finally:
        os.close(pidfd)


def own_line() -> set[int]:
    """This process and its ancestors."""
    line, pid = set(), os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        fields = _stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return line


def send(pidfd: int, number: signal.Signals, *, clock: Clock) -> Injected:
    """Send one signal, stamped immediately before."""
    wall_us, monotonic_us = clock.wall_us(), clock.monotonic_us()
    try:
        signal.pidfd_send_signal(pidfd, number)
    except OSError as error:
        raise NotInjected(f"{number.name}: {error.strerror}") from None
    return Injected(wall_us=wall_us, monotonic_us=monotonic_us, detail={"signal": number.name})


def stop_for(pidfd: int, duration_us: int, *, clock: Clock) -> Injected:
    """Stop a process for a while; it goes on afterwards whatever happens here."""
    first = send(pidfd, signal.SIGSTOP, clock=clock)
    try:
        clock.sleep_us(duration_us)
    finally:
        with suppress(NotInjected):  # it has ended meanwhile
            send(pidfd, signal.SIGCONT, clock=clock)
    return first


@contextmanager
def held(member: Member, pidfd: int, *, clock: Clock, is_resumed: bool) -> Iterator[None]:
    """Stop the process, and wait until the kernel says so, so that nothing moves below the change."""
    send(pidfd, signal.SIGSTOP, clock=clock)
    is_changed = False
    try:
        deadline_us = clock.monotonic_us() + STOP_WAIT_US_MAX
        while process_state(member.pid) not in ("T", "t"):
            if clock.monotonic_us() > deadline_us:
                raise NotInjected(f"pid {member.pid} did not stop")
            clock.sleep_us(STOP_POLL_US)
        yield
        is_changed = True
    finally:
        if is_resumed or not is_changed:
            with suppress(NotInjected):  # it has ended meanwhile, which is not the injector's doing
                send(pidfd, signal.SIGCONT, clock=clock)
