"""What an earlier start left in the live folder of a job that is only watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.training.resuming.leftovers import end_leftovers, sessions_of
from lastgood.training.rundir import RunDir

if TYPE_CHECKING:
    from lastgood.training.resuming.owned import OwnedFolder


def take_over(folder: OwnedFolder) -> None:
    """Make the folder this start's own.

    The ranks of a run that acts were to end with their supervisor, and are ended. A rank that was only watched is
    nobody's to end: see `unwatched`.
    """
    root = folder.run_dir.root
    if folder.is_kept:
        end_leftovers(root, sessions=sessions_of(folder.run_dir))
        RunDir.renew(root, ranks=folder.ranks)
        folder.is_kept = False
    for name in ("endings", "first"):
        (root / name).mkdir()
