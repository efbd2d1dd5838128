"""The communication hook: counts each collective into the slot, and looks at the gradient on the way.

The hook calls the default all-reduce and nothing else, with the same division as DDP without a hook (a
multiplication by 1/world before the sum), so the bits are those of plain DDP. A user's own hook is wrapped:
it decides what happens, we only count.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lastgood.base.clock import SystemClock
from lastgood.training.rank.buckets import BucketRecord
from lastgood.training.rank.gradient import is_finite, square_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lastgood.training.rank.injection import StepInjection
    from lastgood.training.rank.reductions import Reductions
    from lastgood.training.slot import StatusSlot

Hook = "Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]"


class CountingHook:
    """Counts bucket launches and completions of one generation and keeps what the gradient showed this step."""

    def __init__(
        self,
        slot: StatusSlot,
        injection: StepInjection,
        reductions: Reductions,
        inner: Callable | None = None,
        inner_state: object = None,
    ) -> None:
        """`inner` is the user's own hook and its state, or None for the default all-reduce."""
        self._slot = slot
        self._injection = injection
        self._reductions = reductions
        self._inner = inner
        self._inner_state = inner_state
        self.is_local_nonfinite = False
        self.waited_us = 0
        """Time of this step between the last launch and the last completion: waiting, not computing."""
        self._last_launch_us = 0
        self._clock = SystemClock()
        self._square_sums: dict[tuple[int, int], torch.Tensor | float] = {}
        """By wrapper and bucket: a second backward pass of a step replaces the first, as its sum holds both."""
        self.buckets = BucketRecord()
        """Of the first wrapper."""
        self._hooked: list[DistributedDataParallel] = []
        """Wrappers that have their hook; their place here is their number."""
        self._lock = threading.Lock()
        """Completions come from the group's own threads, and counting is not atomic."""

    def attach(self, ddp: DistributedDataParallel) -> None:
        """Register this hook with a freshly wrapped model."""
        self._register(ddp, self._inner, self._inner_state, ddp.register_comm_hook)

    def attach_once(self, ddp: DistributedDataParallel) -> None:
        """Register this hook unless the wrapper got one already while it was built."""
        if not any(known is ddp for known in self._hooked):
            self.attach(ddp)

    def detach(self) -> None:
        """The wrappers are let go of; a reduction that is still under way does not need them."""
        self._hooked = []

    @contextmanager
    def counting_users_hooks(self) -> Generator[None]:
        """Wrap each hook that a user's build registers, since DDP takes only one. Built-in hooks stay uncounted."""
        wrapper: Any = DistributedDataParallel
        real = wrapper.register_comm_hook
        real_builtin = wrapper._register_builtin_comm_hook  # noqa: SLF001 - it can only be noted

        def register(ddp: DistributedDataParallel, state: object, hook: Callable) -> None:
            self._register(ddp, hook, state, partial(real, ddp))

        def register_builtin(ddp: DistributedDataParallel, kind: Any) -> None:
            self._hooked.append(ddp)
            real_builtin(ddp, kind)

        wrapper.register_comm_hook = register
        wrapper._register_builtin_comm_hook = register_builtin  # noqa: SLF001
        try:
            yield
        finally:
            wrapper.register_comm_hook = real
            wrapper._register_builtin_comm_hook = real_builtin  # noqa: SLF001

    def _register(
        self,
        ddp: DistributedDataParallel,
        inner: Callable | None,
        inner_state: object,
        register: Callable,
    ) -> None:
        number = len(self._hooked)
        self._hooked.append(ddp)

        def lastgood_hook(_state, bucket):  # noqa: ANN001, ANN202 - torch compares annotations with its own types
            return self._reduce(bucket, number, inner, inner_state)

        register(None, lastgood_hook)

    def begin_step(self) -> None:
        """Forget the last step's gradient."""
        self.is_local_nonfinite = False
        self.waited_us = 0
        self._square_sums.clear()

    def grad_norm(self) -> float | None:
        """Norm of the reduced gradient of this step; None when no bucket was reduced (no backward pass)."""
        if not self._square_sums:
            return None
        sums = [self._square_sums[index] for index in sorted(self._square_sums)]
        if all(type(one) is float for one in sums):
            return math.sqrt(sum(sums))
        # On a device: one wait, not one for each bucket.
        whole = torch.stack([torch.as_tensor(one, dtype=torch.float64) for one in sums])
        return float(whole.sum().sqrt())

    def _reduce(
        self, bucket: dist.GradBucket, number: int, inner: Callable | None, inner_state: object
    ) -> torch.futures.Future[torch.Tensor]:
        """Reduce one bucket, after a look at what this rank puts into it."""
        self._reductions.refuse_revoked()
        buffer = bucket.buffer()
        if number == 0:
            self.buckets.see(bucket)
        self._injection.spoil_if_due(buffer)
        if not is_finite(buffer):
            self.is_local_nonfinite = True
        self._slot.count_launch(is_last=bucket.is_last())
        self._last_launch_us = self._clock.monotonic_us()
        if inner is not None:
            reduced = inner(inner_state, bucket)
        else:
            reduced = _all_reduce(buffer)
        finish = partial(self._completed, place=(number, bucket.index()))
        if inner is not None and not buffer.is_cpu:
            # Done once its work is queued on the device, and it makes who waits for it wait for that work too.
            return reduced.then(finish)
        return self._reductions.follow(reduced, finish)

    def _completed(
        self, done: torch.futures.Future[torch.Tensor], place: tuple[int, int]
    ) -> torch.Tensor:
        result = done.value()
        tensor = result[0] if isinstance(result, list) else result
        squares = square_sum(tensor)
        with self._lock:
            self._square_sums[place] = squares
            self._slot.count_completion()
            self.waited_us = self._clock.monotonic_us() - self._last_launch_us
        return tensor


def _all_reduce(buffer: torch.Tensor) -> torch.futures.Future[Any]:
    """Begin the reduction that DDP itself would make."""
    group = dist.GroupMember.WORLD
    assert group is not None, "gradients are reduced in a group"
    buffer.mul_(1.0 / group.size())
    # What `dist.all_reduce` does, without its checks: they cost more than the launch.
    parts = [torch.view_as_real(buffer) if buffer.is_complex() else buffer]
    return group.allreduce(parts).get_future()
