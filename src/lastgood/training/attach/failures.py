"""How often the same error of user code has ended a run: kept beside the spool, so that it survives the job.

All hosts are counted together where the spool lies on shared storage. One attempt counts once, on however many ranks
the error appeared.
"""

from __future__ import annotations

import json
import os
import traceback
from contextlib import suppress
from pathlib import Path

FILE = "failures.txt"
LINES_MAX = 10_000


def signature_of(error: BaseException) -> str:
    """Type and place of an error: its message may hold a number that differs each time."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    return f"{type(error).__name__}@{place}"


class Failures:
    """The errors that ended attempts of one run."""

    def __init__(self, host_folder: Path, *, run: str) -> None:
        self._folder, self._run = host_folder, run

    def add(self, signature: str, *, attempt: int) -> int:
        """Note one failure; returns in how many attempts of the run it has been seen, this one included."""
        line = json.dumps({"run": self._run, "attempt": attempt, "signature": signature}) + "\n"
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        return len(self._attempts(signature) | {attempt})

    def _attempts(self, signature: str) -> set[int]:
        found = set()
        for path in self._folder.parent.glob(f"*/{FILE}"):
            with suppress(OSError):
                for line in path.read_text(errors="replace").splitlines()[-LINES_MAX:]:
                    with suppress(ValueError, KeyError, TypeError):
                        note = json.loads(line)
                        if (note["run"], note["signature"]) == (self._run, signature):
                            found.add(int(note["attempt"]))
        return found
