"""The live folder of a run, as one start of it has it: owned before anything is read of the run, and until its end is kept.

The name of a run that lives is another start's to refuse, never to write under. So the folder is owned before the ledger
is read, since its history is only then complete, and until the ledger is closed: a start in between would read a run
without an end.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.training.rundir import RunDir, default_root, is_left_behind

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from lastgood.training.options import RunOptions


class OwnedFolder:
    """The folder of one start."""

    def __init__(self, options: RunOptions) -> None:
        """Own it; raises Refused when a supervisor that lives does."""
        self.ranks = options.ranks
        root = options.root or default_root(options.run_id)
        self.is_kept = is_left_behind(root)
        """True while it holds what the next start may need: what an earlier one left, until this one takes it over."""
        self.run_dir = RunDir(root) if self.is_kept else RunDir.create(root, ranks=options.ranks)

    def lend(self) -> LentFolder:
        """Give it to a supervisor, which empties it at its end, or leaves there what the next start needs."""
        self.is_kept = True
        return LentFolder(self.run_dir.root)

    def close(self) -> None:
        """Delete it, unless something in it is to be kept; its name is free from now on."""
        if self.is_kept and _holds_anything(self.run_dir.root):
            self.run_dir.release()
        else:
            self.run_dir.remove()


@dataclass(frozen=True, slots=True)
class LentFolder(RunDir):
    """The same folder in the hands of a supervisor: whatever it does at its end, the name stays taken."""

    def remove(self) -> None:
        """Delete the live files, and not the folder: shared memory is free at once, also for what must be saved."""
        with suppress(OSError):
            self.empty()

    def release(self) -> None:
        """Leave the files where they are; the end of this start is still to be recorded."""


@contextmanager
def owned_folder(options: RunOptions) -> Generator[OwnedFolder]:
    """Own the folder of a run; raises Refused when a supervisor that lives does."""
    folder = OwnedFolder(options)
    try:
        yield folder
    finally:
        folder.close()


def _holds_anything(root: Path) -> bool:
    with suppress(OSError):
        return any(root.iterdir())
    return False
