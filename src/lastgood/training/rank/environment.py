"""What a script may know before it has a rank.

The code before `lastgood.start` also runs in parked spares, which have no rank yet. A script that reads RANK or
creates a process group there would freeze one rank into a process that may later serve another, so both are
refused with the fix, instead of going wrong at the first recovery.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from lastgood.base.errors import Refused

RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"})


class _GuardedEnviron(os._Environ):  # noqa: SLF001 - the only way to see a read of os.environ
    def __getitem__(self, key: str) -> str:
        if key in RANK_VARIABLES and key.encode() not in self._data:  # pyrefly: ignore[missing-attribute]
            raise Refused(
                "there is no rank before lastgood.start",
                where=f"os.environ[{key!r}]",
                found="code that runs in every worker, parked spares included",
                needs="a rank only after the call of lastgood.start",
                next="read run.rank after it, or pass loader=lambda rank, world: ...",
            )
        return super().__getitem__(key)


def _refuse_group(*_args: Any, **_kwargs: Any) -> None:
    raise Refused(
        "a process group before lastgood.start would belong to no generation",
        where="torch.distributed.init_process_group",
        found="a call in the script, before lastgood.start",
        needs="the group that lastgood.start creates, and creates again after a fault",
        next="delete the call (and destroy_process_group at the end)",
    )


_real_init = dist.init_process_group


def guard() -> None:
    """Refuse ranks and groups until `release`."""
    os.environ.__class__ = _GuardedEnviron
    dist.init_process_group = _refuse_group


def release(*, rank: int, world: int, generation: int) -> None:
    """Give the script the environment that torchrun would have given it, for this generation."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        ROLE_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        ROLE_WORLD_SIZE=str(world),
        TORCHELASTIC_RESTART_COUNT=str(generation - 1),
    )
    dist.init_process_group = _real_init
