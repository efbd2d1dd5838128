"""The end of a rank behind its script: its files are written out, and a signal while Python goes is no failure of it.

A file of the rank holds the code from the moment in which the last exit handler of the script has run. Handlers that were
registered before the script began, such as torch's, run behind that moment: to end there is to end in the teardown.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def note_teardown(path: Path, code: int) -> None:
    """Say that all of the script's own code has run, its exit handlers too; `path` is a file of the rank's own."""
    with suppress(OSError):
        _teardown_mark(path).write_text(str(code), encoding="ascii")


class Leaving:
    """Notes when the process begins to take itself apart. Make it before the script runs: it comes behind its handlers."""

    def __init__(self, path: Path) -> None:
        self.code: int | None = None
        """With which code the script ended; None until it has."""
        self._path, self._process = path, os.getpid()
        atexit.register(self._note)

    def _note(self) -> None:
        if os.getpid() != self._process:  # a fork of the script has it too
            return
        flush_files()  # what its threads and exit handlers wrote
        if self.code is not None:
            note_teardown(self._path, self.code)


def flush_files() -> None:
    """Write out what the script left in files that it never closed, as the end of a plain script does.

    Python empties `__main__` name by name, so each such file is closed in order. The names of a script that something
    else runs go as garbage, all at once, and a file may lose its lower half before its upper half is written.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), io.IOBase):
            with suppress(Exception):
                thing.flush()


def code_of_end(code: int | None, path: Path) -> int | None:
    """The exit code of a process by which its job is judged; `code` is what the kernel says, negative for a signal.

    Torch's threads can abort a process while Python takes itself apart, such as gloo's, when one is late to drop its
    last tensor. The script has done all it had to do by then: it counts with the code that it was leaving with.
    """
    if code is None or code >= 0:
        return code
    try:
        return int(_teardown_mark(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return code


def torn_down(rank: int, name: str, *, ended: int, counts_as: int | None) -> dict[str, object]:
    """The body of the remark on a rank that a signal ended there; `ended` is negative, as the kernel says it."""
    text = (
        f"behind the end of its script rank {rank} ({name}) was ended by signal {-ended}, while Python took itself "
        f"apart: no incident, it counts with the exit code {counts_as} that it was leaving with"
    )
    return {"text": text, "signal": -ended, "exit_code": counts_as}


def _teardown_mark(path: Path) -> Path:
    return path.with_suffix(".teardown")
