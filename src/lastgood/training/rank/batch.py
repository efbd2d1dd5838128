"""A batch that can be handed out again: the step that had it may have taken it apart.

Many scripts begin a step with `labels = batch.pop("labels")`, or scale the inputs in place. Containers are therefore
handed out as copies, which costs nothing next to a step. Tensors are shared until a step is seen to change one
(torch counts the changes of each tensor): copying every large batch would make everybody pay for a few.
"""

from __future__ import annotations

import copy
from typing import Any

import torch


def shared_copy(batch: Any) -> Any:
    """Return new containers around the same tensors; anything else is copied, or shared where it cannot be."""
    if isinstance(batch, torch.Tensor):
        return batch
    if type(batch) is dict:
        return {key: shared_copy(value) for key, value in batch.items()}
    if type(batch) is list:
        return [shared_copy(value) for value in batch]
    if isinstance(batch, tuple):
        parts = [shared_copy(value) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return full_copy(batch)


def full_copy(batch: Any) -> Any:
    """Return a copy with tensors of its own; the batch itself where it does not allow that."""
    try:
        return copy.deepcopy(batch)
    except (TypeError, RuntimeError, ValueError, AttributeError, copy.Error):
        return batch


def tensor_versions(batch: Any) -> tuple[int, ...]:
    """Return how often each tensor of a batch was changed in place, in one stable order."""
    if isinstance(batch, torch.Tensor):
        return () if batch.is_inference() else (batch._version,)  # noqa: SLF001 - torch's own way to see a change
    if type(batch) is dict:
        return tuple(v for value in batch.values() for v in tensor_versions(value))
    if isinstance(batch, list | tuple):
        return tuple(v for value in batch for v in tensor_versions(value))
    return ()
