"""Process groups that stand by: formed while all is well, for the case that one rank is lost and a spare takes its place.

Forming a group is mostly waiting for each other, at the moment at which everybody has most to do. Who is in the next
group is known before anything happens, but for the one rank that will be lost: so there is one group for each. If more
is lost, or a group is not done in time, what stands by is of no use, and the ranks form a group as ever.

The user's own code runs meanwhile and may open connections of its own. Those of a group are told from them by their
ports: each rank says in the store on which one it listens.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from lastgood.training.rank.connections import Connections, Sockets, new_sockets, open_sockets
from lastgood.training.rank.meeting import Meeting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import timedelta
    from pathlib import Path

    from lastgood.training.control import FormStandby


@dataclass(slots=True)
class StandbyGroup:
    """One that is formed."""

    meeting: Meeting
    connections: Connections
    backend: Any
    """gloo's part of it."""

    @contextmanager
    def handed_out(self) -> Generator[None]:
        """Let `init_process_group` take what was formed where it would form a group itself."""
        module: Any = distributed_c10d
        real, module.ProcessGroupGloo = module.ProcessGroupGloo, _Formed(self.backend)
        try:
            yield
        finally:
            module.ProcessGroupGloo, self.backend = real, None


class _Formed:
    """Stands in for the class while a group is made of one that is there."""

    def __init__(self, formed: object) -> None:
        self._formed = formed

    def __call__(self, *_: Any, **__: Any) -> object:
        return self._formed

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, dist.ProcessGroupGloo)


class Standby:
    """The groups of this process that stand by; all methods are safe from any thread."""

    def __init__(self, *, limit: timedelta, patience: timedelta) -> None:
        """`limit` and `patience` are gloo's and the store's: the longest waits for a peer."""
        self._limit, self._patience = limit, patience
        self._lock = threading.Lock()
        self._number = 0
        self._formed: dict[int, StandbyGroup] = {}
        """By the rank that is lost."""
        self._under_way: Meeting | None = None
        self._devices: list[Any] = []
        """Shared by all of these groups: each has a thread that wakes up a hundred times a second."""

    @property
    def sockets(self) -> frozenset[int]:
        """Inodes of all their sockets, also of the one that they listen on."""
        with self._lock:
            groups = tuple(self._formed.values())
        return frozenset().union(*(group.connections.inodes for group in groups))

    def form(self, order: FormStandby, store_of: Callable[[int], Path]) -> None:
        """Begin to form what was ordered on a thread, in place of all that there is; never raises."""
        self.drop()
        with self._lock:
            self._number = order.number
        thread = threading.Thread(
            target=self._form_all, args=(order, store_of), name="lastgood-standby", daemon=True
        )
        with suppress(RuntimeError):  # no more threads for this user: groups are formed when needed
            thread.start()

    def has(self, number: int, lost_rank: int) -> bool:
        """True when the group of an order for that case is there."""
        with self._lock:
            return number == self._number and lost_rank in self._formed

    def take(self, lost_rank: int) -> StandbyGroup:
        """Hand out a group that is there; the others of its order are useless from then on."""
        with self._lock:
            self._number = 0
            return self._formed.pop(lost_rank)

    def drop(self) -> None:
        """Let go of all of them."""
        with self._lock:
            groups, self._formed = self._formed, {}
            self._number, under_way = 0, self._under_way
        if under_way is not None:
            under_way.give_up()
        for group in groups.values():
            group.connections.cut()

    def close(self) -> None:
        """Let go of all of them and of gloo's thread, at the end of the process."""
        self.drop()
        self._devices.clear()

    def _form_all(self, order: FormStandby, store_of: Callable[[int], Path]) -> None:
        """One after the other, in the same order on every rank; each leaves out the case of its own loss."""
        for lost_rank in range(order.world):
            if lost_rank == order.rank:
                continue
            rank = lost_rank if order.rank is None else order.rank
            meeting = Meeting(store_of(lost_rank), patience=self._patience)
            with self._lock:
                if self._number != order.number:
                    return
                self._under_way = meeting
            # Whatever it is: the group is then formed when it is needed, and it is told there.
            with suppress(Exception):
                group = self._form_one(meeting, rank=rank, world=order.world)
                with self._lock:
                    if self._number == order.number:
                        self._formed[lost_rank] = group
        with self._lock:
            self._under_way = None

    def _form_one(self, meeting: Meeting, *, rank: int, world: int) -> StandbyGroup:
        meeting.set_timeout(self._limit)
        before = open_sockets()
        if not self._devices:
            self._devices += _devices()
        backend = dist.ProcessGroupGloo(
            dist.PrefixStore("standby", meeting), rank, world, self._options()
        )
        connections = Connections()
        connections.take(_own(new_sockets(before), meeting, rank=rank, world=world))
        return StandbyGroup(meeting, connections, backend)

    def _options(self) -> Any:
        """What torch itself makes of a limit, but for the devices."""
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()  # noqa: SLF001 - torch has no public name for it
        options._devices = self._devices  # noqa: SLF001
        options._timeout = self._limit  # noqa: SLF001
        options._threads = 2 * len(self._devices)  # noqa: SLF001
        return options


def _devices() -> list[Any]:
    """The devices that torch would choose."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    gloo = dist.ProcessGroupGloo
    if not names:
        return [gloo.create_default_device()]
    return [gloo.create_device(interface=name) for name in names]


def _own(opened: Sockets, meeting: Meeting, *, rank: int, world: int) -> Sockets:
    """Of the sockets that were opened meanwhile, those of the group: they begin or end at a port that its ranks name."""
    ends = {fd: _ports_of(fd) for fd in opened}
    named = {near for near, far in ends.values() if near and far}
    meeting.set(f"ports/{rank}", " ".join(map(str, named)))
    names = [f"ports/{peer}" for peer in range(world) if peer != rank]
    of_peers = {int(port) for name in names for port in meeting.get(name).split()}
    of_group = {fd for fd, (near, far) in ends.items() if near and (not far or far in of_peers)}
    return {fd: inode for fd, inode in opened.items() if fd in of_group}


def _ports_of(descriptor: int) -> tuple[int, int]:
    """Own and peer's port of a socket; 0 for one that it has not, or where it is none of the network."""
    near = far = 0
    with suppress(OSError, ValueError), socket.socket(fileno=os.dup(descriptor)) as end:
        if end.family in (socket.AF_INET, socket.AF_INET6):
            near = end.getsockname()[1]
            far = end.getpeername()[1]
    return near, far
