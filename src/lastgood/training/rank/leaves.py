"""The replicated state cut into leaves: hashed once, it gives the digest of every stripe and of the whole.

The bytes of all tensors stand one behind the other, each tensor at a multiple of 64. This row is cut into at most 240
equal leaves; every leaf is hashed by itself, and the digest of the state is the hash of the leaves' digests in order.
A stripe is a run of whole leaves, so a rank that keeps one stripe hashes all of the state and copies little of it,
and whoever reads the stripes of all ranks together finds the digest of the whole. The number of stripes does not
enter into the digest.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ALIGN_BYTES = 64
"""No element of any type lies across a multiple of it."""
LEAF_COUNT_MAX = 240
"""Divided without a rest by every number of ranks up to 6, and by 8, 10, 12, 15 and 16."""
LEAF_BYTES_MIN = 1024
PIECE_BYTES_MAX = 256 * 1024
"""Bytes that are copied and then hashed while they are still in the core's own cache."""


class Piece(NamedTuple):
    """Bytes `start` to `end` of one tensor, counted from 0; `place` is where they begin in the row."""

    tensor: int
    start: int
    end: int
    place: int


class Leaves(NamedTuple):
    """Which bytes of which tensors are in each leaf."""

    pieces: tuple[tuple[Piece, ...], ...]
    leaf_bytes: int
    total_bytes: int
    """With the padding behind each tensor."""

    def stripe(self, index: int, count: int) -> Stripe:
        """Return stripe `index` of `count`; stripes differ by at most one leaf."""
        first = len(self.pieces) * index // count
        last = len(self.pieces) * (index + 1) // count
        start, end = (min(at * self.leaf_bytes, self.total_bytes) for at in (first, last))
        return Stripe(first, last, start, end)


class Stripe(NamedTuple):
    """A run of leaves and the bytes of the row that they cover."""

    first_leaf: int
    end_leaf: int
    start: int
    end: int


def aligned(size_bytes: int) -> int:
    """Return the room that a tensor takes in the row."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


@lru_cache(maxsize=16)
def cut(sizes_bytes: tuple[int, ...]) -> Leaves:
    """Return the leaves of tensors of these sizes."""
    total = sum(aligned(size) for size in sizes_bytes)
    leaf_bytes = aligned(max(LEAF_BYTES_MIN, -(-total // LEAF_COUNT_MAX)))
    pieces: list[list[Piece]] = [[] for _ in range(-(-total // leaf_bytes))]
    offset = 0
    for tensor, size in enumerate(sizes_bytes):
        at = 0
        while at < size:
            leaf = (offset + at) // leaf_bytes
            end = min(size, (leaf + 1) * leaf_bytes - offset, at + PIECE_BYTES_MAX)
            pieces[leaf].append(Piece(tensor, at, end, offset + at))
            at = end
        offset += aligned(size)
    return Leaves(tuple(tuple(leaf) for leaf in pieces), leaf_bytes, total)


def contents_of(
    pieces: Iterable[Piece], buffer_of: Callable[[int], memoryview]
) -> Iterator[memoryview]:
    """Yield the bytes of each piece; one whole tensor at a time is asked for, in order."""
    at, buffer = -1, memoryview(b"")
    for tensor, start, end, _ in pieces:
        if tensor != at:
            at, buffer = tensor, buffer_of(tensor)
        yield buffer[start:end]


def hash_leaves(pieces: Iterable[tuple[Piece, ...]], contents: Iterator[memoryview]) -> list[bytes]:
    """Return the digest of each leaf; `contents` are the bytes of its pieces, one after the other."""
    found = []
    digest_of = xxhash.xxh3_128_digest
    for leaf in pieces:
        if len(leaf) == 1:  # most are: one call instead of three
            found.append(digest_of(next(contents)))
            continue
        digest = xxhash.xxh3_128()
        for content in islice(contents, len(leaf)):
            digest.update(content)
        found.append(digest.digest())
    return found


def join(leaf_digests: Sequence[bytes]) -> str:
    """Return the hex digest of a run of leaves: of a stripe, or of the whole state."""
    return xxhash.xxh3_128_hexdigest(b"".join(leaf_digests))
