"""Join and leave process groups, one per generation.

Every generation meets through a fresh file: a reused store holds the addresses of dead peers. The file lies in
shared memory on the run's host, so no process has to stay alive for it, least of all rank 0.

gloo cannot be told to give up: `abort`, `destroy` and `shutdown` leave ranks that are not neighbours of the dead
one blocked in the collective. What does release them, at once, is shutting down the connected sockets that gloo
opened; their descriptors are noted around the creation of a group. The cut runs on another thread than the one
that is blocked, and not before the connections are quiet: see docs/design/006.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import starmap
from typing import TYPE_CHECKING

import torch.distributed as dist

from lastgood.base.clock import SystemClock
from lastgood.training.rank.meeting import Meeting
from lastgood.training.rank.reductions import Reductions

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

JOIN_LIMIT = timedelta(seconds=5)
"""Longest wait for the peers while a group is formed; a peer that dies meanwhile must not cost half an hour."""

_GLOO_PATIENCE = 5
"""gloo waits so many times its limit for a peer to connect, and no cut ends that wait."""

COLLECTIVE_LIMIT = timedelta(hours=4)
"""gloo's own limit inside a running group. The supervisor watches progress and acts long before."""

_LOOK_US, _QUIET_LOOKS, _LOOKS_MAX = 1_000, 4, 50
"""A connection is quiet when so many looks in a row find the same bytes; it is cut after the last look in any case."""

_TCP_BYTES_AT = 120
"""Where `struct tcp_info` has the bytes that the peer has acknowledged, and behind them those received."""

_GROUP_ERROR_WORDS = (
    "gloo",
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "wait timeout",
    "timed out waiting",
)


class Group:
    """The process group of the current generation, and the sockets to cut when it breaks."""

    def __init__(self) -> None:
        self.generation = 0
        self.reductions = Reductions()
        self._clock = SystemClock()
        self._sockets: dict[int, int] = {}
        """Descriptor -> inode, so that a number that the process reused is never cut."""
        self._lock = threading.Lock()
        """The control thread cuts while the main thread joins."""
        self._is_cut = False
        self._before_join: dict[int, int] | None = None
        """Sockets that were open before the group that is being formed; None while none is."""
        self._meeting: Meeting | None = None
        """Kept for as long as the group: torch keeps only a part of it, and subgroups are formed through it, too."""

    def join(self, *, generation: int, rank: int, world: int, store: Path) -> None:
        """Form the group of a generation; raises what torch raises when a peer is missing."""
        with self._lock:
            self.generation, self._is_cut = generation, False
            self._sockets.clear()
            self.reductions.begin()
            before = self._before_join = _socket_inodes()
            meeting = self._meeting = Meeting(store, patience=JOIN_LIMIT)
        # A group that could not be formed leaves torch's counter of groups behind, which names the keys in the store:
        # this rank would then wait under another name than its peers, for ever.
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - as destroy_process_group does
        meeting.set_timeout(JOIN_LIMIT)
        limit = JOIN_LIMIT / _GLOO_PATIENCE
        dist.init_process_group("gloo", store=meeting, rank=rank, world_size=world, timeout=limit)
        self._note(before)
        dist.distributed_c10d._set_pg_timeout(COLLECTIVE_LIMIT)  # noqa: SLF001 - no public way to change it

    @property
    def sockets(self) -> frozenset[int]:
        """Inodes of the sockets that belong to the group, also of the one that it listens on."""
        with self._lock:
            return frozenset(self._sockets.values())

    @contextmanager
    def noting(self) -> Generator[None]:
        """Take in the connections that are opened meanwhile: subgroups of this generation, to be cut with it."""
        with self._lock:
            before = self._before_join = _socket_inodes()
        try:
            yield
        finally:
            self._note(before)

    def _note(self, before: dict[int, int]) -> None:
        with self._lock:
            now = _socket_inodes()
            self._sockets |= {fd: inode for fd, inode in now.items() if before.get(fd) != inode}
            self._before_join = None
            if self._is_cut:
                self._cut_noted()

    def revoke(self, generation: int) -> None:
        """End whatever waits in a generation, from any thread but the one that waits.

        Gradient reductions end at once. Who waits in another collective is freed by the cut, which lets the transfers
        between living ranks come to their end first: gloo never tells of one that ends in the middle.
        """
        if generation != self.generation:
            return
        self.reductions.revoke()
        seen, quiet_looks = (), 0
        for _ in range(_LOOKS_MAX):
            with self._lock:
                if generation != self.generation or self._is_cut or self._before_join is not None:
                    break
                traffic = tuple(starmap(_traffic_of, self._sockets.items()))
            seen, quiet_looks = traffic, quiet_looks + 1 if traffic == seen else 0
            if quiet_looks == _QUIET_LOOKS:
                break
            self._clock.sleep_us(_LOOK_US)
        self.cut(generation)

    def cut(self, generation: int) -> int:
        """Shut down the sockets of a generation and end its waits for a peer; returns how many were connected.

        Safe from any thread.
        """
        with self._lock:
            if generation != self.generation:
                return 0
            self._is_cut = True
            if self._meeting is not None:
                self._meeting.give_up()
            if self._before_join is not None:
                # In the middle of forming the group: whatever is connected so far is cut, the rest when it is noted.
                before = self._before_join
                self._sockets |= {
                    fd: inode for fd, inode in _socket_inodes().items() if before.get(fd) != inode
                }
            return self._cut_noted()

    def _cut_noted(self) -> int:
        count = 0
        for descriptor, inode in self._sockets.items():
            with suppress(OSError):
                if os.fstat(descriptor).st_ino != inode:
                    continue
                # The duplicate is closed by Python; the original stays with gloo, which sees the shutdown.
                with socket.socket(fileno=os.dup(descriptor)) as peer:
                    peer.getpeername()
                    peer.shutdown(socket.SHUT_RDWR)
                count += 1
        return count

    def leave(self, *, waits: bool = True) -> None:
        """Drop the group. Its sockets are cut first, so nothing waits for a dead peer.

        gloo's thread looks every 10 ms whether it may end. Who goes on at once need not wait for that.
        """
        self.reductions.revoke()
        self.cut(self.generation)
        if dist.is_initialized():
            last = [dist.GroupMember.WORLD]
            with suppress(RuntimeError, ValueError):
                dist.destroy_process_group()
            if waits:
                last.clear()
            else:
                with suppress(
                    RuntimeError
                ):  # no more threads for this user: it goes with this frame
                    threading.Thread(target=last.clear, name="lastgood-leave", daemon=True).start()


@contextmanager
def group_to_come(*, rank: int, world: int) -> Generator[None]:
    """Let `torch.distributed` say meanwhile which rank this will be; every collective raises."""
    dist.GroupMember.WORLD = dist.ProcessGroup(rank, world)  # type: ignore[missing-argument, bad-argument-type] - the stub lacks it
    try:
        yield
    finally:
        dist.GroupMember.WORLD = None


def is_group_error(error: BaseException) -> bool:
    """True when an exception came from the group, that is from a peer's death and not from the user's code."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _GROUP_ERROR_WORDS)


def _traffic_of(descriptor: int, inode: int) -> bytes:
    """The bytes sent and received over a connection so far; nothing where it is closed or the kernel does not tell."""
    with suppress(OSError):
        if os.fstat(descriptor).st_ino == inode:
            with socket.socket(fileno=os.dup(descriptor)) as peer:
                length = _TCP_BYTES_AT + 16
                return peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, length)[_TCP_BYTES_AT:]
    return b""


def _socket_inodes() -> dict[int, int]:
    """Descriptor -> inode of every open socket of this process."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[int(name)] = status.st_ino
    return found
