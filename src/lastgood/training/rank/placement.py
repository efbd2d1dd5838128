"""Which elements of which tensors lie where in one snapshot file.

A whole snapshot holds every element. A striped one holds the leaves of one stripe, so its first and its last tensor
may be there in part, and all of the rank's private tensors behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from lastgood.training.rank.leaves import Leaves, Stripe, cut
from lastgood.training.states.catalogue import HEADER_BYTES

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

    from lastgood.training.rank.state import Entry, Layout


class Part(NamedTuple):
    """Elements of one tensor, one behind the other in a file; `offset` counts from the start of the data region."""

    entry: Entry
    first: int
    count: int
    offset: int

    @property
    def is_whole(self) -> bool:
        """True when the whole tensor is there."""
        return self.count * self.entry.dtype.itemsize == self.entry.size_bytes

    @property
    def end(self) -> int:
        """Where it ends in the data region."""
        return self.offset + self.count * self.entry.dtype.itemsize

    def view(self, mapped: mmap.mmap) -> torch.Tensor:
        """Return a tensor over these elements in a mapped file."""
        shape = self.entry.shape if self.is_whole else (self.count,)
        return torch.frombuffer(
            mapped, dtype=self.entry.dtype, count=self.count, offset=HEADER_BYTES + self.offset
        ).view(shape)


class Placement(NamedTuple):
    """What one file holds."""

    replicated: tuple[Part, ...]
    private: tuple[Part, ...]
    data_bytes: int

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of the padding behind each part, as places in the file."""
        parts = (*self.replicated, *self.private)
        following = (*(part.offset for part in parts[1:]), self.data_bytes)
        for part, end in zip(parts, following, strict=False):  # there may be no part at all
            if part.end < end:
                yield HEADER_BYTES + part.end, HEADER_BYTES + end


def leaves_of(layout: Layout) -> Leaves:
    """Return the leaves of a layout's replicated tensors."""
    return cut(tuple(entry.size_bytes for entry in layout.replicated))


def place(layout: Layout, stripe: Stripe) -> Placement:
    """Return what the file of one stripe holds. A tensor without elements takes no room anywhere."""
    replicated = []
    for entry in layout.replicated:
        start = max(entry.offset, stripe.start)
        end = min(entry.offset + entry.size_bytes, stripe.end)
        if start < end:
            width = entry.dtype.itemsize
            first, count = (start - entry.offset) // width, (end - start) // width
            replicated.append(Part(entry, first, count, start - stripe.start))
    shift = stripe.end - stripe.start - layout.replicated_bytes
    private = tuple(
        Part(entry, 0, entry.size_bytes // entry.dtype.itemsize, entry.offset + shift)
        for entry in layout.private
        if entry.size_bytes
    )
    return Placement(tuple(replicated), private, layout.data_bytes + shift)
