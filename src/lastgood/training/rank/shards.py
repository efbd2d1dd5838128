"""Shards in the state of a rank: the part of a distributed tensor that this rank holds.

A shard is private by nature: every rank has another part, so no digest of it can be compared between ranks, only with
what the same rank published before. What is captured and restored is the local tensor; its mesh and placements belong
to the generation and are made anew with it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from lastgood.base.errors import Refused

SHARD = "shard."
"""Prefix of the names of shards in snapshots and checkpoints."""
OWN_PREFIXES = ("buffer.", SHARD)
"""Names of tensors that belong to one rank alone."""


def is_shard(tensor: torch.Tensor) -> bool:
    """True for a distributed tensor."""
    kind = _shard_type()
    return kind is not None and isinstance(tensor, kind)


def _shard_type() -> type | None:
    """The type of distributed tensors. It costs no import: where nothing is sharded, torch has not loaded it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes that this rank holds: the shard of a distributed tensor, any other tensor itself."""
    if not is_shard(tensor):
        return tensor
    return tensor.to_local()  # pyrefly: ignore[missing-attribute] - a DTensor


def split(
    named: dict[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the tensors that all ranks share, and this rank's shards under their own names."""
    kind = _shard_type()
    if kind is None:
        return named, {}
    whole = {name: tensor for name, tensor in named.items() if not isinstance(tensor, kind)}
    if len(whole) == len(named):
        return whole, {}
    return whole, {
        SHARD + name: local_of(tensor.detach())
        for name, tensor in named.items()
        if is_shard(tensor)
    }


def name_of(name: str, tensor: torch.Tensor) -> str:
    """Return the name under which a live tensor was kept."""
    return SHARD + name if is_shard(tensor) else name


def holds_shards(tensors: dict[str, torch.Tensor]) -> bool:
    """True when a saved state has shards."""
    return any(name.startswith(SHARD) for name in tensors)


def settled(current: Any, saved: torch.Tensor, *, like: torch.Tensor) -> torch.Tensor:
    """Return a saved shard of the optimizer's state as a distributed tensor, laid out as its parameter is."""
    with torch.no_grad():
        is_usable = (
            isinstance(current, torch.Tensor)
            and is_shard(current)
            and local_of(current).shape == saved.shape
            and current.dtype == saved.dtype
        )
        found = current if is_usable else torch.zeros_like(like, dtype=saved.dtype)
        local = local_of(found)
        if local.shape != saved.shape:
            raise Refused(
                "a sharded state of the optimizer has another shape than its parameter",
                where="lastgood.start(optimizer=...)",
                found=f"a shard of {tuple(saved.shape)} for one of {tuple(local.shape)}",
                needs="an optimizer whose states are shaped like the parameters, such as AdamW",
            )
        local.copy_(saved)
        return found
