"""Gradient buckets of a fresh DDP wrapper, laid out as those of the wrapper before it.

DDP starts with buckets in the order in which the parameters were registered, and lays them out again, once, in the order
in which their gradients became ready in the first backward pass. A reduction over other buckets gives other bits. So
the layout of a step is recorded with its state, and a fresh wrapper gets the parameters in that order, and is told that
all of them have become ready: what it lays out then is what it would have laid out after a pass of its own.

Where DDP never lays out again (unused parameters in a graph that changes) its first buckets are the right ones. With a
static graph it numbers no buckets in its first pass, so nothing is recorded, and passes are thrown away as ever.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import xxhash
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch
    import torch.distributed as dist

Layout = tuple[tuple[int, ...], ...]
"""Buckets in the order of their reduction; each the places of its parameters among those that DDP reduces."""


class BucketRecord:
    """Notes which parameters the buckets of a wrapper hold, as its communication hook sees them."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """Of a parameter, by its identity."""
        self._open: list[tuple[int, ...]] = []
        self.layout: Layout | None = None
        """Of the last whole reduction; None before one, and where it cannot be told."""

    def follow(self, parameters: list[torch.Tensor]) -> None:
        """These are the parameters that are reduced, as they were registered."""
        self._places = {id(parameter): place for place, parameter in enumerate(parameters)}

    def see(self, bucket: dist.GradBucket) -> None:
        """One bucket is reduced now; they come in order."""
        if not self._places:
            return
        if bucket.index() == 0:
            self._open.clear()
        self._open.append(tuple(self._places.get(id(p), -1) for p in bucket.parameters()))
        if bucket.is_last() and self._open != list(self.layout or ()):
            found = tuple(self._open)
            self.layout = found if is_whole(found, len(self._places)) else None


@contextmanager
def registered_in(layout: Layout | None) -> Generator[list[list[torch.Tensor]]]:
    """Give the wrapper that is made meanwhile its parameters in the order of a layout.

    Yields a list that afterwards holds, for each wrapper made, its parameters as they were registered.
    """
    made: list[list[torch.Tensor]] = []
    wrapper: Any = DistributedDataParallel
    real = getattr(wrapper, "_build_params_for_reducer", None)
    if real is None:
        yield made
        return

    def in_order(ddp: DistributedDataParallel) -> tuple[list[torch.Tensor], list[bool]]:
        parameters, is_sparse = real(ddp)
        made.append(list(parameters))
        if layout is None or not is_whole(layout, len(parameters)):
            return parameters, is_sparse
        places = [place for bucket in layout for place in bucket]
        return [parameters[place] for place in places], [is_sparse[place] for place in places]

    wrapper._build_params_for_reducer = in_order  # noqa: SLF001 - DDP has no option for it
    try:
        yield made
    finally:
        wrapper._build_params_for_reducer = real  # noqa: SLF001


def is_whole(layout: Layout, count: int) -> bool:
    """Whether each of so many parameters stands in it once."""
    return sorted(place for bucket in layout for place in bucket) == list(range(count))


def lay_out(ddp: DistributedDataParallel) -> bool:
    """Lay the buckets out in the order of the wrapper's parameters, once and for all; a collective of all ranks."""
    reducer = ddp.reducer
    reducer._push_all_rebuilt_params()  # noqa: SLF001 - what DDP itself calls for a rank without data
    return bool(reducer._rebuild_buckets())  # noqa: SLF001


def digest_of(layout: Layout | None) -> str:
    """What ranks compare to see that they know the same layout; empty without one."""
    return "" if layout is None else xxhash.xxh3_64_hexdigest(repr(layout).encode())


def lays_out_again(options: dict[str, Any]) -> bool:
    """Whether DDP with these options changes its buckets after its first passes."""
    return not options.get("find_unused_parameters") or is_static(options)


def is_static(options: dict[str, Any]) -> bool:
    """Whether the graph was declared static: then the first pass reduces at its end, and only the second one counts."""
    return bool(options.get("static_graph"))
