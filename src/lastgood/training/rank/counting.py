"""Counts collectives and steps of a script that knows nothing of it, into the rank's status page.

Three places are hooked, all public API of torch or plain functions of its modules: collectives called from Python,
`DistributedDataParallel` (whose reductions start in C++, so the last gradient of its first parameter stands for
"everything is launched"), and the optimizers' step. Nothing that the script computes is touched: the hooks call what
they replace with the same arguments, and write a few words of shared memory.
"""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from lastgood.base.clock import SystemClock
from lastgood.signals.reading import Phase, StepReport
from lastgood.training.observe.first_note import FirstNote, write_first_note
from lastgood.training.rank.starving import OwnWait

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from lastgood.training.slot import StatusSlot

COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_to_all",
    "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "init_process_group",
    "monitored_barrier", "new_group", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter",
    "scatter_object_list",
)  # fmt: skip
_NAMESPACES = (dist, dist.distributed_c10d)
_STATE_MAKER = "torch.distributed.checkpoint.state_dict"

_installed: list[Counting] = []


def current_counting() -> Counting | None:
    """The hooks of this process, or None when none are installed."""
    return _installed[0] if _installed else None


class Counting:
    """The hooks of one rank. Install them before the script makes its wrapper and its group."""

    def __init__(self, slot: StatusSlot, *, rank: int, first_step: Path | None = None) -> None:
        """`first_step` is where the number of the first counted step is noted, once."""
        self.slot = slot
        self.rank = rank
        self.steps_done = 0
        self.has_stepped = False
        """True once this process has done a step."""
        self.on_step: Callable[[int], None] | None = None
        """Called behind each counted step, in the thread that trains."""
        self._first_step = first_step
        self._clock = SystemClock()
        self._thread = threading.local()
        self._lock = threading.Lock()
        """Collectives may be called from the autograd threads, and counting is not atomic."""
        self._leader: int | None = None
        """The optimizer whose steps are counted: the first that stepped."""
        self.is_counted_by_script = False
        self._is_resumed = False
        self._step_began_us = self._clock.monotonic_us()
        self._waited_us = 0
        self._own_wait = OwnWait()
        self._first_began_us = 0
        """When the first forward pass began, monotonic."""
        self._last_gradient_us: int | None = None
        self._backward_depth = 0

    def install(self) -> Counting:
        """Hook this process; returns itself. A second call in one process is an error of the caller."""
        assert not _installed, "one set of hooks a process"
        _installed.append(self)
        for name in COLLECTIVES:
            function = getattr(dist.distributed_c10d, name, None)
            if function is not None:
                counted = self._counted(function)
                for namespace in _NAMESPACES:
                    if getattr(namespace, name, None) is function:
                        setattr(namespace, name, counted)
        self._hook_wrapper()
        self._hook_backward()
        register_optimizer_step_post_hook(self._optimizer_stepped)
        return self

    # --- collectives ------------------------------------------------------------------------------

    def _counted(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.inside():
                return function(*args, **kwargs)

        return counted

    @contextmanager
    def inside(self) -> Generator[None]:
        """Count one collective around a block; one that is called by another one is part of it."""
        if getattr(self._thread, "is_inside", False):
            yield
            return
        self._thread.is_inside = True
        before = self.slot.view().phase
        began_us = self._clock.monotonic_us()
        with self._lock:
            self.slot.count_launch(is_last=True)
        try:
            yield
        finally:
            self._thread.is_inside = False
            with self._lock:
                self._count_completion()
                self._waited_us += self._clock.monotonic_us() - began_us
            self.slot.enter(before)

    def _count_completion(self) -> None:
        """Before the first step nothing counts as left: lazy imports and compilation have the limit of a first step."""
        if self.has_stepped:
            self.slot.count_completion()
        else:
            self.slot.touch()

    # --- the wrapper and the backward pass --------------------------------------------------------

    def _hook_wrapper(self) -> None:
        make = DistributedDataParallel.__init__

        @functools.wraps(make)
        def made(wrapper: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            with self.inside():  # its constructor broadcasts from C++
                make(wrapper, *args, **kwargs)
            self.follow(wrapper)

        DistributedDataParallel.__init__ = made

    def follow(self, wrapper: DistributedDataParallel) -> None:
        """Watch a wrapper's forward pass, its broadcast of buffers and its last gradient."""
        wrapper.register_forward_pre_hook(lambda *_: self.begin_step())
        first = next((p for p in wrapper.module.parameters() if p.requires_grad), None)
        if first is not None:
            first.register_post_accumulate_grad_hook(lambda _: self._last_gradient())
        broadcast = getattr(wrapper, "_sync_buffers", None)
        if broadcast is not None:
            wrapper._sync_buffers = self._counted(broadcast)  # noqa: SLF001 - torch offers no hook for it

    def _last_gradient(self) -> None:
        """The gradient that DDP reduces last is there: from here to the end of the pass this rank waits for peers."""
        with self._lock:
            self.slot.count_launch(is_last=True)
        self._last_gradient_us = self._clock.monotonic_us()

    def _hook_backward(self) -> None:
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._backward_depth += 1
            try:
                return backward(*args, **kwargs)
            finally:
                self._backward_depth -= 1
                if not self._backward_depth and self._last_gradient_us is not None:
                    self._end_wait()

        torch.autograd.backward = counted

    def _end_wait(self) -> None:
        assert self._last_gradient_us is not None
        with self._lock:
            self._count_completion()
            self._waited_us += self._clock.monotonic_us() - self._last_gradient_us
        self._last_gradient_us = None
        self.slot.enter(Phase.COMPUTE)

    # --- steps ------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """The rank computes: a forward pass began."""
        if not self._first_began_us:
            self._first_began_us = self._clock.monotonic_us()
        if self.slot.view().phase is not Phase.SECTION:
            self.slot.enter(Phase.COMPUTE, step=self.steps_done + 1)

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if self.is_counted_by_script or is_empty_step():
            return
        if self._leader is None:
            self._leader = id(optimizer)
            known = steps_of(optimizer)
            if known is not None:
                self.steps_done = max(0, known - 1)
            source = "script" if self._is_resumed else "count" if known is None else "optimizer"
            self._write_first(self.steps_done + 1, source)
        if id(optimizer) == self._leader:
            self.step_done(self.steps_done + 1)

    def _write_first(self, step: int, source: str) -> None:
        began_us = self._first_began_us or self._clock.monotonic_us()
        if self._first_step is not None:
            with suppress(OSError):
                write_first_note(self._first_step, FirstNote(step, source, began_us))

    def resume_from(self, step: int) -> None:
        """The state of this step was loaded: the next one follows it."""
        self.steps_done, self._is_resumed = step, True

    def count_by_script(self, step: int) -> None:
        """The script numbers its steps itself: `step` is the first one, and optimizers are not counted any more."""
        self.is_counted_by_script = True
        self._write_first(step, "script")

    def step_done(self, step: int, *, loss: float | None = None) -> None:
        """Publish one finished step."""
        now_us = self._clock.monotonic_us()
        whole_us = now_us - self._step_began_us
        own_us = max(0, whole_us - self._waited_us)
        report = StepReport(
            rank=self.rank,
            step=step,
            digest="0",
            loss=loss,
            grad_norm=None,
            local_nonfinite=False,
            self_us=own_us,
            step_us=whole_us,
            starved_us=self._own_wait.starved_us(own_us),
        )
        self._own_wait.begin()
        self.steps_done, self.has_stepped = step, True
        self._step_began_us, self._waited_us = now_us, 0
        self.slot.publish(report, done_wall_us=now_us)  # monotonic: the watcher has the time base
        self.slot.set_published(step)
        self.slot.enter(Phase.BETWEEN, step=step)
        if self.on_step is not None:
            self.on_step(step)


def is_empty_step() -> bool:
    """Whether the step that is just being made is none of the training: `torch.distributed.checkpoint` asked for it.

    It makes an optimizer's state by a step with rates and gradients of zero before it loads into it. Who asks is looked
    at and not these values: a warm-up may begin with a rate of zero, on a rank whose own shards are empty, and its peers
    count that step.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _STATE_MAKER:
            return True
        frame = frame.f_back
    return False


def steps_of(optimizer: torch.optim.Optimizer) -> int | None:
    """How many steps an optimizer has made, by its own state (Adam and its kin); None where it keeps no count.

    A script that loads its optimizer's state goes on with the step where its checkpoint was taken, and this tells.
    """
    for state in optimizer.state.values():
        found = state.get("step") if isinstance(state, dict) else None
        if found is not None:
            return int(found)
    return None
