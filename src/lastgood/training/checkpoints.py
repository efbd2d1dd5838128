"""Durable checkpoints as the supervisor sees them: when to write one, which to trust, which to keep.

A helper process does the writing (`rank/checkpoint.py`). A checkpoint is *complete* when its re-read bytes hashed
to the digest that all replicas published, and *verified* once the next step's signals were ok as well. A failed
save is an event, never a reason to stop.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.base.clock import SystemClock, boot_id
from lastgood.recovery.messages import Candidate, Tier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastgood.training.rundir import RunDir

_NAME = re.compile(r"step-(\d{9})")
MARK = "lastgood.json"
COPY_US_MAX = 60_000_000
"""Longest time in which a snapshot is pinned: the ranks wait for it once they have come round to its slot."""
WRITE_US_MAX = 3_600_000_000
"""Longest time for a checkpoint in all."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One complete checkpoint on disk."""

    step: int
    path: Path
    digest: str
    size_bytes: int
    published_us: int | None = None
    """When its state was published, on this boot's monotonic clock; None when that was before this boot."""
    tolerance: float | None = None
    """How far a replay of the run that wrote it may differ, as measured at its start; None = not at all."""


class Torn(NamedTuple):
    """A folder that has the name of a checkpoint and is none (any more)."""

    step: int
    path: Path
    reason: str


def seal_mark(fields: dict[str, Any]) -> str:
    """Return the text of `lastgood.json`: the fields and a checksum over them."""
    plain = json.dumps(fields, indent=1, sort_keys=True)
    return json.dumps(
        {**fields, "check": f"{zlib.crc32(plain.encode()):08x}"}, indent=1, sort_keys=True
    )


def read_mark(path: Path) -> dict[str, Any] | None:
    """Return what `lastgood.json` of a checkpoint says; None when it is missing or not as it was written."""
    try:
        text = (path / MARK).read_text(encoding="utf-8")
        fields = json.loads(text)
        del fields["check"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    needed = {"step", "world", "digest", "bytes"}
    is_whole = text == seal_mark(fields) and needed <= fields.keys()
    return fields if is_whole else None


def list_checkpoints(folder: Path, *, world: int) -> tuple[Checkpoint, ...]:
    """Return the complete checkpoints of a folder that fit this world, newest first; torn ones are passed over."""
    found = []
    for path in folder.glob("step-*"):
        if not _NAME.fullmatch(path.name) or not (path / ".metadata").exists():
            continue
        mark = read_mark(path)
        if mark is not None and mark["world"] == world:
            is_of_this_boot = mark.get("boot_id") == boot_id()
            published_us = mark.get("published_us") if is_of_this_boot else None
            tolerance = mark.get("tolerance")
            found.append(
                Checkpoint(
                    mark["step"],
                    path,
                    mark["digest"],
                    mark["bytes"],
                    published_us,
                    None if tolerance is None else float.fromhex(tolerance),
                )
            )
    return tuple(sorted(found, key=lambda c: c.step, reverse=True))


def find_torn(folder: Path) -> tuple[Torn, ...]:
    """Return the folders that are named like a checkpoint and cannot be one, newest first, each with its reason.

    Whether the bytes of the others are still what they were is found out when they are read.
    """
    found = []
    for path in folder.glob("step-*"):
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        reason = _why_torn(path)
        if reason:
            found.append(Torn(int(match[1]), path, reason))
    return tuple(sorted(found, reverse=True))


def _why_torn(path: Path) -> str:
    if not (path / MARK).exists():
        return f"{MARK} is missing: it was never completed, or it was taken apart"
    if read_mark(path) is None:
        return f"{MARK} is not as it was written"
    if not (path / ".metadata").exists():
        return ".metadata is missing"
    return ""


def worlds_of(folder: Path) -> set[int]:
    """Return the numbers of ranks of all whole checkpoints of a folder."""
    marks = (
        read_mark(path)
        for path in folder.glob("step-*")
        if _NAME.fullmatch(path.name) and (path / ".metadata").exists()
    )
    return {mark["world"] for mark in marks if mark is not None}


def checkpoint_candidates(
    checkpoints: tuple[Checkpoint, ...], *, generation: int
) -> tuple[Candidate, ...]:
    """Return checkpoints as states that recovery may try.

    All of them belong to the present history, whatever generation wrote them: the others were set aside.
    """
    return tuple(
        Candidate(
            step=c.step,
            tier=Tier.CHECKPOINT,
            digest=c.digest,
            has_predecessor=False,
            locator=str(c.path),
            # Without its time a checkpoint would count as older than every recovery, and never be used after one.
            published_us=c.published_us,
            generation=generation,
        )
        for c in checkpoints
    )


class CheckpointKeeper:
    """Asks the helper for checkpoints, one at a time, and keeps the folder tidy."""

    def __init__(self, folder: Path, *, run: RunDir, world: int, kept: int) -> None:
        """Nothing is started until the first checkpoint is due."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._run = run
        self._world = world
        self._kept = kept
        self._helper: subprocess.Popen[bytes] | None = None
        self._command = [sys.executable, "-m", "lastgood.training.rank.checkpoint"]
        self._heard = b""
        self._is_ready = False
        self.pending_step: int | None = None
        self._is_copying = False
        self._is_pending_abandoned = False
        self._requested_us = 0
        self._clock = SystemClock()
        self.unverified: dict[int, Checkpoint] = {}
        self.pinned: Path | None = None
        """The newest verified checkpoint: never deleted."""

    def start(self) -> None:
        """Start the helper, whose imports take seconds, before it is needed."""
        if self._helper is not None and self._helper.poll() is None:
            return
        self.close()  # a dead one leaves its pipes behind
        self._heard, self._is_ready = b"", False
        self._helper = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._helper.stdout is not None
        os.set_blocking(self._helper.stdout.fileno(), False)

    @property
    def is_busy(self) -> bool:
        """True while a checkpoint is being written."""
        return self.pending_step is not None

    def is_ready(self) -> bool:
        """True once the helper has imported what it needs: no snapshot is pinned for one that still does."""
        self.start()
        if not self._is_ready:
            self._is_ready = any(answer["kind"] == "ready" for answer in self._heard_answers())
        return self._is_ready

    def _heard_answers(self) -> list[dict[str, Any]]:
        """What the helper has said since the last time, half lines kept for the next."""
        assert self._helper is not None
        assert self._helper.stdout is not None
        with suppress(BlockingIOError):
            self._heard += os.read(self._helper.stdout.fileno(), 65536)
        *lines, self._heard = self._heard.split(b"\n")
        return [answer for line in lines if (answer := _answer_of(line)) is not None]

    def request(self, step: int, *, published_us: int | None = None) -> Path:
        """Ask for a checkpoint of a published state; the caller has pinned its snapshots."""
        self.start()
        assert self._helper is not None
        assert self._helper.stdin is not None
        path = self.folder / f"step-{step:09d}"
        self.pending_step = step
        self._is_copying, self._is_pending_abandoned = True, False
        self._requested_us = self._clock.monotonic_us()
        request = {
            "run_dir": str(self._run.root),
            "world": self._world,
            "step": step,
            "path": str(path),
            "published_us": published_us,
        }
        with suppress(OSError):  # the helper died: `answers` reports it
            self._helper.stdin.write(json.dumps(request).encode() + b"\n")
        return path

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield what the helper said since; a dead helper counts as a failed checkpoint."""
        if self._helper is None or self.pending_step is None:
            return
        for answer in self._heard_answers():
            if answer["step"] != self.pending_step:
                continue
            if answer["kind"] == "copied":
                self._is_copying = False
            if answer["kind"] == "written" and self._is_pending_abandoned:
                shutil.rmtree(self.folder / f"step-{answer['step']:09d}", ignore_errors=True)
                reason = "the run went back behind this state while it was written"
                answer |= {"kind": "failed", "reason": reason}
            if answer["kind"] in {"written", "failed"}:
                self.pending_step = None
            if answer["kind"] == "written":
                path = self.folder / f"step-{answer['step']:09d}"
                self.unverified[answer["step"]] = Checkpoint(
                    answer["step"], path, answer["digest"], answer["bytes"]
                )
            yield answer
        if self.pending_step is None:
            return
        limit_us = COPY_US_MAX if self._is_copying else WRITE_US_MAX
        if self._clock.monotonic_us() - self._requested_us > limit_us:
            self._helper.kill()  # a later look finds it dead
        if self._helper.poll() is not None:
            step, self.pending_step = self.pending_step, None
            # Half a line of the dead must not be the start of its successor's first.
            self._heard = b""
            yield {
                "kind": "failed",
                "step": step,
                "reason": f"the helper ended with code {self._helper.returncode}",
            }

    def verified_up_to(self, assessed_step: int) -> list[Checkpoint]:
        """Return the checkpoints whose next step has been assessed as ok; the newest of them is pinned."""
        ready = [c for step, c in sorted(self.unverified.items()) if step < assessed_step]
        for checkpoint in ready:
            del self.unverified[checkpoint.step]
            self.pinned = checkpoint.path
        if ready:
            self._prune()
        return ready

    def abandon_behind(self, step: int) -> list[Checkpoint]:
        """Rename the checkpoints newer than `step`, so that none is restored; their bytes stay for a person to see."""
        abandoned = [c for c in list_checkpoints(self.folder, world=self._world) if c.step > step]
        for checkpoint in abandoned:
            aside = checkpoint.path.with_name(checkpoint.path.name + ".abandoned")
            shutil.rmtree(aside, ignore_errors=True)
            checkpoint.path.rename(aside)
            self.unverified.pop(checkpoint.step, None)
            if self.pinned == checkpoint.path:
                self.pinned = None
        if self.pending_step is not None and self.pending_step > step:
            self._is_pending_abandoned = True
        return abandoned

    def _prune(self) -> None:
        for checkpoint in list_checkpoints(self.folder, world=self._world)[self._kept :]:
            if checkpoint.path != self.pinned and checkpoint.step not in self.unverified:
                shutil.rmtree(checkpoint.path, ignore_errors=True)

    def close(self) -> None:
        """End the helper."""
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()
            for stream in (self._helper.stdin, self._helper.stdout):
                if stream is not None:
                    stream.close()


def _answer_of(line: bytes) -> dict[str, Any] | None:
    """An answer of the helper; None for anything else that a library wrote to its standard output."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and {"kind", "step"} <= answer.keys() else None
