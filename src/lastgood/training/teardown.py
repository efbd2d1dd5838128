"""The end of a rank behind its script: its files are written out, and a signal while Python goes is no failure of it.

A file of the rank holds the code from the moment in which the last exit handler of the script has run. Handlers that were
registered before the script began, such as torch's, run behind that moment: to end there is to end in the teardown.
One of them waits for processes that the script started; which they are stands behind the code.
"""

from __future__ import annotations

import atexit
import enum
import gc
import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.signals.reading import ProcessState
from lastgood.training.watching.kernel import sample_process

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import FrameType

_FILE: type = io.IOBase.__mro__[1]
"""What every file of Python is made of. To ask the abstract class would run its hooks for each of a million objects."""


class LastPart(enum.Enum):
    """What a process may be doing behind the last line of its script."""

    TEARDOWN = enum.auto()
    """Nothing of the script runs any more."""
    OWN_WORK = enum.auto()
    """Threads or exit handlers of the script, or processes that it started and Python waits for, may still run."""


def note_teardown(path: Path, code: int, *, waits_for: Iterable[int] = ()) -> None:
    """Say that all of the script's own code has run, its exit handlers too; `path` is a file of the rank's own."""
    with suppress(OSError):
        _teardown_mark(path).write_text(" ".join(map(str, (code, *waits_for))), encoding="ascii")


def last_part_of(path: Path) -> LastPart | None:
    """What the process whose file this is may be doing; None before the end of its script."""
    mark = _read_mark(path)
    if mark:
        is_waiting = any(_is_at_work(pid) for pid in mark[1:])
        return LastPart.OWN_WORK if is_waiting else LastPart.TEARDOWN
    return LastPart.OWN_WORK if _end_mark(path).exists() else None


class Leaving:
    """Notes when the process begins to take itself apart. Make it before the script runs: it comes behind its handlers."""

    def __init__(self, path: Path) -> None:
        self._code: int | None = None
        self._path, self._process = path, os.getpid()
        atexit.register(self._note)

    def script_ended(self, code: int) -> None:
        """Say that the last line of the script has run, and with which code it leaves."""
        if os.getpid() != self._process:  # a fork of the script has it too
            return
        _hold_interrupts()
        self._code = code
        with suppress(OSError):
            _end_mark(self._path).touch()

    def _note(self) -> None:
        if os.getpid() != self._process:
            return
        flush_files()  # what its threads and exit handlers wrote
        if self._code is not None:
            note_teardown(self._path, self._code, waits_for=_waited_for())


def flush_files() -> None:
    """Write out what the script left in files that it never closed, as the end of a plain script does.

    Python empties `__main__` name by name, so each such file is closed in order. The names of a script that something
    else runs go as garbage, all at once, and a file may lose its lower half before its upper half is written.
    """
    for thing in gc.get_objects():
        if issubclass(type(thing), _FILE):
            with suppress(Exception):
                thing.flush()


def _hold_interrupts() -> None:
    """From now on a Ctrl-C does not break off what is done here behind the script: that ends soon, by itself.

    What runs of the script is interrupted as ever, such as an exit handler, and a handler of its own stays.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    outermost = frame
    while outermost is not None and outermost.f_back is not None:
        outermost = outermost.f_back
    # Threads are waited for, and exit handlers called, where nothing stands above them.
    if outermost is not None and outermost.f_globals.get("__name__") not in {"runpy", __name__}:
        signal.default_int_handler(number, frame)


def code_of_end(code: int | None, path: Path) -> int | None:
    """The exit code of a process by which its job is judged; `code` is what the kernel says, negative for a signal.

    Torch's threads can abort a process while Python takes itself apart, such as gloo's, when one is late to drop its
    last tensor. The script has done all it had to do by then: it counts with the code that it was leaving with.
    """
    if code is None or code >= 0:
        return code
    mark = _read_mark(path)
    return mark[0] if mark else code


def code_of_leaver(path: Path) -> int | None:
    """The code with which a process is leaving; None before all of its script's own code has run."""
    return next(iter(_read_mark(path)), None)


def torn_down(
    rank: int, name: str, *, ended: int, counts_as: int | None, is_counted: bool = True
) -> dict[str, object]:
    """The body of the remark on a rank that a signal ended there; `ended` is negative, as the kernel says it.

    `is_counted` is False where the job's code is made of what the kernel says all the same.
    """
    leaving = f"the exit code {counts_as} that it was leaving with"
    judged = (
        f"it counts with {leaving}"
        if is_counted
        else f"but the job's code is what a launcher sees, {128 - ended}, and not {leaving}"
    )
    text = (
        f"behind the end of its script rank {rank} ({name}) was ended by signal {-ended}, while Python took itself "
        f"apart: no incident, {judged}"
    )
    return {"text": text, "signal": -ended, "exit_code": counts_as}


def _waited_for() -> list[int]:
    """The processes that multiprocessing waits for at the end; a daemon, such as a loader worker, is ended by it."""
    module = sys.modules.get("multiprocessing")
    with suppress(Exception):
        return [c.pid for c in module.active_children() if not c.daemon]  # type: ignore[union-attr]
    return []


def _is_at_work(pid: int) -> bool:
    """Whether a process runs. One that has ended stays there where its parent does not look after it any more."""
    return sample_process(pid).state is not ProcessState.GONE


def _read_mark(path: Path) -> list[int]:
    """The code and the processes that are waited for; empty without a whole mark."""
    try:
        return [int(part) for part in _teardown_mark(path).read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _end_mark(path: Path) -> Path:
    return path.with_suffix(".ended")


def _teardown_mark(path: Path) -> Path:
    return path.with_suffix(".teardown")
