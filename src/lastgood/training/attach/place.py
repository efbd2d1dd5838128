"""Where a process stands in a job that somebody else started, read from the environment of the launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lastgood.base.errors import BadInput

REQUEUE_STRIDE = 100
"""Attempts of one requeue of Slurm: restarts of torchrun within it are counted from there."""
_NAMELESS = "attached"
"""The job of a launcher that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank among all. Ranks are 0-based, attempts 1-based."""

    launcher: str
    """torchrun, slurm, kubernetes or plain."""
    run: str
    job: str
    """What is alike in every launch of the job, where the launcher names none: snapshots and repeated errors go by it."""
    attempt: int | None
    """None where the launcher does not count restarts: the spool of the host is asked then."""
    rank: int
    world: int
    local_rank: int
    local_world: int
    host: str

    @property
    def is_first_host(self) -> bool:
        """True on the host of rank 0, whose watcher speaks for the whole job."""
        return self.rank == self.local_rank


def find_place(environ: Mapping[str, str], *, hostname: str, run: str | None = None) -> Place:
    """The place of this process.

    Raises:
        BadInput: A number in the environment is none, or the numbers contradict each other.
    """
    launcher = _launcher(environ)
    if "RANK" in environ:
        rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE", 1)
        local_rank, local_world = _number(environ, "LOCAL_RANK", 0), _number(environ, "LOCAL_WORLD_SIZE", 1)  # fmt: skip
    elif "SLURM_PROCID" in environ:
        rank, world = _number(environ, "SLURM_PROCID"), _number(environ, "SLURM_NTASKS", 1)
        local_rank, local_world = _number(environ, "SLURM_LOCALID", 0), _slurm_tasks(environ)
    else:
        rank = _number(environ, "JOB_COMPLETION_INDEX", 0)
        world = _number(environ, "WORLD_SIZE", 1)
        local_rank, local_world = 0, 1
    if not (0 <= rank < world and 0 <= local_rank < max(local_world, 1) <= world):
        raise BadInput(
            "the launcher's numbers contradict each other",
            where="lastgood.attach",
            found=f"rank {rank} of {world}, local rank {local_rank} of {local_world}",
            needs="RANK below WORLD_SIZE and LOCAL_RANK below LOCAL_WORLD_SIZE",
        )
    given = run or environ.get("LASTGOOD_RUN")
    job = given or _run_of(environ)
    # Several hosts share no word that is new in each launch, so their name has to be given.
    is_alone = not given and job == _NAMELESS and local_world == world
    return Place(
        launcher=launcher,
        run=_plain(job + _launch_of(environ)) if is_alone else _plain(job),
        job=_plain(job),
        attempt=_attempt(environ),
        rank=rank,
        world=world,
        local_rank=local_rank,
        local_world=local_world,
        host=_plain(environ.get("SLURMD_NODENAME") or environ.get("NODE_NAME") or hostname),
    )


def _launcher(environ: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in environ:
        return "torchrun"
    if "SLURM_JOB_ID" in environ:
        return "slurm"
    return "kubernetes" if "KUBERNETES_SERVICE_HOST" in environ or "JOB_COMPLETION_INDEX" in environ else "plain"  # fmt: skip


def _run_of(environ: Mapping[str, str]) -> str:
    """A name that all ranks of the job find alike."""
    if "SLURM_JOB_ID" in environ:
        return f"slurm-{environ['SLURM_JOB_ID']}"
    given = environ.get("TORCHELASTIC_RUN_ID", "none")
    if given not in {"", "none"}:
        return given
    return environ.get("JOB_NAME") or _NAMELESS


def _launch_of(environ: Mapping[str, str]) -> str:
    """What tells one launch of torchrun on this host from all others: the folder that it makes for the ranks' errors.

    It is `.../none_x7f2k1ab/attempt_0/RANK/error.json`, alike for all ranks and restarts; empty where there is none.
    """
    parts = Path(environ.get("TORCHELASTIC_ERROR_FILE") or "").parts
    if len(parts) < 4 or not parts[-3].startswith("attempt_"):
        return ""
    return "." + parts[-4].removeprefix(environ.get("TORCHELASTIC_RUN_ID", "") + "_")


def _attempt(environ: Mapping[str, str]) -> int | None:
    given = environ.get("LASTGOOD_ATTEMPT")
    if given is not None:
        return _number(environ, "LASTGOOD_ATTEMPT")
    if "TORCHELASTIC_RESTART_COUNT" not in environ and "SLURM_RESTART_COUNT" not in environ:
        # Slurm sets its count from the first requeue on.
        return 1 if "SLURM_JOB_ID" in environ else None
    requeues = _number(environ, "SLURM_RESTART_COUNT", 0)
    return 1 + _number(environ, "TORCHELASTIC_RESTART_COUNT", 0) + REQUEUE_STRIDE * requeues


def _slurm_tasks(environ: Mapping[str, str]) -> int:
    """Tasks of this node out of `2(x3),1`: three nodes with two, then one with one."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    node = _number(environ, "SLURM_NODEID", 0)
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            return _number(environ, "SLURM_NTASKS_PER_NODE", 1)
        counts += [int(found[1])] * min(int(found[2] or 1), 65_536)
    return counts[node] if node < len(counts) else _number(environ, "SLURM_NTASKS_PER_NODE", 1)


def _number(environ: Mapping[str, str], name: str, usual: int | None = None) -> int:
    text = environ.get(name)
    if text is None and usual is not None:
        return usual
    try:
        return int(text or "")
    except ValueError:
        raise BadInput(
            "not a whole number", where=name, found=repr(text), needs="a number from the launcher"
        ) from None


def _plain(name: str) -> str:
    """A name that is safe in a path."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip(".-")[:64] or "attached"
