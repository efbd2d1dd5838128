"""`lastgood.start` under observe mode: the same loop, with one group and one wrapper, and nothing else done about faults.

A newcomer watches a script first and lets lastgood act later; the script is the same in both. Here a step is run once,
no snapshot is taken, no spare waits, and what the step raises leaves the script as it would without lastgood.
"""

from __future__ import annotations

import atexit
import math
import os
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lastgood.base.errors import BadInput
from lastgood.base.units import parse_duration_us
from lastgood.signals.reading import Phase
from lastgood.training.rank.build import Blueprint
from lastgood.training.rank.counting import Counting, current_counting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import TracebackType


def is_observed() -> bool:
    """True in a rank that `lastgood run` watches from outside."""
    return "LASTGOOD_MODE" in os.environ and current_counting() is not None


def start_observed(
    blueprint: Blueprint,
    loader: Callable[[int, int], Iterable[Any]],
    *,
    ddp: dict[str, Any],
    hook: Callable | None,
    hook_state: object,
) -> ObservedRun:
    """Join the group of torchrun's environment, wrap the model, and return the run."""
    counting = current_counting()
    assert counting is not None, "asked after is_observed"
    dist.init_process_group("gloo")
    atexit.register(_leave_group)
    module = blueprint.model() if blueprint.is_made_anew else blueprint.model
    if blueprint.build is not None:
        model = blueprint.build(module, dist.group.WORLD)  # type: ignore[arg-type]
    else:
        model = DistributedDataParallel(module, **ddp)
        if hook is not None:
            model.register_comm_hook(hook_state, hook)
    optimizer, scheduler = blueprint.optimizer, blueprint.scheduler
    if blueprint.is_made_anew:
        optimizer = optimizer(model)
        scheduler = None if scheduler is None else scheduler(optimizer)
    counting.count_by_script(1)
    return ObservedRun(counting, model, loader, optimizer=optimizer, scheduler=scheduler)


def _leave_group() -> None:
    with suppress(RuntimeError, ValueError, AssertionError):
        if dist.is_initialized():
            dist.destroy_process_group()


class ObservedStep:
    """One step. `is_replay` is never true here: nothing is run twice."""

    is_replay = False

    def __init__(self, run: ObservedRun, number: int) -> None:
        self._run = run
        self.number = number
        self.loss: torch.Tensor | float | None = None
        self.grad_norm: torch.Tensor | float | None = None
        self.work: float | None = None
        self.is_accepted = False

    def __enter__(self) -> ObservedStep:
        self._run.counting.begin_step()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            loss = self.loss.detach() if isinstance(self.loss, torch.Tensor) else self.loss
            self.is_accepted = True
            self._run.counting.step_done(self.number, loss=None if loss is None else float(loss))


class ObservedRun:
    """What `lastgood.start` returns under observe mode: the names of a run, without recovery."""

    def __init__(
        self,
        counting: Counting,
        model: torch.nn.Module,
        loader: Callable[[int, int], Iterable[Any]],
        *,
        optimizer: Any,
        scheduler: Any,
    ) -> None:
        self.counting = counting
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.epoch = 0
        self._make = loader
        self._loader = loader(self.rank, self.world)

    @property
    def steps_done(self) -> int:
        """Newest finished step; 0 before the first."""
        return self.counting.steps_done

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs that are left."""
        while self.epoch < count:
            before = self.epoch
            yield before
            if self.epoch == before:
                self.epoch += 1

    def batches(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Any]:
        """Yield the batch of each step; the arguments are those of a supervised run."""
        last_epoch: float = self.epoch + 1 if steps is None else math.inf
        last_epoch = last_epoch if epochs is None else epochs
        while self.epoch < last_epoch and not self._is_done(steps):
            before = self.steps_done
            for batch in self._one_epoch():
                yield batch
                if self._is_done(steps):
                    return
            if self.steps_done == before:
                raise BadInput(
                    "the loader gave no batch",
                    where="lastgood.start(loader=...)",
                    found="an epoch without a single step",
                    needs="at least one batch on every rank, and one run.step() block for each",
                )
            self.epoch += 1

    def _is_done(self, steps: int | None) -> bool:
        return steps is not None and self.steps_done >= steps

    def _one_epoch(self) -> Iterator[Any]:
        if getattr(self._loader, "__next__", None) is not None and self.epoch:
            self._loader = self._make(self.rank, self.world)
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(self.epoch)
        return iter(self._loader)

    def step(self) -> ObservedStep:
        """Return the block in which one step runs."""
        return ObservedStep(self, self.steps_done + 1)

    def section(
        self, name: str, *, limit: str | None = None, counts_as: str = "productive"
    ) -> AbstractContextManager[None]:
        """Declare a long phase outside the steps, with its own limit for the hang detector."""
        del counts_as  # from outside every second between steps counts alike
        return self._section(name, 0 if limit is None else parse_duration_us(limit))

    @contextmanager
    def _section(self, name: str, limit_us: int) -> Generator[None]:
        self.counting.slot.open_section(name, limit_us)
        try:
            yield
        finally:
            self.counting.slot.close_section()
            self.counting.slot.enter(Phase.BETWEEN)
