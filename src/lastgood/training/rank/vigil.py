"""A worker looks whether its supervisor still turns: with one that is stopped for good all ranks would wait for ever.

A supervisor that is dead is no case of this: the kernel ends its workers with it. What counts is how often in a row a
look found no turn, not how long ago the last turn was: where the whole job was frozen, the workers did not look either.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.base.units import format_duration
from lastgood.training.resuming.life import read_life

if TYPE_CHECKING:
    from pathlib import Path

LOOK_US = 10_000_000
SAY_US = 60_000_000
"""A supervisor turns every 10 ms; what keeps it for so long is worth a word in the log."""
END_US = 1_800_000_000
"""Nobody goes on with a job that has stood for so long, and only its end frees the machine."""


class Vigil:
    """Remembers the newest turn that was seen, and for how many looks there was no other."""

    def __init__(self, page: Path) -> None:
        """`page` is the supervisor's life page."""
        self._page = page
        self._turn_us = 0
        self._silent_us = 0
        self._has_said = False

    def look(self) -> None:
        """Look once; the caller sleeps `LOOK_US` between two looks."""
        sign = read_life(self._page)
        if sign is None or sign.turn_us != self._turn_us:
            self._turn_us = 0 if sign is None else sign.turn_us
            self._silent_us = 0
            return
        self._silent_us += LOOK_US
        if self._silent_us >= END_US:
            self._end(sign.pid)
        elif self._silent_us >= SAY_US and not self._has_said:
            self._has_said = True
            self._say(sign.pid)

    def _say(self, pid: int) -> None:
        with suppress(OSError):
            sys.stderr.write(
                f"lastgood: the supervisor (process {pid}) has not turned for {format_duration(SAY_US)}: it is stopped "
                f"or starved, and this worker waits for it; type: kill -CONT {pid}. After {format_duration(END_US)} "
                "the run is ended; started again under its --run-id it goes on from shared memory\n"
            )
            sys.stderr.flush()

    def _end(self, pid: int) -> None:
        """Kill the supervisor, which ends its workers too: the snapshots stay, and whoever waits for the job hears of it."""
        if pid == os.getppid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
