"""Where a process stands in a job that somebody else started, read from the environment of the launcher."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lastgood.base.errors import BadInput

REQUEUE_STRIDE = 100
"""Attempts of one requeue of Slurm: restarts of torchrun within it are counted from there."""
_OF_A_RANK = re.compile(r"--?((local|node|group|global)[-_])?rank")
"""Options that are different in each rank of a job."""
_NAMELESS = "attached"
"""The job of a launcher that names none."""


class NamedBy(enum.StrEnum):
    """Where the name of a run comes from, and so what it tells apart."""

    JOB = "job"
    """Somebody named the job."""
    LAUNCH = "launch"
    """A word that is new in each launch and alike in its ranks and restarts."""
    ROUND = "round"
    """A word that is alike in all ranks and new in each restart: the endpoint that torchrun chose for it."""
    NOTHING = "nothing"
    """Nothing that is new in each launch: another job may get the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank among all. Ranks are 0-based, attempts 1-based."""

    launcher: str
    """torchrun, slurm, kubernetes or plain."""
    run: str
    job: str
    """What is alike in every launch of the job and in no other: snapshots and repeated errors go by it."""
    named_by: NamedBy
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


def find_place(
    environ: Mapping[str, str],
    *,
    hostname: str,
    run: str | None = None,
    started_as: Sequence[str] = (),
) -> Place:
    """The place of this process.

    Args:
        environ: what the launcher set.
        hostname: used where the launcher names no host.
        run: the name that the script gives.
        started_as: folder and command line, which tell one job without a name from another.

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
    name, named_by = job, NamedBy.JOB
    if not given and job == _NAMELESS:
        suffix, named_by = _launch_of(environ, is_alone=local_world == world)
        name, job = job + suffix, job + _word_of(started_as)
    return Place(
        launcher=launcher,
        run=_plain(name),
        job=_plain(job),
        named_by=named_by,
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


class _Launch(NamedTuple):
    suffix: str
    named_by: NamedBy


def _launch_of(environ: Mapping[str, str], *, is_alone: bool) -> _Launch:
    """What tells one launch of a job without a name from all others, as far as every rank of it sees the same."""
    folder = _folder_of_torchrun(environ) if is_alone else ""
    if folder:
        return _Launch("." + folder, NamedBy.LAUNCH)
    endpoint = "-".join(environ[n] for n in ("MASTER_ADDR", "MASTER_PORT") if environ.get(n))
    suffix = "." + endpoint if endpoint else ""
    is_new = bool(suffix) and _launcher(environ) == "torchrun" and not has_agent_store(environ)
    return _Launch(suffix, NamedBy.ROUND if is_new else NamedBy.NOTHING)


def has_agent_store(environ: Mapping[str, str]) -> bool:
    """Whether torchrun keeps a store for the ranks of all hosts, at the same address over its restarts."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"


def named_in_store(place: Place, word: str) -> Place:
    """The place under the word that all hosts of the launch agreed on in its store."""
    return replace(place, run=_plain(f"{_NAMELESS}.{word}"), named_by=NamedBy.LAUNCH)


def _word_of(started_as: Sequence[str]) -> str:
    """A word for a folder and a command line, without arguments that are different in each rank."""
    kept, is_value = [], False
    for argument in started_as:
        is_rank = _OF_A_RANK.fullmatch(argument.partition("=")[0]) is not None
        if not is_rank and not is_value:
            kept.append(argument)
        is_value = is_rank and "=" not in argument
    if not kept:
        return ""
    return "-" + hashlib.sha256("\0".join(kept).encode(errors="surrogateescape")).hexdigest()[:16]


def _folder_of_torchrun(environ: Mapping[str, str]) -> str:
    """The folder that a torchrun makes on its host for the ranks' errors, new in each launch; empty where there is none.

    It is `.../none_x7f2k1ab/attempt_0/RANK/error.json`, alike for all ranks and restarts.
    """
    parts = Path(environ.get("TORCHELASTIC_ERROR_FILE") or "").parts
    if len(parts) < 4 or not parts[-3].startswith("attempt_"):
        return ""
    return parts[-4].removeprefix(environ.get("TORCHELASTIC_RUN_ID", "") + "_")


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
