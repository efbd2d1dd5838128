"""Join and leave process groups, one per generation.

Every generation meets through a fresh file: a reused store holds the addresses of dead peers. The file lies in
shared memory on the run's host, so no process has to stay alive for it, least of all rank 0.

gloo cannot be told to give up: `abort`, `destroy` and `shutdown` leave ranks that are not neighbours of the dead
one blocked in the collective. What does release them, at once, is shutting down the connected sockets that gloo
opened (see `connections`). The cut runs on another thread than the one that is blocked, and not before the connections
are quiet: see docs/design/006.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from lastgood.base.clock import SystemClock
from lastgood.training.rank.connections import Connections
from lastgood.training.rank.meeting import Meeting
from lastgood.training.rank.reductions import Reductions
from lastgood.training.rank.standby import Standby

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

JOIN_LIMIT = timedelta(seconds=5)
"""Longest wait for the peers while a group is formed; a peer that dies meanwhile must not cost half an hour."""

_GLOO_LIMIT = JOIN_LIMIT / 5
"""gloo waits five times its limit for a peer to connect, and no cut ends that wait."""

COLLECTIVE_LIMIT = timedelta(hours=4)
"""gloo's own limit inside a running group. The supervisor watches progress and acts long before."""

_LOOK_US, _QUIET_LOOKS, _LOOKS_MAX = 1_000, 4, 50
"""A connection is quiet when so many looks in a row find the same bytes; it is cut after the last look in any case."""

_REVOKED_WITHIN_S = 1
"""A rank leaves for good reason only, which its control thread has heard or is about to hear."""

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
        self._lock = threading.Lock()
        """The control thread revokes while the main thread joins."""
        self._revoked = threading.Condition()
        self._revoked_generation = 0
        """The newest one whose revocation is through with the connections."""
        self._connections = Connections()
        self._meeting: Meeting | None = None
        """Kept for as long as the group: torch keeps only a part of it, and subgroups are formed through it, too."""
        self.standby = Standby(limit=_GLOO_LIMIT, patience=JOIN_LIMIT)

    def join(
        self,
        *,
        generation: int,
        rank: int,
        world: int,
        store: Path,
        lost_rank: int | None = None,
    ) -> None:
        """Enter the group of a generation: one formed now, or the one that stands by for the loss of a rank.

        Raises what torch raises when a peer is missing.
        """
        formed = None if lost_rank is None else self.standby.take(lost_rank)
        meeting = Meeting(store, patience=JOIN_LIMIT) if formed is None else formed.meeting
        with self._lock:
            self.generation = generation
            self.reductions.begin()
            self._connections = Connections() if formed is None else formed.connections
            self._meeting = meeting
        # A group that could not be formed leaves torch's counter of groups behind, which names the keys in the store:
        # this rank would then wait under another name than its peers, for ever.
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - as destroy_process_group does
        meeting.set_timeout(JOIN_LIMIT)
        with self._connections.noting() if formed is None else formed.handed_out():
            dist.init_process_group(
                "gloo", store=meeting, rank=rank, world_size=world, timeout=_GLOO_LIMIT
            )
        dist.distributed_c10d._set_pg_timeout(COLLECTIVE_LIMIT)  # noqa: SLF001 - no public way to change it

    @property
    def sockets(self) -> frozenset[int]:
        """Inodes of the sockets that belong to the group and to those that stand by, also of listening ones."""
        return self._connections.inodes | self.standby.sockets

    def noting(self) -> AbstractContextManager[None]:
        """Take in the connections that are opened meanwhile: subgroups of this generation, to be cut with it."""
        return self._connections.noting()

    def revoke(self, generation: int) -> None:
        """End whatever waits in a generation, from any thread but the one that waits.

        Gradient reductions end at once. Who waits in another collective is freed by the cut, which lets the transfers
        between living ranks come to their end first: gloo never tells of one that ends in the middle.
        """
        if generation == self.generation:
            self.reductions.revoke()
            self._await_rest(generation)
            self.cut(generation)
        with self._revoked:
            self._revoked_generation = max(self._revoked_generation, generation)
            self._revoked.notify_all()

    def _await_rest(self, generation: int) -> None:
        seen, quiet_looks = {}, 0
        for _ in range(_LOOKS_MAX):
            traffic = self._connections.traffic()
            if traffic is None or generation != self.generation:
                return
            is_quiet = traffic.items() <= seen.items()  # what a peer has ended meanwhile is at rest
            seen, quiet_looks = traffic, quiet_looks + 1 if is_quiet else 0
            if quiet_looks == _QUIET_LOOKS:
                return
            self._clock.sleep_us(_LOOK_US)

    def cut(self, generation: int) -> int:
        """Shut down the sockets of a generation and end its waits for a peer; returns how many were connected.

        Safe from any thread.
        """
        with self._lock:
            if generation != self.generation:
                return 0
            meeting, connections = self._meeting, self._connections
        if meeting is not None:
            meeting.give_up()
        return connections.cut()

    def leave(self, *, waits: bool = True) -> None:
        """Drop the group. Its sockets are cut first, so nothing waits for a dead peer.

        gloo's thread looks every 10 ms whether it may end. Who goes on at once does not wait for that, and keeps the
        groups that stand by.
        """
        self.reductions.revoke()
        if waits:
            self.standby.close()
        else:
            # Peers may have transfers with this rank under way: who revokes looks at them before the cut.
            with self._revoked:
                self._revoked.wait_for(
                    lambda: self._revoked_generation >= self.generation, timeout=_REVOKED_WITHIN_S
                )
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
