"""Where a run keeps its live files: one folder in shared memory, laid out for the supervisor, ranks and injector.

```
<folder>/run.json              what the run is, so that only the same run is taken up again
<folder>/life                  when the supervisor last turned, and how far it was (see `life.py`)
<folder>/sessions              the sessions of its processes, for whoever has to end them
<folder>/state.json            who serves which rank now (rewritten atomically)
<folder>/progress.bin          int64 array: newest published state of each rank
<folder>/control               how far the supervisor's checks have come
<folder>/status/<worker>       status page of a worker
<folder>/status/<worker>.ended  there once the last line of its script has run
<folder>/status/<worker>.teardown  the code with which it was leaving when Python began to take it apart
<folder>/stacks/<worker>.fatal.txt  what Python writes of a fatal error of it, where it has no log of its own
<folder>/slots/<rank>/state.N  three snapshots of a rank (N = step mod 3)
<folder>/store/gen<g>          the file through which generation g meets
<folder>/addresses/<worker>.json  where its parameters lie, for whoever injects a fault into memory
```
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

_KEPT = frozenset({"run.json", "life", "slots"})
"""What outlives a supervisor that was killed."""
SLOT_COUNT = 3
"""Snapshots kept per rank: ranks may differ by one step, and verifying state k needs state k-1."""
_STORE_BYTES = 64 * 1024
"""More than a generation writes when its ranks meet: about 250 bytes for each."""
_FALLOC_FL_KEEP_SIZE = 1


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of one run."""

    root: Path

    @classmethod
    def create(cls, root: Path, *, ranks: int) -> RunDir:
        """Make the folders of a run; only the owner may read them. Raises Refused when another run has the name."""
        if is_left_behind(root):
            return cls.renew(root, ranks=ranks)
        try:
            root.mkdir(mode=0o700, parents=True)
        except FileExistsError:  # made a moment ago
            raise _refusal(root) from None
        _own(root)
        made = cls(root)
        made._make_folders(ranks)
        return made

    @classmethod
    def reopen(cls, root: Path, *, ranks: int) -> RunDir:
        """Take over what a supervisor left that was killed: its snapshots and its page stay, all else is made anew.

        Assumes: this process owns it (`is_left_behind`).
        """
        assert root in _owned, "a folder is taken over by its owner"
        _empty(root, keeps=_KEPT)
        made = cls(root)
        made._make_folders(ranks)
        return made

    @classmethod
    def renew(cls, root: Path, *, ranks: int) -> RunDir:
        """Put a new folder in the place of one that a killed supervisor left; its name is never free in between.

        Processes that go on may hold the old one and write to it. Assumes: this process owns it (`is_left_behind`).
        """
        assert root in _owned, "a folder is taken over by its owner"
        fresh = root.with_name(f"{root.name}.{os.getpid()}")
        fresh.mkdir(mode=0o700)
        _own(fresh)
        _empty(root, keeps=())  # a folder takes the place of an empty one only
        fresh.rename(root)
        cls(root).release()
        _owned[root] = _owned.pop(fresh)
        made = cls(root)
        made._make_folders(ranks)
        return made

    def _make_folders(self, ranks: int) -> None:
        for name in ("status", "store", "slots", "addresses", "stacks", "faults"):
            (self.root / name).mkdir(exist_ok=True)
        for rank in range(ranks):
            (self.root / "slots" / str(rank)).mkdir(exist_ok=True)

    def release(self) -> None:
        """Leave the files where they are, for the next start of the same run."""
        descriptor = _owned.pop(self.root, None)
        if descriptor is not None:
            os.close(descriptor)

    @property
    def identity(self) -> Path:
        """What the run is."""
        return self.root / "run.json"

    @property
    def sessions(self) -> Path:
        """Session of every worker and helper that was ever started, one a line."""
        return self.root / "sessions"

    @property
    def life(self) -> Path:
        """The supervisor's page for whoever comes after it."""
        return self.root / "life"

    @property
    def control(self) -> Path:
        """The supervisor's page."""
        return self.root / "control"

    @property
    def progress(self) -> Path:
        """Newest published state of each rank, for readers outside."""
        return self.root / "progress.bin"

    @property
    def stacks(self) -> Path:
        """Folder of stack dumps."""
        return self.root / "stacks"

    @property
    def faults(self) -> Path:
        """Folder in which a fault that fires inside a rank leaves its one-shot mark."""
        return self.root / "faults"

    def status(self, worker: str) -> Path:
        """Status page of a worker."""
        return self.root / "status" / worker

    def snapshot(self, rank: int, step: int) -> Path:
        """File that holds the state of `rank` after `step`."""
        return self.root / "slots" / str(rank) / f"state.{step % SLOT_COUNT}"

    def snapshots(self, rank: int) -> list[Path]:
        """All snapshot files of a rank that exist."""
        folder = self.root / "slots" / str(rank)
        try:
            names = os.listdir(folder)
        except OSError:
            return []
        return [folder / name for name in sorted(names) if name.startswith("state.")]

    def store(self, generation: int) -> Path:
        """File through which the ranks of a generation find each other. Never reused: old addresses would be read."""
        return self.root / "store" / f"gen{generation}"

    def standby_store(self, number: int, lost_rank: int) -> Path:
        """File through which the ranks of a group that stands by find each other."""
        return self.root / "store" / f"standby{number}.{lost_rank}"

    def retire_standby_stores(self, *, but: Path | None) -> None:
        """Give back the room of all groups that stood by, but for the one that is in use."""
        for file in (self.root / "store").glob("standby*"):
            if file != but:
                with suppress(OSError):
                    file.unlink()

    def reserve_store(self, generation: int) -> None:
        """Take the room in which a later generation meets: its ranks could not, once shared memory is full.

        The file stays empty, so that its ranks find nothing in it. Where there is no room already, nothing changes.
        """
        with suppress(OSError):
            descriptor = os.open(self.store(generation), os.O_RDWR | os.O_CREAT, 0o600)
            # Python's own call would make the file longer, and its zeros would be read as addresses.
            ctypes.CDLL(None).fallocate(
                descriptor, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(_STORE_BYTES)
            )
            os.close(descriptor)

    def retire_store(self, generation: int) -> None:
        """Give back the room in which a generation met that all of its ranks have left."""
        with suppress(OSError):
            self.store(generation).unlink()

    def addresses(self, worker: str) -> Path:
        """Where a worker's parameters lie in its memory."""
        return self.root / "addresses" / f"{worker}.json"

    def write_state(self, state: dict[str, object]) -> None:
        """Replace `state.json` in one step, so that a reader never sees half of it."""
        fresh = self.root / "state.json.new"
        fresh.write_text(json.dumps(state, sort_keys=True))
        fresh.replace(self.root / "state.json")

    def empty(self) -> None:
        """Delete what is in the folder, which stays."""
        _empty(self.root, keeps=())

    def remove(self) -> None:
        """Delete the run's live files."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.release()


_owned: dict[Path, int] = {}
"""Folders that this process made, each with the descriptor whose lock says that its owner lives."""


def _empty(root: Path, *, keeps: Collection[str]) -> None:
    for entry in root.iterdir():
        if entry.name in keeps:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _lock(root: Path) -> int | None:
    """Lock a folder for as long as this process lives; None when another one has it, or has just replaced it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), root.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _own(root: Path) -> None:
    """Become the owner of a folder that is there; raises Refused when its owner lives."""
    descriptor = _lock(root)
    if descriptor is None:
        raise _refusal(root)
    _owned[root] = descriptor


def _refusal(root: Path) -> Refused:
    return Refused(
        "another run with this id is on this machine",
        where=str(root),
        found="a folder whose owner is alive",
        needs="one id for each run",
        next="choose another --run-id, or end that run",
    )


def is_left_behind(root: Path) -> bool:
    """True when a folder is there and its owner is gone: then it is this process's from now on. Raises Refused else."""
    if not root.exists():
        return False
    _own(root)
    return True


def default_root(run: str) -> Path:
    """Folder of a run in shared memory, where a snapshot costs a memory copy and survives its writer."""
    return shared_base() / f"lastgood-{run}"


def shared_base() -> Path:
    """Shared memory of the machine, or the folder for temporary files where there is none."""
    base = Path("/dev/shm")
    return base if os.access(base, os.W_OK) else Path(os.environ.get("TMPDIR", "/tmp"))
