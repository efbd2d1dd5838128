"""Whether a rank holds what whoever takes its place cannot have before the kernel has closed it.

That is a device, a port that the script listens on, or a lock of a file. A dead rank keeps its files until its memory is
given back, which takes the longer the more it had.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_PLAIN_MAJORS = frozenset({1, 4, 5, *range(136, 144)})
"""Character devices that everybody may open at once: memory (null, zero, random) and terminals."""


def holds_exclusive(*, but: Collection[int] = ()) -> bool:
    """True when this process has such a thing open; `but` are the inodes of sockets that no successor asks for."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISCHR(status.st_mode):
                is_exclusive = os.major(status.st_rdev) not in _PLAIN_MAJORS
            elif stat.S_ISSOCK(status.st_mode):
                is_exclusive = status.st_ino not in but and _is_listening(int(name))
            else:
                is_exclusive = stat.S_ISREG(status.st_mode) and _is_locked(name)
            if is_exclusive:
                return True
    return False


def _is_listening(descriptor: int) -> bool:
    copy = os.dup(descriptor)
    try:
        made = socket.socket(fileno=copy)
    except OSError:  # closed meanwhile, and its number given to something else
        os.close(copy)
        raise
    with made:
        return bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_locked(name: str) -> bool:
    """By `flock` or `fcntl`. `/proc/locks` says the same, after a pause of the whole host's locks."""
    with open(f"/proc/self/fdinfo/{name}", "rb") as file:
        return b"lock:" in file.read()
