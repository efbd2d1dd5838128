"""What an earlier start left in the live folder of a job that is only watched, and whom it left at work."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.training.resuming.leftovers import end_leftovers, find_leftovers, sessions_of
from lastgood.training.rundir import RunDir

if TYPE_CHECKING:
    from lastgood.training.resuming.leftovers import Leftover
    from lastgood.training.resuming.owned import OwnedFolder

_RANK_MODULE = "lastgood.training.rank.observed"


def take_over(folder: OwnedFolder) -> tuple[Leftover, ...]:
    """Make the folder this start's own; returns the ranks of a supervisor that was killed which still work.

    Those of a run that acts were to end with it, and are ended. A rank that was only watched is nobody's to end.
    """
    root = folder.run_dir.root
    if folder.is_kept:
        end_leftovers(root, sessions=sessions_of(folder.run_dir))
        RunDir.renew(root, ranks=folder.ranks)
        folder.is_kept = False
    for name in ("endings", "first"):
        (root / name).mkdir()
    # Also in a folder that is new: a start in between has deleted the one that they had.
    return tuple(entry for entry in find_leftovers(root) if _is_rank(entry))


def _is_rank(entry: Leftover) -> bool:
    """A rank leads its session; its loader workers, which look like it, do not."""
    with suppress(OSError):
        return _RANK_MODULE in entry.command and os.getsid(entry.pid) == entry.pid
    return False


def living_words(living: tuple[Leftover, ...]) -> dict[str, object]:
    """The body of the warning that ranks of the start before still work."""
    named = ", ".join(f"{entry.worker} (pid {entry.pid})" for entry in living)
    kill = f"kill {' '.join(str(entry.pid) for entry in living)}"
    text = (
        f"an earlier start of this run still works, unobserved, beside this one: {named}; both write to the same "
        f"checkpoints. End the earlier one ({kill}), or stop this one and let that one finish"
    )
    return {"text": text, "pids": [entry.pid for entry in living], "next": kill}
