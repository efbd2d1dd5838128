"""Ranks that were only watched and still work though their supervisor was killed: the next start names them and ends none.

They are found by their environment: those of this run's folder, which is the new start's own by then, and those of
another run with the same script whose parent is no longer the supervisor that started them. Two copies of a job write to
the same checkpoints, whatever the mode of the second one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lastgood.training.starter import VARIABLE

if TYPE_CHECKING:
    from lastgood.training.options import RunOptions

_RANK_MODULE = b"lastgood.training.rank.observed"


class Unwatched(NamedTuple):
    """One rank that nobody watches any more."""

    run: str
    rank: int
    pid: int


def find_unwatched(options: RunOptions, *, root: Path) -> tuple[Unwatched, ...]:
    """Return them in the order of their runs and ranks. `root` is the folder of the run that starts now.

    Assumes: this process owns that folder, and has started no rank yet.
    """
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):  # no process, one of another user, or one that is gone
            # A rank leads its session; its loader workers, which look like it, do not.
            if not name.isdigit() or os.getsid(int(name)) != int(name):
                continue
            known = _environment(int(name))
            is_of_run = known.get("LASTGOOD_RUN_DIR") == str(root)
            is_of_script = known.get("LASTGOOD_SCRIPT") == str(options.script.resolve())
            if not (is_of_run or (is_of_script and _is_orphan(int(name), known))):
                continue
            if _RANK_MODULE in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                run = known.get("TORCHELASTIC_RUN_ID", options.run_id)
                found.append(Unwatched(run, int(known.get("RANK", "0")), int(name)))
    return tuple(sorted(found))


def _environment(pid: int) -> dict[str, str]:
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return {name: value for name, _, value in (v.partition("=") for v in variables)}


def _is_orphan(pid: int, known: dict[str, str]) -> bool:
    """Whether its parent did not start it; where numbers mean other processes (a container) nobody can say."""
    if not os.path.samefile(f"/proc/{pid}/ns/pid", "/proc/self/ns/pid"):
        return False
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return known.get(VARIABLE, parent) != parent


def unwatched_words(found: tuple[Unwatched, ...], *, run_id: str) -> list[dict[str, object]]:
    """The bodies of the warnings that a start records: one for each run whose ranks still work."""
    bodies: list[dict[str, object]] = []
    for run, group in groupby(found, key=lambda rank: rank.run):
        ranks = list(group)
        named = ", ".join(f"rank {rank.rank} (pid {rank.pid})" for rank in ranks)
        kill = f"kill {' '.join(str(rank.pid) for rank in ranks)}"
        whose, writes = f"script (run {run})", "both may write"
        if run == run_id:
            whose, writes = f"run ({run})", "both write"
        text = (
            f"an earlier start of this {whose} still works, unobserved, beside this one: {named}; {writes} to the same "
            f"checkpoints. End the earlier one ({kill}), or stop this one and let that one finish"
        )
        pids = [rank.pid for rank in ranks]
        bodies.append({"text": text, "run": run, "pids": pids, "next": kill})
    return bodies
