"""Stack dumps of every process of a job at once, bounded in time and number. Nothing is stopped or killed for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import psutil

from lastgood.training.watching.stack_groups import ProcessStack

if TYPE_CHECKING:
    from collections.abc import Sequence

DUMP_US_MAX = 5_000_000
"""Longest wait for all dumps together; what is not there by then is missing, and said."""
CHILDREN_MAX = 16
"""Child processes of one rank that are looked at."""
AT_ONCE_MAX = 4
"""Dumpers that run at the same time: a host with 8 ranks and 64 loaders must not be buried under them."""


class Dumpable(Protocol):
    """A rank as far as a dump needs it."""

    @property
    def rank(self) -> int:
        """Its rank."""
        ...

    @property
    def name(self) -> str:
        """The name of its files."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        ...


class _Target(NamedTuple):
    rank: int
    pid: int
    is_child: bool
    outside: Path
    inside: Path | None


class JobDump:
    """One dump of all ranks and their children, in progress."""

    def __init__(self, ranks: Sequence[Dumpable], folder: Path, *, now_us: int) -> None:
        """Start dumping; call `advance` until it says that it is done."""
        self._until_us = now_us + DUMP_US_MAX
        self._program = find_py_spy()
        self._targets: list[_Target] = []
        for rank in ranks:
            if rank.exit_code is not None:
                continue
            inside = folder / f"{rank.name}.self.txt"
            inside.unlink(missing_ok=True)
            (folder / f"{rank.name}.ask").touch()
            self._targets.append(
                _Target(rank.rank, rank.pid, is_child=False, outside=folder / f"{rank.name}.txt", inside=inside)
            )  # fmt: skip
            self._targets += [
                _Target(rank.rank, pid, is_child=True, outside=folder / f"{rank.name}.{pid}.txt", inside=None)
                for pid in _children(rank.pid)
            ]  # fmt: skip
        self._waiting = list(self._targets) if self._program else []
        self._running: list[subprocess.Popen[bytes]] = []

    def advance(self, now_us: int) -> bool:
        """Start what can be started; True when nothing more will come."""
        self._running = [process for process in self._running if process.poll() is None]
        while self._waiting and len(self._running) < AT_ONCE_MAX:
            self._running.append(self._start(self._waiting.pop(0)))
        is_late = now_us > self._until_us
        if is_late:
            self.close()
        has_all = (
            not self._running
            and not self._waiting
            and not any(self._needs_inside(target) for target in self._targets)
        )
        return has_all or is_late

    def close(self) -> None:
        """End the dumpers that still run."""
        for process in self._running:
            process.kill()
            process.wait()
        self._running, self._waiting = [], []

    def stacks(self) -> list[ProcessStack]:
        """What was dumped."""
        found = []
        for target in self._targets:
            text = _text(target.outside) or (_text(target.inside) if target.inside else "")
            if text:
                found.append(ProcessStack(target.rank, target.pid, target.is_child, text))
        return found

    @property
    def asked_count(self) -> int:
        """How many processes were to be dumped."""
        return len(self._targets)

    def _needs_inside(self, target: _Target) -> bool:
        """The rank's own dump is waited for only where nothing came from outside."""
        return (
            target.inside is not None
            and not _text(target.outside)
            and not target.inside.exists()
            and psutil.pid_exists(target.pid)
        )

    def _start(self, target: _Target) -> subprocess.Popen[bytes]:
        assert self._program is not None
        with target.outside.open("wb") as out:
            return subprocess.Popen(
                [self._program, "dump", "--nonblocking", "--pid", str(target.pid)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
            )


def _children(pid: int) -> list[int]:
    """Children of a rank that run the same interpreter, such as its loader workers (which change their name)."""
    try:
        process = psutil.Process(pid)
        program = process.exe()
        children = process.children(recursive=True)
    except psutil.Error:
        return []
    found = []
    for child in children[: 4 * CHILDREN_MAX]:
        with suppress(psutil.Error):
            if child.exe() == program:
                found.append(child.pid)
    return found[:CHILDREN_MAX]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def find_py_spy() -> str | None:
    """The stack dumper that reads a process from outside, or None."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
