"""The bytes of live tensors where they lie, cut once and looked at in every step.

Whoever trains may put another storage, another order of elements or another tensor under a name at any time. So each
tensor is asked each time where its bytes are, and only where the answer is that of the last time are the cuts used
again. They hold nothing: a view of memory that was given back is never read, since no live tensor answers with it.
"""

from __future__ import annotations

import ctypes
from itertools import chain
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.training.rank.leaves import Piece

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Other types may answer with memory that is not what they stand for."""


class LiveViews:
    """The pieces of tensors whose shapes and types are known and do not change."""

    def __init__(self, pieces: Sequence[Sequence[Piece]], sizes_bytes: Sequence[int]) -> None:
        """`pieces` are those of `leaves.cut` for these sizes: all of one tensor, then all of the next."""
        flat = list(chain.from_iterable(pieces))
        self._contents = [memoryview(b"")] * len(flat)
        self._sizes = sizes_bytes
        self._addresses = [0] * len(sizes_bytes)
        self._cuts: list[list[tuple[int, int, int]]] = [[] for _ in sizes_bytes]
        """Of each tensor: which content, and from where to where in the tensor."""
        for at, piece in enumerate(flat):
            self._cuts[piece.tensor].append((at, piece.start, piece.end))

    def contents(self, tensors: Sequence[torch.Tensor]) -> Sequence[memoryview] | None:
        """Return the bytes of each piece as they are now; None where a tensor has none that can be looked at in place."""
        addresses = self._addresses
        for at, tensor in enumerate(tensors):
            if not self._sizes[at]:
                continue
            address = _address(tensor)
            if not address:
                return None
            if address != addresses[at]:
                self._cut(at, address)
        return self._contents

    def _cut(self, at: int, address: int) -> None:
        whole = memoryview((ctypes.c_ubyte * self._sizes[at]).from_address(address)).cast("B")
        for place, start, end in self._cuts[at]:
            self._contents[place] = whole[start:end]
        self._addresses[at] = address


def _address(tensor: torch.Tensor) -> int:
    """Return where the elements lie one behind the other, as their values are; 0 where they do not."""
    if (
        type(tensor) not in _PLAIN
        or not tensor.is_cpu
        or not tensor.is_contiguous()
        or tensor.is_neg()
        or tensor.is_conj()
    ):
        return 0
    return tensor.data_ptr()
