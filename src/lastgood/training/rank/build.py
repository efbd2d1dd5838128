"""How a rank gets the model that it trains: a module that stays, or functions that make everything anew.

A module that is given as an object lives as long as its process, and only what is wrapped around it changes with
the generation. Sharding (FSDP2's `fully_shard`) changes the module itself and ties it to one process group, so there
the model, its optimizer and its scheduler are given as functions and are made anew in every generation.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lastgood.base.errors import BadInput, LastgoodError, Refused
from lastgood.training.rank.group import is_group_error
from lastgood.training.rank.state import Trainable

if TYPE_CHECKING:
    from collections.abc import Callable

_WHERE = "lastgood.start(build=...)"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What the script handed to `lastgood.start` to train with; a function where an object would do is called anew."""

    model: Any
    optimizer: Any
    scheduler: Any = None
    build: Callable[[torch.nn.Module, dist.ProcessGroup], torch.nn.Module] | None = None

    @property
    def is_made_anew(self) -> bool:
        """True when every generation gets a model and an optimizer of its own."""
        return not isinstance(self.model, torch.nn.Module)

    def check(self, *, has_ddp_options: bool = False) -> None:
        """Refuse what can be seen to be wrong before there is a rank."""
        self._check_kinds()
        if self.build is not None and not callable(self.build):
            raise BadInput(
                "build is not a function",
                where=_WHERE,
                found=type(self.build).__name__,
                needs="a function (module, group) -> wrapped module",
            )
        if self.build is not None and has_ddp_options:
            raise BadInput(
                "two ways to wrap one model",
                where="lastgood.start",
                found="build beside ddp or hook",
                needs="one of them",
                next="give DDP its options and its hook inside build",
            )

    def _check_kinds(self) -> None:
        """Objects or functions, but not some of each."""
        if self.is_made_anew and not callable(self.model):
            raise BadInput(
                "the model is neither a module nor a function",
                where="lastgood.start(model=...)",
                found=type(self.model).__name__,
                needs="a torch module, or a function that returns one",
            )
        if self.is_made_anew == hasattr(self.optimizer, "param_groups"):
            found = "a function and an object" if self.is_made_anew else "an object and a function"
            raise BadInput(
                "a model that is made anew needs an optimizer that is made anew, and the other way round",
                where="lastgood.start(model=..., optimizer=...)",
                found=found,
                needs="two objects or two functions",
                next="write: optimizer=lambda model: torch.optim.AdamW(model.parameters())",
            )
        if self.is_made_anew and self.scheduler is not None and not callable(self.scheduler):
            raise BadInput(
                "a scheduler belongs to one optimizer",
                where="lastgood.start(scheduler=...)",
                found=f"a {type(self.scheduler).__name__} beside an optimizer that is made anew",
                needs="a function of the optimizer",
                next="write: scheduler=lambda optimizer: ...",
            )

    def make_trainable(self, scaler: Any, extra: dict[str, Any]) -> Trainable:
        """Return the state that a rank begins with; what is made anew has no optimizer before it is wrapped."""
        module = self.make_module()
        if self.is_made_anew:
            return Trainable(module, None, None, scaler, extra)
        return Trainable(module, self.optimizer, self.scheduler, scaler, extra)

    def make_module(self) -> torch.nn.Module:
        """Return a bare module: the one there is, or a new one."""
        if not self.is_made_anew:
            return self.model
        made = self.model()
        if not isinstance(made, torch.nn.Module):
            raise BadInput(
                "the function did not return a module",
                where="lastgood.start(model=...)",
                found=type(made).__name__,
                needs="a torch module",
            )
        return made

    def make_optimizer(self, wrapped: torch.nn.Module, trainable: Trainable) -> None:
        """Give the state its optimizer and scheduler for the parameters as they are now; those before become unusable."""
        if not self.is_made_anew:
            return
        for old in (trainable.optimizer, trainable.scheduler):
            if old is not None:
                old.step = _refuse_stale
        trainable.optimizer = self.optimizer(wrapped)
        trainable.scheduler = (
            None if self.scheduler is None else self.scheduler(trainable.optimizer)
        )


def _refuse_stale(*_args: Any, **_kwargs: Any) -> None:
    raise Refused(
        "this optimizer belongs to an earlier generation",
        where="optimizer.step()",
        found="an optimizer or scheduler that was kept in a variable",
        needs="the present one: it is made anew together with the model",
        next="write: run.optimizer.step() and run.scheduler.step()",
    )


def call_build(
    build: Callable[[torch.nn.Module, dist.ProcessGroup], torch.nn.Module],
    module: torch.nn.Module,
    *,
    is_made_anew: bool,
) -> torch.nn.Module:
    """Return what the user's function makes of the module, and refuse what would break at the next recovery."""
    before = None if is_made_anew else _fingerprint(module)
    group = dist.group.WORLD
    assert group is not None, "a rank that wraps has joined"
    try:
        wrapped = build(module, group)
    except Exception as error:
        if isinstance(error, LastgoodError) or is_group_error(error):
            raise  # a peer died meanwhile: the next generation calls build again
        raise Refused(
            "build raised",
            where=_place_of(error),
            found=f"{type(error).__name__}: {error}",
            needs="a function that works in every generation, on every rank",
        ) from error
    if not isinstance(wrapped, torch.nn.Module):
        raise BadInput(
            "build did not return a module",
            where=_WHERE,
            found=type(wrapped).__name__,
            needs="the wrapped module",
            next="end the function with: return wrapped",
        )
    _refuse_flat_shards(wrapped)
    if before is not None:
        _refuse_changed(before, _fingerprint(module))
        known = {id(p) for p in module.parameters()}
        added = [n for n, p in wrapped.named_parameters() if id(p) not in known]
        if added:
            raise Refused(
                "build adds parameters that are not part of the state",
                where=_WHERE,
                found=", ".join(added[:3]),
                needs="a wrapper around the module's own parameters",
                next="add them to the model before lastgood.start",
            )
    return wrapped


def _place_of(error: BaseException) -> str:
    """Where in the user's function it went wrong, as `train.py:12`: the outermost frame that is not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = frames[min(1, len(frames) - 1)]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _fingerprint(module: torch.nn.Module) -> dict[str, object]:
    """What a wrapper has to leave alone: parts, parameters and hooks of the bare module."""
    found: dict[str, object] = {
        name: (type(part).__name__, *(len(hooks) for hooks in _hooks_of(part)))
        for name, part in module.named_modules()
    }
    return found | {f"{name} (parameter)": id(p) for name, p in module.named_parameters()}


def _hooks_of(part: torch.nn.Module) -> tuple[dict, ...]:
    return part._forward_hooks, part._forward_pre_hooks  # noqa: SLF001 - torch has no public list of them


def _refuse_changed(before: dict[str, object], after: dict[str, object]) -> None:
    changed = [
        name or "the module itself"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    if changed:
        raise Refused(
            "build changed the bare module",
            where=_WHERE,
            found=", ".join(changed[:3]),
            needs="the module as it was: build is called again in every generation, on the same one",
            next="do it before lastgood.start, or give functions: model=make_model, optimizer=make_optimizer",
        )


def _refuse_flat_shards(wrapped: torch.nn.Module) -> None:
    """FSDP1 keeps its shards in plain tensors: they would be compared between ranks and found to differ."""
    fsdp = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    kind = getattr(fsdp, "FullyShardedDataParallel", None)
    if kind is not None and any(isinstance(part, kind) for part in wrapped.modules()):
        raise Refused(
            "FullyShardedDataParallel is not supported",
            where=_WHERE,
            found="flat parameters of which every rank holds another part",
            needs="shards that say that they are shards",
            next="shard with torch.distributed.fsdp.fully_shard",
        )
