"""How large the state of a rank will be: asked before the first step, when most optimizers still hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lastgood.training import control

if TYPE_CHECKING:
    from lastgood.training.rank.state import Trainable


def ready_message(trainable: Trainable, *, is_sharded: bool) -> control.Ready:
    """Say that the script has reached `lastgood.start`, and how much it will need.

    A wrapper of the script's own may shard the model in each generation: then nobody knows yet.
    """
    parameters = trainable.model.parameters()
    return control.Ready(
        state_bytes=sum(p.numel() * p.element_size() for p in parameters),
        snapshot_bytes=0 if is_sharded else expected_state_bytes(trainable),
    )


def expected_state_bytes(trainable: Trainable) -> int:
    """Return the bytes of the tensors that a snapshot will hold: those of now, and those of an optimizer to come."""
    replicated, private = trainable.tensors()
    now = sum(t.numel() * t.element_size() for t in (*replicated.values(), *private.values()))
    optimizer = trainable.optimizer
    if optimizer.state:
        return now
    to_come = sum(
        parameter.numel() * parameter.element_size() * _tensors_per_parameter(group)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if isinstance(parameter, torch.Tensor) and parameter.requires_grad
    )
    return now + to_come


def _tensors_per_parameter(group: dict[str, object]) -> int:
    """How many tensors of a parameter's size its optimizer keeps, told by its options; none where they say nothing."""
    if "betas" in group:  # Adam and its kin: two moments
        return 3 if group.get("amsgrad") else 2
    if "alpha" in group and "centered" in group:  # RMSprop
        return 1 + bool(group.get("centered")) + bool(group.get("momentum"))
    return 1 if group.get("momentum") or "initial_accumulator_value" in group else 0
