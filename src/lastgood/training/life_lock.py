"""A lock that the main thread of a rank holds until it dies: its end is heard before the kernel has taken it apart.

A process descriptor becomes readable once the memory of a dead process is given back, tens of milliseconds after its
last instruction. A robust mutex in shared memory comes free before that. One thread per worker waits for the lock.

The lock itself is a hint and no more: the others get ready. It is followed by a look at the threads: once none of them
has memory left the process will never run its own code again, and it counts as ended with the code that the kernel has
noted for it. The lock lies in the status page, behind the words that `slot` keeps there. See docs/design/006.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.training.slot import LIFE_LOCK_AT, PAGE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

_LOCK_AT = LIFE_LOCK_AT + 64
_LOCK_BYTES = 256
"""A mutex takes 40 to 64 bytes, whichever C library and machine it is."""
_PROCESS_SHARED, _ROBUST = 1, 1
_NONE, _MADE, _HELD = range(3)
_VSIZE, _EXIT_STATUS = 20, 49
"""Fields of /proc/PID/stat, counted from the state behind the name."""


class LifeLock:
    """The lock of one worker, as the supervisor has it: made before the worker starts, waited for once it is held."""

    def __init__(self, status: Path) -> None:
        """Make the lock in an existing status page; without a robust mutex there is none."""
        self._page = _map(status)
        self._page[LIFE_LOCK_AT] = _MADE if _init(self._page) else _NONE
        self._notice: int | None = None
        self._is_watched = False

    def watch(self) -> None:
        """Begin to wait, if the worker says that it holds the lock: otherwise the wait would take it away from it."""
        if self._page[LIFE_LOCK_AT] != _HELD or self._is_watched:
            return
        self._is_watched = True
        with suppress(OSError):  # no more descriptors: no early notice
            self._notice, ours = os.pipe()
            waiter = threading.Thread(
                target=self._wait, args=(ours,), name="life-lock", daemon=True
            )
            try:
                waiter.start()
            except RuntimeError:  # no more threads for this user
                os.close(ours)
                self.close()

    @property
    def notices(self) -> tuple[int, ...]:
        """The descriptor that becomes readable when the lock comes free, until it is closed."""
        return () if self._notice is None else (self._notice,)

    def close(self) -> None:
        """Release the descriptor, when the notice was heard or the worker is gone; the thread ends with the worker."""
        if self._notice is not None:
            os.close(self._notice)
            self._notice = None

    def _wait(self, ours: int) -> None:
        libc, lock = ctypes.CDLL(None), _lock(self._page)
        if libc.pthread_mutex_lock(lock) in (0, errno.EOWNERDEAD):
            # A thread that ends must not hold it: its page is unmapped with it.
            libc.pthread_mutex_unlock(lock)
        # Only this thread knows that descriptor, so no other file can have its number.
        os.close(ours)


def hold_life_lock(status: Path) -> bool:
    """Take the lock of this worker for as long as the calling thread lives; False where there is none."""
    page = _map(status)
    if page[LIFE_LOCK_AT] != _MADE or ctypes.CDLL(None).pthread_mutex_trylock(_lock(page)):
        return False
    # For good: the kernel looks at the lock when the thread dies, also behind the interpreter's own end.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(page))
    page[LIFE_LOCK_AT] = _HELD
    return True


def code_of_ending(pid: int) -> int | None:
    """Return the exit code of a process that will never run its own code again, while the kernel takes it apart.

    None while a thread of it has memory, and where it ends with 0: that also stands for "not allowed to know".
    """
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        if any(_stat(f"/proc/{pid}/task/{thread}")[_VSIZE] != "0" for thread in threads):
            return None
        status = int(_stat(f"/proc/{pid}")[_EXIT_STATUS])
        # None of them has started another one meanwhile.
        if set(os.listdir(f"/proc/{pid}/task")) <= set(threads):
            return os.waitstatus_to_exitcode(status) or None
    return None


def _stat(folder: str) -> list[str]:
    with open(f"{folder}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(") ")[2].split()


def _map(status: Path) -> mmap.mmap:
    descriptor = os.open(status, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, PAGE_BYTES)
    finally:
        os.close(descriptor)


def _lock(page: mmap.mmap) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * _LOCK_BYTES).from_buffer(page, _LOCK_AT)


def _init(page: mmap.mmap) -> bool:
    page[_LOCK_AT : _LOCK_AT + _LOCK_BYTES] = bytes(_LOCK_BYTES)
    attributes = ctypes.create_string_buffer(_LOCK_BYTES)
    with suppress(AttributeError):  # a C library without robust locks
        libc = ctypes.CDLL(None)
        return not (
            libc.pthread_mutexattr_init(attributes)
            or libc.pthread_mutexattr_setpshared(attributes, _PROCESS_SHARED)
            or libc.pthread_mutexattr_setrobust(attributes, _ROBUST)
            or libc.pthread_mutex_init(_lock(page), attributes)
        )
    return False
