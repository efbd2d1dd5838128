"""The live folder of a job that is only watched: one owner under its name, and what an earlier start left in it.

The folder is owned before anything is read from the ledger or written to it, and until the ledger is closed: the name
of a run that lives is another start's to refuse, never to write under.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lastgood.training.resuming.leftovers import end_leftovers, find_leftovers, sessions_of
from lastgood.training.rundir import RunDir, default_root, is_left_behind

if TYPE_CHECKING:
    from collections.abc import Generator

    from lastgood.training.options import RunOptions
    from lastgood.training.resuming.leftovers import Leftover

_RANK_MODULE = "lastgood.training.rank.observed"


class OwnedFolder:
    """The folder of one start."""

    def __init__(self, options: RunOptions) -> None:
        """Own it; raises Refused when a supervisor that lives does."""
        self._ranks = options.ranks
        root = options.root or default_root(options.run_id)
        self._is_old = is_left_behind(root)
        self.run_dir = RunDir(root) if self._is_old else RunDir.create(root, ranks=options.ranks)

    def take_over(self) -> tuple[Leftover, ...]:
        """Make it this start's own; returns the ranks of a supervisor that was killed which still work.

        Those of a run that acts were to end with it, and are ended. A rank that was only watched is nobody's to end.
        """
        root = self.run_dir.root
        if self._is_old:
            end_leftovers(root, sessions=sessions_of(self.run_dir))
            RunDir.renew(root, ranks=self._ranks)
            self._is_old = False
        for name in ("endings", "first"):
            (root / name).mkdir()
        # Also in a folder that is new: a start in between has deleted the one that they had.
        return tuple(entry for entry in find_leftovers(root) if _is_rank(entry))

    def close(self) -> None:
        """Delete it, or leave what an earlier start left as it was found."""
        if self._is_old:
            self.run_dir.release()
        else:
            self.run_dir.remove()


@contextmanager
def owned_folder(options: RunOptions) -> Generator[OwnedFolder]:
    """Own the folder of a run; raises Refused when a supervisor that lives does."""
    folder = OwnedFolder(options)
    try:
        yield folder
    finally:
        folder.close()


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
