"""Process groups that stand by: formed while all is well, for the case that one rank is lost and a spare takes its place.

Forming a group is mostly waiting for each other, at the moment at which everybody has most to do. Who is in the next
group is known before anything happens, but for the one rank that will be lost: so there is one group for each. If more
is lost, or a group is not done in time, what stands by is of no use, and the ranks form a group as ever.

The user's own code runs meanwhile and may open connections of its own, also to other ranks. Those of a group are told
from them by their ports: each process listens on one for these groups alone, and says in the store which it is.
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

from lastgood.training.rank.connections import (
    Connections,
    Sockets,
    borrowed,
    new_sockets,
    open_sockets,
)
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
        """The order of the groups that are there."""
        self._is_closed = False
        self._wanted = 0
        """The order whose groups may still come; 0 while none may."""
        self._formed: dict[int, StandbyGroup] = {}
        """By the rank that is lost."""
        self._under_way: Meeting | None = None
        self._thread: threading.Thread | None = None
        self._device_lock = threading.Lock()
        self._devices: list[Any] = []
        """Shared by all of these groups: each has a thread that wakes up a hundred times a second."""
        self._listening: Sockets = {}
        """What the devices listen on."""

    @property
    def sockets(self) -> frozenset[int]:
        """Inodes of all their sockets, also of the one that they listen on."""
        with self._lock:
            groups = tuple(self._formed.values())
        listening = frozenset(self._listening.values())
        return listening.union(*(group.connections.inodes for group in groups))

    def form(self, order: FormStandby, store_of: Callable[[int], Path]) -> None:
        """Begin to form what was ordered on a thread, in place of all that there is; never raises."""
        dropped = self.drop()
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            return  # torch then puts a second group beside each, whose connections nobody would know
        with self._lock:
            if self._is_closed:
                return
            self._number = self._wanted = order.number
        thread = threading.Thread(
            target=self._form_all,
            args=(order, store_of, dropped),
            name="lastgood-standby",
            daemon=True,
        )
        with suppress(RuntimeError):  # no more threads for this user: groups are formed when needed
            thread.start()
            self._thread = thread

    def has(self, number: int, lost_rank: int) -> bool:
        """True when the group of an order for that case is there, and none of its connections has ended."""
        with self._lock:
            group = self._formed.get(lost_rank) if number == self._number else None
        return group is not None and group.connections.are_whole()

    def take(self, lost_rank: int) -> StandbyGroup:
        """Hand out a group that is there; the others of its order are useless from then on."""
        with self._lock:
            self._number = self._wanted = 0
            return self._formed.pop(lost_rank)

    def halt(self) -> None:
        """Keep what is there, and let nothing come any more: what opens connections now is the next generation."""
        with self._lock:
            self._wanted, under_way = 0, self._under_way
        if under_way is not None:
            under_way.give_up()

    def drop(self) -> dict[int, StandbyGroup]:
        """Let go of all of them; returns those that were there, to be ended where nobody waits for that."""
        self.halt()
        with self._lock:
            groups, self._formed = self._formed, {}
            self._number = 0
        for group in groups.values():
            group.connections.cut()
        return groups

    def close(self) -> None:
        """Let go of all of them and of gloo's thread, at the end of the process."""
        with self._lock:
            self._is_closed = True
        self.drop()
        if self._thread is not None:
            # It would come back from gloo into an interpreter that ends, which aborts it.
            self._thread.join(self._limit.total_seconds())
        with self._device_lock:
            self._devices.clear()
            self._listening = {}

    def _form_all(
        self,
        order: FormStandby,
        store_of: Callable[[int], Path],
        dropped: dict[int, StandbyGroup],
    ) -> None:
        """One after the other, in the same order on every rank; each leaves out the case of its own loss."""
        dropped.clear()
        for lost_rank in range(order.world):
            if lost_rank == order.rank:
                continue
            rank = lost_rank if order.rank is None else order.rank
            meeting = Meeting(store_of(lost_rank), patience=self._patience)
            with self._lock:
                if self._wanted != order.number:
                    return
                self._under_way = meeting
            group = None
            # Whatever it is: the group is then formed when it is needed, and it is told there.
            with suppress(Exception):
                group = self._form_one(meeting, rank=rank, world=order.world)
            with self._lock:
                # In one with the group's coming: a meeting that is given up serves no group any more.
                if self._under_way is meeting:
                    self._under_way = None
                if group is not None and self._wanted == order.number:
                    self._formed[lost_rank] = group

    def _form_one(self, meeting: Meeting, *, rank: int, world: int) -> StandbyGroup:
        meeting.set_timeout(self._limit)
        self._listen()
        own = " ".join(str(_ports_of(descriptor)[0]) for descriptor in self._listening)
        meeting.set(f"ports/{rank}", own)
        before = open_sockets()
        backend = dist.ProcessGroupGloo(
            dist.PrefixStore("standby", meeting), rank, world, self._options()
        )
        connections = Connections()
        connections.take(_own(new_sockets(before), meeting, world=world))
        return StandbyGroup(meeting, connections, backend)

    def _listen(self) -> None:
        """Make the devices, once; two orders may be under way at a time."""
        with self._device_lock:
            if not self._devices:
                before = open_sockets()
                self._devices += _devices()
                opened = new_sockets(before)
                ends = {fd: _ports_of(fd) for fd in opened}
                self._listening = {
                    fd: opened[fd] for fd, (near, far) in ends.items() if near and not far
                }

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


def _own(opened: Sockets, meeting: Meeting, *, world: int) -> Sockets:
    """Of the sockets that were opened meanwhile, those of the group: they begin or end where a rank said that it listens."""
    ports = {int(port) for rank in range(world) for port in meeting.get(f"ports/{rank}").split()}
    ends = {fd: _ports_of(fd) for fd in opened}
    of_group = {fd for fd, (near, far) in ends.items() if far and (near in ports or far in ports)}
    return {fd: inode for fd, inode in opened.items() if fd in of_group}


def _ports_of(descriptor: int) -> tuple[int, int]:
    """Own and peer's port of a socket; 0 for one that it has not, or where it is none of the network."""
    near = far = 0
    with suppress(OSError, ValueError), borrowed(descriptor) as end:
        if end.family in (socket.AF_INET, socket.AF_INET6):
            near = end.getsockname()[1]
            far = end.getpeername()[1]
    return near, far
