"""Counts the collectives of a model that is not wrapped in DDP, such as a sharded one, into the rank's status page.

DDP's reductions start in C++ and are counted by its communication hook. Everything else calls functions of
`torch.distributed`, through the module: those are replaced once a process by functions that count and call them.
A rank that has entered fewer collectives than its peers is the one that they wait for. How long a rank waited in a
call that returns before it is done (FSDP2's are of that kind) cannot be seen from here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from lastgood.base.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood.training.slot import StatusSlot

_NAMES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
)  # fmt: skip
"""Those that this torch has are counted."""

_serving: list[CollectiveCount] = []
"""The count of the present generation; empty while none is wanted. The functions are replaced only once."""
_is_installed = False


class CollectiveCount:
    """Stands where DDP's hook stands: what it saw of the step that runs."""

    is_local_nonfinite = False
    """Gradients are not looked at: a shard's gradient is that of all ranks together."""

    def __init__(self, slot: StatusSlot) -> None:
        self._slot = slot
        self._clock = SystemClock()
        self._is_inside = False
        self.waited_us = 0
        """Time of this step inside calls that returned when they were done."""

    def start(self) -> None:
        """Count from now on, in place of whoever counted before."""
        _install()
        _serving[:] = [self]

    def begin_step(self) -> None:
        """Forget the last step."""
        self.waited_us = 0

    def grad_norm(self) -> float | None:
        """None: the step says it itself, or nobody knows."""
        return None

    def around(self, function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a collective and count it; one that is called by another one is part of it."""
        if self._is_inside:
            return function(*args, **kwargs)
        self._is_inside = True
        returns_early = bool(kwargs.get("async_op"))
        before = self._slot.view().phase
        began_us = self._clock.monotonic_us()
        self._slot.count_launch(is_last=not returns_early)
        try:
            return function(*args, **kwargs)
        finally:
            self._is_inside = False
            self._slot.count_completion()
            if not returns_early:
                self.waited_us += self._clock.monotonic_us() - began_us
                self._slot.enter(before)


def collective_count() -> int | None:
    """How many collectives this rank has begun in its group, as torch numbers them; None where there is no group yet."""
    group = dist.GroupMember.WORLD
    if group is None:
        return None
    # A group that is still to come has no numbers, and torch has no public name for them. Read twice in each step.
    try:
        return group._get_sequence_number_for_group()  # type: ignore[missing-attribute]  # noqa: SLF001 - the stub lacks it
    except (RuntimeError, AttributeError):
        return None


def stop_counting() -> None:
    """Count nothing until the next start: DDP's hook counts, or there is no group."""
    _serving.clear()


def _install() -> None:
    global _is_installed  # noqa: PLW0603 - the functions that it replaces are global too
    if _is_installed:
        return
    _is_installed = True
    for name in _NAMES:
        function = getattr(dist, name, None)
        if function is not None:
            setattr(dist, name, _counted(function))


def _counted(function: Callable) -> Callable:
    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if not _serving:
            return function(*args, **kwargs)
        return _serving[0].around(function, args, kwargs)

    return counted
