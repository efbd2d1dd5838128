"""The model as the script calls it: one stable object over a wrapper that changes with every generation."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lastgood.signals.reading import Phase
from lastgood.training.rank.buckets import is_static, lay_out, lays_out_again, registered_in
from lastgood.training.rank.build import call_build
from lastgood.training.rank.collectives import CollectiveCount, stop_counting
from lastgood.training.rank.hook import CountingHook
from lastgood.training.rank.shards import is_shard
from lastgood.training.rank.state import digest_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lastgood.training.rank.buckets import Layout
    from lastgood.training.rank.build import Blueprint
    from lastgood.training.rank.injection import StepInjection
    from lastgood.training.rank.reductions import Reductions
    from lastgood.training.rank.state import Trainable
    from lastgood.training.slot import StatusSlot


class Replica:
    """The data-parallel model of a rank; call it like the module it stands for.

    It forwards attributes to the current wrapper, so `run.model.module` and `run.model.no_sync()` work as with DDP,
    and it may be kept in a variable.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        trainable: Trainable,
        slot: StatusSlot,
        *,
        ddp: dict[str, Any],
        hook: Callable | None,
        hook_state: object,
        injection: StepInjection,
        reductions: Reductions,
        noting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`noting` surrounds a user's own build: connections that it opens belong to the generation."""
        self._blueprint = blueprint
        self._trainable = trainable
        self._module = trainable.model
        self._slot = slot
        self._options = dict(ddp)
        self._injection = injection
        self._reductions = reductions
        self._user_hook = hook
        self._user_hook_state = hook_state
        self._noting = noting
        self._wrapper: torch.nn.Module = self._module
        self._reducing: list[DistributedDataParallel] = []
        """The DDP wrappers of this generation."""
        self._is_bare = True
        """True while the module has not been wrapped since it was made."""
        self.hook: CountingHook | CollectiveCount | None = None

    @property
    def is_made_anew(self) -> bool:
        """True when every wrapping comes with a new module and a new optimizer."""
        return self._blueprint.is_made_anew

    @property
    def is_built(self) -> bool:
        """True when the user's own function wraps."""
        return self._blueprint.build is not None

    @property
    def has_buckets(self) -> bool:
        """False for a sharded model, which has no gradient buckets that change their layout."""
        return not any(is_shard(parameter) for parameter in self._module.parameters())

    @property
    def is_static(self) -> bool:
        """True when the graph of the present wrapper was declared static, in `ddp=` or by the user's own build."""
        return any(wrapper.static_graph for wrapper in self._reducing)

    @property
    def can_lay_out(self) -> bool:
        """True when a wrapper can be made with the gradient buckets of one before it."""
        return not self.is_built and not is_static(self._options)

    @property
    def layout(self) -> Layout | None:
        """The gradient buckets of the last step, where a later wrapper can be made with them."""
        if not self.can_lay_out or not isinstance(self.hook, CountingHook):
            return None
        return self.hook.buckets.layout

    def wrap(self, *, is_synced: bool, layout: Layout | None = None) -> None:
        """Wrap the module anew for the current group, with the buckets of a step before where they are known.

        The constructor's own broadcast from rank 0 would hide a corrupt replica or spread one, so it is left
        out once the replicas' digests are known to agree.
        """
        self.unwrap()
        blueprint, trainable = self._blueprint, self._trainable
        if blueprint.is_made_anew and not self._is_bare:
            self._module = trainable.model = blueprint.make_module()
        self._is_bare = False
        hook = CountingHook(
            self._slot,
            self._injection,
            self._reductions,
            self._user_hook,
            self._user_hook_state,
        )
        if blueprint.build is None:
            self._wrap_plain(hook, is_synced=is_synced, layout=layout)
        else:
            with self._noting(), hook.counting_users_hooks():
                self._wrapper = call_build(
                    blueprint.build, self._module, is_made_anew=blueprint.is_made_anew
                )
        blueprint.make_optimizer(self._wrapper, trainable)
        self._reducing = [
            part for part in self._wrapper.modules() if isinstance(part, DistributedDataParallel)
        ]
        for wrapper in self._reducing:
            hook.attach_once(wrapper)
            self._count_buffer_broadcast(wrapper)
        self.hook = hook
        if not self._reducing:
            self.hook = CollectiveCount(self._slot)
            self.hook.start()

    def _wrap_plain(self, hook: CountingHook, *, is_synced: bool, layout: Layout | None) -> None:
        is_ordered = layout is not None and lays_out_again(self._options)
        with registered_in(layout if is_ordered else None) as made:
            wrapper = DistributedDataParallel(
                self._module, init_sync=not is_synced, **self._options
            )
        if made:
            hook.buckets.follow(made[0])
        if is_ordered:
            lay_out(wrapper)
        self._wrapper = wrapper

    def _count_buffer_broadcast(self, wrapper: DistributedDataParallel) -> None:
        """Count the broadcast of buffers before a forward pass: a rank that waits in it is not the one at fault."""
        broadcast = getattr(wrapper, "_sync_buffers", None)
        if broadcast is None:
            return

        def counted() -> None:
            self._slot.count_launch(is_last=True)
            broadcast()
            self._slot.count_completion()
            self._slot.enter(Phase.COMPUTE)

        wrapper._sync_buffers = counted  # noqa: SLF001 - torch offers no hook for it

    def holds_everywhere(self, is_true: bool) -> bool:
        """True when it is so on every rank; counted like any collective, so that nobody hangs in it unseen."""
        vote = torch.tensor([int(is_true)])
        if isinstance(self.hook, CollectiveCount):
            dist.all_reduce(vote, op=dist.ReduceOp.MIN)
            return bool(vote)
        self._slot.count_launch(is_last=True)
        dist.all_reduce(vote, op=dist.ReduceOp.MIN)
        self._slot.count_completion()
        self._slot.enter(Phase.BETWEEN)
        return bool(vote)

    def unwrap(self) -> None:
        """Drop the wrapper and its autograd hooks, which would call into a dead group."""
        for wrapper in self._reducing:
            wrapper.reducer._remove_autograd_hooks()  # noqa: SLF001 - nothing public drops them before collection
            # Its reducer holds the group and this hook, and the hook the wrapper: no collection would ever end them.
            wrapper.reducer = wrapper.logger = wrapper.process_group = None  # type: ignore[bad-assignment]
            # What refers back to it would keep it, and a model that is made anew, until the next whole collection.
            wrapper.__dict__.pop("_sync_buffers", None)
        if isinstance(self.hook, CountingHook):
            self.hook.detach()
        stop_counting()
        self._reducing = []
        self._wrapper = self._module
        self.hook = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped model forward."""
        self._injection.strike_if_due()
        return self._wrapper(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_wrapper" not in self.__dict__:
            raise AttributeError(
                name
            )  # copying and pickling ask before there is anything to forward to
        return getattr(self._wrapper, name)


def replicas_agree(tensors: dict[str, torch.Tensor]) -> bool:
    """True when every rank of the group holds the same bytes."""
    value = int(digest_tensors(tensors), 16)
    words = torch.tensor([(value >> shift) & 0xFFFF_FFFF for shift in (0, 32, 64, 96)])
    highest, lowest = words.clone(), words.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return bool(torch.equal(highest, lowest))
