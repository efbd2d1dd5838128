"""Durable checkpoints as the supervisor sees them: when to write one, which to trust, which to keep.

A helper process does the writing (`rank/checkpoint.py`). A checkpoint is *complete* when its re-read bytes hashed
to the digest that all replicas published, and *verified* once the next step's signals were ok as well. A failed
save is an event, never a reason to stop.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.base.clock import boot_id
from lastgood.base.errors import BadInput, Refused
from lastgood.recovery.messages import Candidate, Tier
from lastgood.training.states.checkpoint_process import CheckpointProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastgood.training.rundir import RunDir

_NAME = re.compile(r"step-(\d{9})")
MARK = "lastgood.json"


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
        """Nothing is started until the first checkpoint is due.

        Raises:
            Refused: another run that lives writes to this folder.
            BadInput: the folder cannot be made.
        """
        self.folder = folder
        self._lock = _own(folder)
        self._run = run
        self._world = world
        self._kept = kept
        self.helper = CheckpointProcess(
            run, [sys.executable, "-m", "lastgood.training.rank.checkpoint"]
        )
        self.pending_step: int | None = None
        self._is_pending_abandoned = False
        self.unverified: dict[int, Checkpoint] = {}
        self.pinned: Path | None = None
        """The newest verified checkpoint: never deleted."""
        if self._lock is not None:
            for left in folder.glob("step-*.partial"):
                shutil.rmtree(left, ignore_errors=True)
        self._tainted: set[Path] = set()
        """Checkpoints of an abandoned history that could not be renamed."""

    def start(self) -> None:
        """Start the helper, whose imports take seconds, before it is needed."""
        self.helper.start()

    @property
    def is_busy(self) -> bool:
        """True while a checkpoint is being written."""
        return self.pending_step is not None

    def is_ready(self) -> bool:
        """True once the helper can be asked."""
        return self.helper.is_ready()

    def request(
        self, step: int, *, published_us: int | None = None, tolerance: str | None = None
    ) -> Path:
        """Ask for a checkpoint of a published state; the caller has pinned its snapshots."""
        path = self.folder / f"step-{step:09d}"
        self.pending_step, self._is_pending_abandoned = step, False
        request = {
            "run_dir": str(self._run.root),
            "world": self._world,
            "step": step,
            "path": str(path),
            "published_us": published_us,
            "tolerance": tolerance,
        }
        size_bytes = sum(_size_of(self._run.snapshot(rank, step)) for rank in range(self._world))
        self.helper.ask(request, partial=partial_of(path), size_bytes=size_bytes)
        return path

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield what the helper said since; a dead helper counts as a failed checkpoint."""
        for answer in self.helper.answers():
            found = answer
            path = self.folder / f"step-{answer['step']:09d}"
            if answer["kind"] == "written" and self._is_pending_abandoned:
                shutil.rmtree(path, ignore_errors=True)
                reason = "the run went back behind this state while it was written"
                found = answer | {"kind": "failed", "reason": reason}
            if found["kind"] in {"written", "failed"}:
                self.pending_step = None
            if found["kind"] == "failed":
                shutil.rmtree(partial_of(path), ignore_errors=True)
            if found["kind"] == "written":
                self._tainted.discard(path)
                self.unverified[found["step"]] = Checkpoint(
                    found["step"], path, found["digest"], found["bytes"]
                )
            yield found

    def usable(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the present history, newest first."""
        found = list_checkpoints(self.folder, world=self._world)
        return tuple(c for c in found if c.path not in self._tainted)

    def verified_up_to(self, assessed_step: int) -> list[Checkpoint]:
        """Return the checkpoints whose next step has been assessed as ok; the newest of them is pinned."""
        ready = [c for step, c in sorted(self.unverified.items()) if step < assessed_step]
        for checkpoint in ready:
            del self.unverified[checkpoint.step]
            self.pinned = checkpoint.path
        if ready:
            self._prune()
        return ready

    def abandon_behind(self, step: int) -> list[Abandoned]:
        """Rename the checkpoints newer than `step`, so that none is restored; their bytes stay for a person to see."""
        abandoned = []
        for checkpoint in self.usable():
            if checkpoint.step <= step:
                continue
            aside = checkpoint.path.with_name(checkpoint.path.name + ".abandoned")
            shutil.rmtree(aside, ignore_errors=True)
            problem = ""
            try:
                checkpoint.path.rename(aside)
            except OSError as error:
                problem = error.strerror or str(error)
                self._tainted.add(checkpoint.path)
            abandoned.append(Abandoned(checkpoint, problem))
            self.unverified.pop(checkpoint.step, None)
            if self.pinned == checkpoint.path:
                self.pinned = None
        if self.pending_step is not None and self.pending_step > step:
            self._is_pending_abandoned = True
        return abandoned

    def _prune(self) -> None:
        for checkpoint in self.usable()[self._kept :]:
            if checkpoint.path != self.pinned and checkpoint.step not in self.unverified:
                shutil.rmtree(checkpoint.path, ignore_errors=True)

    def close(self) -> None:
        """End the helper and let others use the folder."""
        self.helper.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Abandoned(NamedTuple):
    """A checkpoint of a history that the run left, and why it could not be set aside (empty: it was)."""

    checkpoint: Checkpoint
    problem: str


def partial_of(path: Path) -> Path:
    """Where a checkpoint is written before it is given its name."""
    return path.with_name(path.name + ".partial")


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _own(folder: Path) -> int | None:
    """Lock a folder for as long as this run lives: two runs would delete each other's checkpoints.

    None where the file system knows no locks; then nobody is kept out.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BadInput(
            "the folder of checkpoints cannot be used",
            where=str(folder),
            found=error.strerror or str(error),
            needs="a folder that exists or can be made",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Refused(
            "another run writes its checkpoints there",
            where=str(folder),
            found="a folder whose owner is alive",
            needs="one folder for each run",
            next="name another --checkpoint-dir, or end that run",
        ) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
