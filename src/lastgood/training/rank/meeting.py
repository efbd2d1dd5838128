"""The store through which the ranks of one generation find each other: a file in shared memory of the host.

torch's own file store looks every 10 ms for a key that a peer has not written yet, which is most of what forming a
group takes. This one looks at once and then ever less often, in proportion to how long it has waited already: a
peer that comes after 5 ms is found within another 0.6 ms, one that takes seconds costs some hundred looks. A wait
also ends when the generation is given up; nothing else would tell it that the peer is dead.

The file is a list of records, each a key and a value; of several with one key the last holds. It is read and
written under a lock that the kernel takes from a process that dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from lastgood.base.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from lastgood.base.clock import Clock

_PAUSE_US_MIN = 100
_PAUSE_US_MAX = 10_000
_PAUSE_SHARE = 8
"""A pause lasts this part of what was waited so far: so much later than possible a key is found, at most."""

_HEAD = struct.Struct("=IIi")
"""Bytes of the key, bytes of the value, and whether the record takes the key away."""
_MICROSECOND = timedelta(microseconds=1)


class Meeting(dist.Store):
    """A store that lasts as long as its file; each rank opens its own over the same path.

    torch keeps only the half of it that is written in C++, which can do nothing without this one: whoever forms a
    group keeps the store until the group is gone.
    """

    def __init__(
        self, path: Path, *, patience: timedelta = timedelta(0), clock: Clock | None = None
    ) -> None:
        """Meet in that file, which is made by whoever writes first; no wait gives up before `patience` is over."""
        super().__init__()
        self._patience = patience
        self._path = path
        self._clock = clock or SystemClock()
        self._values: dict[str, bytes] = {}
        self._inode, self._end = 0, 0
        """The file, and how many of its bytes `_values` holds."""
        self._lock = threading.Lock()
        """The kernel's lock of a file does not part the threads of one process."""
        self._is_given_up = False

    def give_up(self) -> None:
        """End every wait, now and later: a peer is gone. Safe from any thread."""
        self._is_given_up = True

    def set(self, key: str, value: str | bytes) -> None:
        """Write a value, in place of the one that is there."""
        with self._writing() as file:
            self._append(file, key, _bytes(value))

    def get(self, key: str) -> bytes:
        """Return the value of a key; waits for it as `wait` does."""
        self.wait([key])
        return self._values[key]

    def add(self, key: str, value: int) -> int:
        """Add to a counter that begins at 0; returns what it is now."""
        with self._writing() as file:
            total = int(self._values.get(key, b"0")) + value
            self._append(file, key, b"%d" % total)
            return total

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Write a value if the expected one is there, or if none is there and none is expected; returns what is."""
        expected, desired = _bytes(expected_value), _bytes(desired_value)
        with self._writing() as file:
            found = self._values.get(key)
            if found == expected or (found is None and not expected):
                self._append(file, key, desired)
                return desired
            return expected if found is None else found

    def delete_key(self, key: str) -> bool:
        """Take a key away; returns whether it was there."""
        with self._writing() as file:
            was_there = key in self._values
            if was_there:
                self._append(file, key, None)
            return was_there

    def num_keys(self) -> int:
        """Return how many keys there are."""
        self._look()
        return len(self._values)

    def check(self, keys: Iterable[str]) -> bool:
        """Return whether all the keys are there; does not wait."""
        self._look()
        return all(key in self._values for key in keys)

    def wait(self, keys: Iterable[str], limit: timedelta | None = None) -> None:  # type: ignore[override] - by place only
        """Return once all the keys are there. Raises what torch's stores raise when that takes longer than allowed."""
        wanted = list(keys)
        limit = max(self._limit if limit is None else limit, self._patience)
        began_us = self._clock.monotonic_us()
        while not self.check(wanted):
            self._pause(f"for {', '.join(wanted)}", began_us=began_us, limit=limit)

    def clone(self) -> Meeting:
        """Return this one: threads may share it."""
        return self

    deleteKey = delete_key  # noqa: N815 - the names by which torch calls these two from C++
    getNumKeys = num_keys  # noqa: N815

    @property
    def _limit(self) -> timedelta:
        return self.timeout  # type: ignore[attr-defined] - the stub lacks it

    # --- the file -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take in what was written since the last look."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        if (status.st_ino, status.st_size) != (self._inode, self._end):
            with self._holding(os.O_RDONLY, fcntl.LOCK_SH) as file:
                self._read(file)

    @contextmanager
    def _writing(self) -> Generator[int]:
        """The file, held alone and read to its end."""
        with self._holding(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
            self._read(file)
            yield file

    @contextmanager
    def _holding(self, flags: int, lock: int) -> Generator[int]:
        with self._lock, _as_store_error():
            file = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
            try:
                began_us = self._clock.monotonic_us()
                while not _try_lock(file, lock):
                    what = "for a peer that holds the file"
                    self._pause(what, began_us=began_us, limit=self._limit)
                yield file
            finally:
                # Not left to the close: a child that was forked meanwhile has the file open as well.
                fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)

    def _read(self, file: int) -> None:
        status = os.fstat(file)
        if status.st_ino != self._inode:
            # Somebody removed the file: another one stands in its place.
            self._inode, self._end = status.st_ino, 0
        new = os.pread(file, status.st_size - self._end, self._end)
        at = 0
        while at + _HEAD.size <= len(new):
            key_bytes, value_bytes, is_removal = _HEAD.unpack_from(new, at)
            middle = at + _HEAD.size + key_bytes
            if middle + value_bytes > len(new):
                break
            key = new[at + _HEAD.size : middle].decode()
            at = middle + value_bytes
            if is_removal:
                self._values.pop(key, None)
            else:
                self._values[key] = new[middle:at]
        self._end += at

    def _append(self, file: int, key: str, value: bytes | None) -> None:
        name = key.encode()
        record = _HEAD.pack(len(name), len(value or b""), value is None) + name + (value or b"")
        if os.fstat(file).st_size > self._end:
            # What a writer left that was killed. Else nothing is cut: the room behind the end may be reserved.
            os.ftruncate(file, self._end)
        if os.pwrite(file, record, self._end) < len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._read(file)

    def _pause(self, what: str, *, began_us: int, limit: timedelta) -> None:
        """Sleep before the next look; raises when there shall be none."""
        waited_us = self._clock.monotonic_us() - began_us
        left_us = limit // _MICROSECOND - waited_us
        if self._is_given_up:
            raise dist.DistStoreError(f"waited {what}: the generation was given up meanwhile")
        if left_us <= 0:
            raise dist.DistStoreError(f"wait timeout after {waited_us // 1000} ms {what}")
        pause_us = min(max(waited_us // _PAUSE_SHARE, _PAUSE_US_MIN), _PAUSE_US_MAX)
        self._clock.sleep_us(min(pause_us, left_us))


def _try_lock(file: int, lock: int) -> bool:
    try:
        fcntl.flock(file, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _as_store_error() -> Generator[None]:
    """A file that cannot be written is an error of the store, as it is with the stores that torch brings."""
    try:
        yield
    except OSError as error:
        raise dist.DistStoreError(f"the store of the generation: {error}") from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
