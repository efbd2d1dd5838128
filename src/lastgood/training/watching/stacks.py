"""Stack dumps of a suspect, taken before it is killed, and never for longer than a second."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.training import control

if TYPE_CHECKING:
    from lastgood.training.processes import WorkerProcess

DUMP_S_MAX = 1.0
STACK_SIGNAL = signal.SIGRTMIN + 7
"""Makes a rank write its stacks by itself, in a C handler that needs no interpreter lock."""


def path_by_signal(folder: Path, worker: str) -> Path:
    """Return where a rank writes its stacks when it gets `STACK_SIGNAL`."""
    return folder / f"{worker}.signal.txt"


class StackDump:
    """One dump in progress, by up to three ways that fail for different reasons; all write files.

    py-spy reads from outside, also a stopped process, where tracing is allowed. The rank's control thread
    answers while the interpreter lock is free. The signal handler answers also when a thread never gives the
    lock back; it is asked only when py-spy had nothing, since a stopped rank cannot answer and a healthy one
    should not be interrupted.
    """

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        """Start dumping."""
        self.worker = worker.name
        self._outside = folder / f"{worker.name}.txt"
        self._inside = folder / f"{worker.name}.self.txt"
        self._by_signal = path_by_signal(folder, worker.name)
        self._pidfd = worker.pidfd
        self._is_signalled = False
        worker.channel.send(control.DumpStack(path=str(self._inside)))
        self._process: subprocess.Popen[bytes] | None = None
        program = find_py_spy()
        if program is not None:
            with self._outside.open("wb") as out:
                self._process = subprocess.Popen(
                    [program, "dump", "--nonblocking", "--pid", str(worker.pid)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.DEVNULL,
                )

    def is_done(self) -> bool:
        """True when nothing more will come."""
        if self._process is not None and self._process.poll() is None:
            return False
        if _has_text(self._outside) or _has_text(self._by_signal):
            return True
        if not self._is_signalled:
            self._is_signalled = True
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, STACK_SIGNAL)
                return False
            return True
        return False  # the caller's deadline ends the wait

    def finish(self) -> str:
        """Return where the dump lies; empty when there is none."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        found = (p for p in (self._outside, self._by_signal, self._inside) if _has_text(p))
        return str(next(found, ""))


def _has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def find_py_spy() -> str | None:
    """Return the program that reads stacks from outside, or None."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
