"""The connections of one process group: which sockets of this process are its own, and how they are cut.

gloo does not tell which descriptors it opened, so they are noted around the creation of the group.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import contextmanager, suppress
from itertools import starmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_TCP_BYTES_AT = 120
"""Where `struct tcp_info` has the bytes that the peer has acknowledged, and behind them those received."""
_TCP_ESTABLISHED = b"\x01"
"""How it begins while neither side has ended the connection."""

Sockets = dict[int, int]
"""Descriptor -> inode, so that a number that the process reused is never taken for the socket that had it."""


class Connections:
    """Sockets that are cut together, from any thread."""

    def __init__(self) -> None:
        self._sockets: Sockets = {}
        self._lock = threading.Lock()
        """The control thread cuts while the main thread joins."""
        self._is_cut = False
        self._before: Sockets | None = None
        """Sockets that were open before what is being opened; None while nothing is."""

    @property
    def inodes(self) -> frozenset[int]:
        """Those of all noted sockets, also of one that only listens."""
        with self._lock:
            return frozenset(self._sockets.values())

    @contextmanager
    def noting(self) -> Generator[None]:
        """Take in the sockets that are opened meanwhile.

        Nobody else opens any: a cut in the middle takes whatever is there so far, and the rest when it is noted.
        """
        with self._lock:
            before = self._before = open_sockets()
        try:
            yield
        finally:
            with self._lock:
                self._sockets |= new_sockets(before)
                self._before = None
                if self._is_cut:
                    self._cut_noted()

    def take(self, sockets: Sockets) -> None:
        """Take in sockets that are known to belong here."""
        with self._lock:
            self._sockets |= sockets

    def traffic(self) -> dict[int, bytes] | None:
        """What was sent and received over each connection that no side has ended, by descriptor.

        None where nothing can be said: they are being opened, or were cut.
        """
        with self._lock:
            if self._is_cut or self._before is not None:
                return None
            infos = {fd: _tcp_info(fd, inode) for fd, inode in self._sockets.items()}
            return {
                fd: info[_TCP_BYTES_AT:]
                for fd, info in infos.items()
                if info[:1] == _TCP_ESTABLISHED
            }

    def are_whole(self) -> bool:
        """True while no end of any of them was closed or shut down."""
        with self._lock:
            infos = starmap(_tcp_info, self._sockets.items())
            return not self._is_cut and all(info[:1] == _TCP_ESTABLISHED for info in infos)

    def cut(self) -> int:
        """Shut the connections down; returns how many were connected."""
        with self._lock:
            self._is_cut = True
            if self._before is not None:
                self._sockets |= new_sockets(self._before)
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


def open_sockets() -> Sockets:
    """Return every open socket of this process."""
    found: Sockets = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[int(name)] = status.st_ino
    return found


def new_sockets(before: Sockets) -> Sockets:
    """Return the open sockets that were not there before."""
    return {fd: inode for fd, inode in open_sockets().items() if before.get(fd) != inode}


def _tcp_info(descriptor: int, inode: int) -> bytes:
    """What the kernel tells of a connection, up to its traffic; nothing where it is closed, or none of TCP."""
    with suppress(OSError):
        if os.fstat(descriptor).st_ino == inode:
            with borrowed(descriptor) as end:
                return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_BYTES_AT + 16)
    return b""


@contextmanager
def borrowed(descriptor: int) -> Generator[socket.socket]:
    """Ask a socket that is somebody else's: without a copy, which another thread would take for a new connection."""
    end = socket.socket(fileno=descriptor)
    try:
        yield end
    finally:
        end.detach()
