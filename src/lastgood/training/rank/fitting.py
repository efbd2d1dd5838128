"""Whether a saved state is one of this script's model at all: said in words before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput
from lastgood.training.rank import shards

if TYPE_CHECKING:
    import torch

    from lastgood.training.rank.snapshot import LoadedState
    from lastgood.training.rank.state import Trainable

_NEXT = "go on with the model and the optimizer that wrote it, or begin anew with another --run-id and --checkpoint-dir"


def refuse_other_model(trainable: Trainable, state: LoadedState) -> None:
    """End the run when the state belongs to another model or optimizer; every rank comes to the same answer.

    Buffers are left out: they may grow while training.

    Raises:
        BadInput: it names the first tensor that differs.
    """
    wanted = {
        shards.name_of(name, parameter): shards.local_of(parameter)
        for name, parameter in trainable.parameters().items()
    }
    saved = {name: tensor for name, tensor in state.tensors.items() if _is_parameter(name)}
    differing = [
        name
        for name in (*wanted, *(name for name in saved if name not in wanted))
        if _form(wanted.get(name)) != _form(saved.get(name))
    ]
    if differing:
        name, *others = differing
        more = f"; {len(others)} more differ" if others else ""
        raise BadInput(
            "the saved state is one of another model",
            where=f"state {state.step}",
            found=f"{_plain(name)} {_form(saved.get(name))} there, {_form(wanted.get(name))} in the script{more}",
            needs="the same parameters",
            next=_NEXT,
        )
    groups = len(state.values["optimizer_groups"])
    if groups != len(trainable.optimizer.param_groups):
        raise BadInput(
            "the saved state is one of another optimizer",
            where=f"state {state.step}",
            found=f"{groups} parameter groups there, {len(trainable.optimizer.param_groups)} in the script",
            needs="the same groups",
            next=_NEXT,
        )


def _is_parameter(name: str) -> bool:
    return name.removeprefix(shards.SHARD).startswith(("model.", "outside."))


def _plain(name: str) -> str:
    """The name as the script has it."""
    return name.removeprefix(shards.SHARD).removeprefix("model.")


def _form(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "is not"
    return f"is {tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
