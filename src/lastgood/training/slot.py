"""The status page of a worker: what a rank says about itself, in shared memory, for two microseconds a step.

One 4 KiB file per worker in the run's folder, mapped by the worker (the only writer, but for the lock behind the words) and by the supervisor.
Every field is an aligned 8-byte word, so a reader never sees half a value; reports of finished steps go into
a ring and carry their step number last, so a reader never takes half a report. What a rank calls several times a
step is written out and calls nothing but the clock: a function call costs as much as five words.
Files are mapped by hand: `multiprocessing.shared_memory` unlinks a segment when a process that attached to it is killed.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from lastgood.base.clock import monotonic_ns
from lastgood.signals.reading import Phase, StepReport

PAGE_BYTES = 4096
LIFE_LOCK_AT = 3072
"""Where the lock of `life_lock` lies in a status page; the words of a rank end before it."""
NOTHING_PINNED = -(2**31)
_MAGIC = 0x4C47_5354_4154_3031
_SECTION_BYTES = 64

# Word positions. The ring starts at word 32.
_W_MAGIC, _W_GENERATION, _W_RANK, _W_PHASE, _W_STEP, _W_PUBLISHED = range(6)
_W_LAUNCHES, _W_COMPLETIONS, _W_PROGRESS, _W_SECTION_LIMIT, _W_HOLDS_EXCLUSIVE = range(6, 11)
_W_SECTION = 16
_COLLECTIVE = int(Phase.COLLECTIVE)
_RING_START, _RING_ENTRY_WORDS, RING_LENGTH = 32, 12, 16
_E_STEP = 0
_ENTRY = struct.Struct("@16s2d5qdq")
"""The words of a ring entry behind its step number: native order and alignment, so word by word."""
_FLAG_NONFINITE, _FLAG_LOSS, _FLAG_NORM, _FLAG_WORK, _FLAG_STARVED = 1, 2, 4, 8, 16


class SlotView(NamedTuple):
    """The words of a status page at one instant. Times are monotonic microseconds."""

    generation: int
    rank: int
    phase: Phase
    step: int
    published_step: int
    launches: int
    completions: int
    progress_us: int
    section: str | None
    section_limit_us: int | None


class PublishedStep(NamedTuple):
    """A finished step as a rank published it, and when (wall-clock microseconds)."""

    report: StepReport
    done_wall_us: int


class StatusSlot:
    """The mapped page of one worker; the same class serves the writer and the reader."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the page, making it first when `create` is set."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                os.posix_fallocate(
                    descriptor, 0, PAGE_BYTES
                )  # a page that is missing later is a SIGBUS
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("q")
        if create:
            self._words[_W_MAGIC] = _MAGIC
            self._words[_W_RANK] = -1
            self._words[_W_PUBLISHED] = -1
            self._forget_reports()
            self.touch()

    def close(self) -> None:
        """Unmap the page."""
        for view in (self._words, self._bytes):
            view.release()
        self._map.close()

    # --- the writing side -------------------------------------------------------------------------

    def touch(self) -> None:
        """Say that the rank moved, now."""
        self._words[_W_PROGRESS] = monotonic_ns()

    def enter(self, phase: Phase, *, step: int | None = None) -> None:
        """Enter a phase (and a step)."""
        words = self._words
        words[_W_PROGRESS] = monotonic_ns()  # first: nobody may read a new place with an old time
        if step is not None:
            words[_W_STEP] = step
        words[_W_PHASE] = phase

    def begin_generation(self, generation: int, rank: int) -> None:
        """Start a generation: counters from zero, no open section."""
        words = self._words
        words[_W_GENERATION], words[_W_RANK] = generation, rank
        words[_W_LAUNCHES] = words[_W_COMPLETIONS] = 0
        self._forget_reports()  # of a history that may be redone
        self.close_section()

    def _forget_reports(self) -> None:
        for entry in range(RING_LENGTH):
            self._words[_RING_START + entry * _RING_ENTRY_WORDS + _E_STEP] = -1

    def count_launch(self, *, is_last: bool) -> None:
        """Count one collective entered; after the last of a step the rank waits for its peers."""
        words = self._words
        words[_W_PROGRESS] = (
            monotonic_ns()
        )  # first, as in `enter`: since when it waits accuses others
        words[_W_LAUNCHES] += 1
        if is_last:
            words[_W_PHASE] = _COLLECTIVE

    def count_completion(self) -> None:
        """Count one collective left."""
        words = self._words
        words[_W_COMPLETIONS] += 1
        words[_W_PROGRESS] = monotonic_ns()

    def open_section(self, name: str, limit_us: int) -> None:
        """Declare a long phase with its own limit (0: none declared)."""
        raw = name.encode()[:_SECTION_BYTES]
        start = _W_SECTION * 8
        self._bytes[start : start + _SECTION_BYTES] = raw.ljust(_SECTION_BYTES, b"\0")
        self._words[_W_SECTION_LIMIT] = limit_us
        self.enter(Phase.SECTION)

    def close_section(self) -> None:
        """End the open section, if any."""
        start = _W_SECTION * 8
        self._bytes[start : start + _SECTION_BYTES] = bytes(_SECTION_BYTES)
        self._words[_W_SECTION_LIMIT] = 0
        self.touch()

    def set_published(self, step: int) -> None:
        """Say which state is completely in a snapshot slot."""
        self._words[_W_PUBLISHED] = step

    def note_exclusive(self, is_held: bool) -> None:
        """Say whether the process holds what a successor may need and only one may have, such as a device or a port."""
        self._words[_W_HOLDS_EXCLUSIVE] = is_held

    def publish(self, report: StepReport, *, done_wall_us: int) -> None:
        """Put the report of a finished step into the ring; its step number is written last."""
        words, step, loss, norm, work, starved_us = (
            self._words, report.step, report.loss, report.grad_norm, report.work, report.starved_us
        )  # fmt: skip
        base = _RING_START + (step % RING_LENGTH) * _RING_ENTRY_WORDS
        flags = (
            (_FLAG_NONFINITE if report.local_nonfinite else 0)
            | (_FLAG_LOSS if loss is not None else 0)
            | (_FLAG_NORM if norm is not None else 0)
            | (_FLAG_WORK if work is not None else 0)
            | (_FLAG_STARVED if starved_us is not None else 0)
        )
        digest = report.digest if len(report.digest) == 32 else report.digest.rjust(32, "0")
        words[base] = -1
        _ENTRY.pack_into(
            self._map, (base + 1) * 8, bytes.fromhex(digest), loss or 0.0,
            norm or 0.0, flags, report.self_us, report.step_us, done_wall_us, report.between_us,
            work or 0.0, starved_us or 0,
        )  # fmt: skip
        words[base] = step
        words[_W_PROGRESS] = monotonic_ns()

    # --- the reading side -------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The generation that the rank is in, by its own word."""
        return self._words[_W_GENERATION]

    @property
    def published_step(self) -> int:
        """The state that is completely in a snapshot slot, by its own word."""
        return self._words[_W_PUBLISHED]

    @property
    def holds_exclusive(self) -> bool:
        """Whether the process holds such a thing, by its own word."""
        return bool(self._words[_W_HOLDS_EXCLUSIVE])

    def view(self) -> SlotView:
        """Read the page once."""
        words = self._words
        start = _W_SECTION * 8
        name = bytes(self._bytes[start : start + _SECTION_BYTES]).rstrip(b"\0")
        return SlotView(
            generation=words[_W_GENERATION],
            rank=words[_W_RANK],
            phase=Phase(words[_W_PHASE]),
            step=words[_W_STEP],
            published_step=words[_W_PUBLISHED],
            launches=words[_W_LAUNCHES],
            completions=words[_W_COMPLETIONS],
            progress_us=words[_W_PROGRESS] // 1000,
            section=name.decode(errors="replace") or None,
            section_limit_us=words[_W_SECTION_LIMIT] or None,
        )

    def report_of(self, step: int) -> PublishedStep | None:
        """Return the report of a step, or None when the rank has not published it (or no longer holds it)."""
        base = _RING_START + (step % RING_LENGTH) * _RING_ENTRY_WORDS
        words = self._words
        if words[base + _E_STEP] != step:
            return None
        digest, loss, norm, flags, self_us, step_us, done_us, between_us, work, starved_us = (
            _ENTRY.unpack_from(self._map, (base + 1) * 8)
        )
        published = PublishedStep(
            StepReport(
                rank=words[_W_RANK],
                step=step,
                digest=digest.hex(),
                loss=loss if flags & _FLAG_LOSS else None,
                grad_norm=norm if flags & _FLAG_NORM else None,
                local_nonfinite=bool(flags & _FLAG_NONFINITE),
                self_us=self_us,
                step_us=step_us,
                between_us=between_us,
                work=work if flags & _FLAG_WORK else None,
                starved_us=starved_us if flags & _FLAG_STARVED else None,
            ),
            done_us,
        )
        return published if words[base + _E_STEP] == step else None


class ControlPage:
    """The one page that the supervisor writes and every rank reads: how far the checks have come."""

    _W_ASSESSED, _W_PINNED, _W_WALL_OFFSET = 0, 1, 2

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the page, making it first when `create` is set."""
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        try:
            if create:
                os.posix_fallocate(
                    descriptor, 0, PAGE_BYTES
                )  # a page that is missing later is a SIGBUS
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("q")
        if create:
            self.assessed_step, self.pinned_step = 0, NOTHING_PINNED

    @property
    def assessed_step(self) -> int:
        """Newest step whose signals the supervisor has assessed as ok, of every rank."""
        return self._words[self._W_ASSESSED]

    @assessed_step.setter
    def assessed_step(self, step: int) -> None:
        self._words[self._W_ASSESSED] = step

    @property
    def wall_offset_us(self) -> int:
        """Time base of the run: what to add to a monotonic time, on every process of it (`base.clock.RunClock`)."""
        return self._words[self._W_WALL_OFFSET]

    @wall_offset_us.setter
    def wall_offset_us(self, offset_us: int) -> None:
        self._words[self._W_WALL_OFFSET] = offset_us

    @property
    def pinned_step(self) -> int:
        """State whose snapshots must not be overwritten while a checkpoint copies them; `NOTHING_PINNED` for none."""
        return self._words[self._W_PINNED]

    @pinned_step.setter
    def pinned_step(self, step: int) -> None:
        self._words[self._W_PINNED] = step
