"""Fatal errors of a rank, such as a segmentation fault: Python writes its stacks, and each rank has a file for them.

On one terminal the stacks of several ranks come line by line between each other. A rank that has a log of its own, or
whose Python was told by its environment to write them, keeps them where they are.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from lastgood.base.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.training.supervising.supervisor import Supervisor

_ROOM_BYTES = 64 * 1024
"""Taken when the rank starts: a bus error in full shared memory is one that there would be no room to tell."""
_FALLOC_FL_KEEP_SIZE = 1
TEXT_CHARS_MAX = 20_000
_SUFFIX = ".fatal.txt"
_LOOK_US = 200_000
_ERROR = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_CURRENT = re.compile(r"^Current thread .*\n((?:  .*\n)*)", re.MULTILINE)
_LAUNCHER = re.compile(r'^  File "(<frozen runpy>|.*lastgood/training/rank/worker\.py)"')
"""Frames of whoever started the script: the same in every process."""


class Fatal(NamedTuple):
    """What one process wrote."""

    worker: str
    error: str
    """Such as `Segmentation fault`."""
    trace: str
    """Frames of the thread that it came in; empty where that is none of Python's."""
    text: str
    """The stacks of all threads."""


def keep_fatal_errors(folder: Path, worker: str) -> None:
    """Have the fatal errors of this process, and of those that it forks, written to its file in the folder."""
    if not faulthandler.is_enabled():
        # Without room in the file the terminal has it: a stack in a place where it does not belong is better than none.
        faulthandler.enable(_reserved(folder / f"{worker}{_SUFFIX}") or sys.stderr)


def _reserved(path: Path) -> BinaryIO | None:
    """An empty file that there is room for; None without. Python's own call would make it longer, and zeros are no text."""
    try:
        out = path.open("wb")
    except OSError:
        return None
    room = ctypes.c_int64(0), ctypes.c_int64(_ROOM_BYTES)
    if ctypes.CDLL(None).fallocate(out.fileno(), _FALLOC_FL_KEEP_SIZE, *room):
        out.close()
        return None
    return out


class FatalErrors:
    """Reads what was written, once it is whole: a dump is many short writes."""

    def __init__(self, folder: Path) -> None:
        """Nothing was written yet."""
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        """Rank that each worker served last: by the time that its stacks are read another one may have it."""
        self._looked_us = 0
        self._clock = SystemClock()

    def look(self, *, is_last: bool = False) -> list[Fatal]:
        """What is new; looks five times a second at most, unless it is for the last time."""
        now_us = self._clock.monotonic_us()
        if not is_last and now_us - self._looked_us < _LOOK_US:
            return []
        self._looked_us = now_us
        found = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name.endswith(_SUFFIX):
                    found += self._read(entry, is_last=is_last)
        return found

    def _read(self, entry: os.DirEntry[str], *, is_last: bool) -> list[Fatal]:
        size, before = entry.stat().st_size, self._sizes.get(entry.name)
        self._sizes[entry.name] = size
        taken = self._taken.get(entry.name, 0)
        if size == taken or (size != before and not is_last):
            return []
        self._taken[entry.name] = size
        with open(entry.path, encoding="utf-8", errors="replace") as written:
            written.seek(taken)
            return [_parsed(entry.name.removesuffix(_SUFFIX), written.read(size - taken))]


def hear_fatal_errors(supervisor: Supervisor, *, is_last: bool = False) -> None:
    """Put them into the ledger, since the files go with the run; the terminal is told of each."""
    errors = supervisor.fatal_errors
    for found in errors.look(is_last=is_last):
        ranks = {"ranks": (errors.ranks[found.worker],)} if found.worker in errors.ranks else {}
        body = {"what": "fatal error", **found._asdict(), "text": found.text[:TEXT_CHARS_MAX]}
        supervisor.recorder.record("observation", body=body, **ranks)
    errors.ranks.update((name, rank) for rank, name in enumerate(supervisor.serving))


def _parsed(worker: str, text: str) -> Fatal:
    error, current = _ERROR.search(text), _CURRENT.search(text)
    frames = current[1].splitlines() if current else []
    own = [frame for frame in frames if not _LAUNCHER.match(frame)]
    return Fatal(worker, error[1] if error else "a fatal error", "\n".join(own), text)
