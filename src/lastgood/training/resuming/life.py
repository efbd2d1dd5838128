"""The page by which a supervisor can be survived: how far it was, when it last turned, which steps it had not yet recorded.

One 4 KiB file beside the slots, written by the supervisor alone, with plain stores and no system call. Whoever starts
the run again after a hard stop reads from it what no other file tells exactly: the time of the last turn (so the gap is
measured, not guessed), the newest state that had been assessed as ok, and the accepted steps of the chunk that was still
open, with their times. Outside readers see in it whether a supervisor that lives also turns.
"""

from __future__ import annotations

import math
import mmap
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

PAGE_BYTES = 4096
TAIL_STEPS_MAX = 128
_MAGIC = 0x4C47_4C49_4645_3031
_W_MAGIC, _W_GENERATION, _W_ASSESSED, _W_TURN, _W_TURN_WALL, _W_TOLERANCE, _W_PID = range(7)
_W_FIRST, _W_BEGAN, _W_COUNT = range(8, 11)
_ENDED = 16
_LOSS = _ENDED + TAIL_STEPS_MAX


class Tail(NamedTuple):
    """The open chunk of accepted steps: times are wall-clock microseconds."""

    first: int
    began_us: int
    ended_us: tuple[int, ...]
    losses: tuple[float | None, ...]


class LastSign(NamedTuple):
    """What the page of a supervisor says."""

    generation: int
    assessed_step: int
    """Newest step that had been assessed as ok; -1 before the first state."""
    turn_us: int
    """Its last turn, monotonic microseconds."""
    turn_wall_us: int
    tolerance: float | None
    """Largest difference that a replay of this run may have; None = none at all."""
    pid: int
    tail: Tail | None


class LifePage:
    """The page as its owner writes it."""

    def __init__(self, path: Path) -> None:
        """Map the page; one that is there keeps what it says."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            is_new = os.fstat(descriptor).st_size < PAGE_BYTES
            # Reserved, not only sized: a page that cannot be had later would end the process by SIGBUS.
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("q")
        self._reals = memoryview(self._map).cast("d")
        if is_new:
            self._words[_W_ASSESSED] = -1
            self._reals[_W_TOLERANCE] = math.nan
            self._words[_W_MAGIC] = _MAGIC
        self._words[_W_PID] = os.getpid()

    def turn(self, *, now_us: int, wall_us: int) -> int:
        """Say that the supervisor turns; returns the monotonic time of the turn before (0 = this is the first)."""
        before_us = self._words[_W_TURN]
        self._words[_W_TURN] = now_us
        self._words[_W_TURN_WALL] = wall_us
        return before_us

    def begin_generation(self, generation: int, *, step: int) -> None:
        """The run goes on after this state in this generation."""
        self._words[_W_GENERATION] = generation
        self._words[_W_ASSESSED] = step

    def assess(self, step: int) -> None:
        """This step was assessed as ok."""
        self._words[_W_ASSESSED] = step

    def tolerate(self, tolerance: float | None) -> None:
        """Replays of this run may differ by so much."""
        self._reals[_W_TOLERANCE] = math.nan if tolerance is None else tolerance

    def begin_tail(self, *, first: int, began_us: int) -> None:
        """A new chunk of steps is open; the one before has been handed to the ledger."""
        self._words[_W_COUNT] = 0
        self._words[_W_FIRST], self._words[_W_BEGAN] = first, began_us

    def add_to_tail(self, *, ended_us: int, loss: float | None) -> None:
        """One more step of the open chunk; counted last, so that a reader never takes half of it."""
        count = self._words[_W_COUNT]
        if count >= TAIL_STEPS_MAX:
            return
        self._words[_ENDED + count] = ended_us
        self._reals[_LOSS + count] = math.nan if loss is None else loss
        self._words[_W_COUNT] = count + 1

    def close(self) -> None:
        """Unmap the page."""
        self._words.release()
        self._reals.release()
        self._map.close()


def read_life(path: Path) -> LastSign | None:
    """Return what a page says; None when it is missing, torn or of another make."""
    try:
        page = path.read_bytes()
    except OSError:
        return None
    if len(page) < PAGE_BYTES:
        return None
    words, reals = memoryview(page).cast("q"), memoryview(page).cast("d")
    if words[_W_MAGIC] != _MAGIC:
        return None
    count = min(max(words[_W_COUNT], 0), TAIL_STEPS_MAX)
    losses = [float(value) for value in reals[_LOSS : _LOSS + count]]
    tail = Tail(
        words[_W_FIRST],
        words[_W_BEGAN],
        tuple(words[_ENDED : _ENDED + count]),
        tuple(None if math.isnan(loss) else loss for loss in losses),
    )
    tolerance = float(reals[_W_TOLERANCE])
    return LastSign(
        generation=words[_W_GENERATION],
        assessed_step=words[_W_ASSESSED],
        turn_us=words[_W_TURN],
        turn_wall_us=words[_W_TURN_WALL],
        tolerance=None if math.isnan(tolerance) else tolerance,
        pid=words[_W_PID],
        tail=tail if count else None,
    )
