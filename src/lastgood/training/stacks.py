"""Stack dumps of a suspect, taken before it is killed, and never for longer than a second."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.training import control

if TYPE_CHECKING:
    from lastgood.training.processes import WorkerProcess

DUMP_S_MAX = 1.0


class StackDump:
    """One dump in progress: py-spy from outside, and the rank's own control thread besides.

    py-spy reads a stopped process; the rank's own dump works where ptrace is forbidden. Both write files.
    """

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        """Start dumping."""
        self.worker = worker.name
        self._outside = folder / f"{worker.name}.txt"
        self._inside = folder / f"{worker.name}.self.txt"
        worker.channel.send(control.DumpStack(path=str(self._inside)))
        self._process: subprocess.Popen[bytes] | None = None
        program = _find_py_spy()
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
        return self._process is None or self._process.poll() is not None

    def finish(self) -> str:
        """Return where the dump lies; empty when there is none."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for path in (self._outside, self._inside):
            if path.exists() and path.stat().st_size > 0:
                return str(path)
        return ""


def _find_py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
