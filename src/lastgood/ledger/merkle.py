"""The Merkle tree of RFC 6962: an append-only list whose every prefix has one root hash.

A plain hash chain shows that a row was edited; it cannot show cheaply that an earlier, shorter list is a prefix of
this one. The tree can: a root that somebody outside wrote down yesterday either is on the way to today's root or
history was rewritten. Appending keeps only the *frontier*, the roots of the complete subtrees from left to right
(at most 64 hashes), so an append costs a hash or two and never reads old rows.

Source: RFC 6962 section 2.1 (Laurie, Langley, Kasper, 2013); proof checks after RFC 9162 section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
"""Root of a list without entries."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one entry. The 0x00 keeps an entry from posing as an inner node."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node over its two children."""
    return sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The complete subtrees of a list of `size` entries, largest (leftmost) first.

    The bits of `size` say how large each is, so size and hashes together are the whole state of an append.
    Immutable: an append returns a new one, which is what lets a savepoint roll back by keeping the old.
    """

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Refuses a state that no list could have produced."""
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise ValueError(
                f"a frontier of size {self.size} holds {self.size.bit_count()} hashes, got {len(self.hashes)}"
            )

    def append(self, leaf: bytes) -> Frontier:
        """The frontier after one more leaf hash."""
        hashes = list(self.hashes)
        size = self.size
        while size & 1:
            leaf = node_hash(hashes.pop(), leaf)
            size >>= 1
        hashes.append(leaf)
        return Frontier(self.size + 1, tuple(hashes))

    def root(self) -> bytes:
        """The root hash of the whole list."""
        if not self.hashes:
            return EMPTY_ROOT
        root = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            root = node_hash(left, root)
        return root

    def to_bytes(self) -> bytes:
        """The hashes, concatenated: what the store keeps beside the size."""
        return b"".join(self.hashes)

    @classmethod
    def from_bytes(cls, size: int, blob: bytes) -> Frontier:
        """The frontier that `to_bytes` wrote; ValueError when the length does not fit the size."""
        if len(blob) % HASH_BYTES:
            raise ValueError(
                f"a frontier is a whole number of {HASH_BYTES}-byte hashes, got {len(blob)} bytes"
            )
        return cls(size, tuple(blob[i : i + HASH_BYTES] for i in range(0, len(blob), HASH_BYTES)))


class TreeBuilder:
    """A frontier that grows in place: for scans over millions of leaves, where a new tuple per leaf would dominate."""

    __slots__ = ("_hashes", "size")

    def __init__(self, frontier: Frontier | None = None) -> None:
        """Starts with no leaf, or where a list of leaves has come to."""
        self.size = frontier.size if frontier else 0
        self._hashes: list[bytes] = list(frontier.hashes) if frontier else []

    def append(self, leaf: bytes) -> None:
        """Adds one leaf hash."""
        hashes, size = self._hashes, self.size
        while size & 1:
            leaf = sha256(b"\x01" + hashes.pop() + leaf).digest()
            size >>= 1
        hashes.append(leaf)
        self.size += 1

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Adds many leaf hashes; whole subtrees are hashed level by level, which spares a call for each leaf."""
        at, count = 0, len(leaves)
        while at < count:
            # The next subtree starts where the size allows it, and holds no more leaves than there are.
            room = self.size & -self.size or count
            block = min(room, 1 << (count - at).bit_length() - 1)
            level = leaves[at : at + block]
            while len(level) > 1:
                pairs = zip(level[::2], level[1::2], strict=True)
                level = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
            self._add(level[0], block)
            at += block

    def _add(self, root: bytes, block: int) -> None:
        """Adds a complete subtree of `block` leaves, a power of two that divides the size."""
        hashes, size = self._hashes, self.size // block
        while size & 1:
            root = sha256(b"\x01" + hashes.pop() + root).digest()
            size >>= 1
        hashes.append(root)
        self.size += block

    def frontier(self) -> Frontier:
        """The state so far, immutable."""
        return Frontier(self.size, tuple(self._hashes))

    def root(self) -> bytes:
        """The root of the leaves so far."""
        return self.frontier().root()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over these leaf hashes."""
    builder = TreeBuilder()
    for leaf in leaves:
        builder.append(leaf)
    return builder.root()


def inclusion_proof(leaves: Sequence[bytes], *, index: int, size: int | None = None) -> list[bytes]:
    """The audit path that ties entry `index` (0-based) to the root over the first `size` leaves.

    Source: RFC 6962 section 2.1.1, PATH(m, D[n]).
    """
    size = len(leaves) if size is None else size
    if not 0 <= index < size <= len(leaves):
        raise ValueError(f"no entry {index} in a tree of size {size} ({len(leaves)} leaves known)")
    path: list[bytes] = []
    first, last = 0, size
    while last - first > 1:
        split = first + _split(last - first)
        if index < split:
            path.append(root_of(leaves[split:last]))
            last = split
        else:
            path.append(root_of(leaves[first:split]))
            first = split
    path.reverse()
    return path


def consistency_proof(
    leaves: Sequence[bytes], *, old_size: int, new_size: int | None = None
) -> list[bytes]:
    """The hashes that show the first `old_size` leaves to be a prefix of the first `new_size`.

    Source: RFC 6962 section 2.1.2, PROOF(m, D[n]).
    """
    new_size = len(leaves) if new_size is None else new_size
    if not 0 < old_size <= new_size <= len(leaves):
        raise ValueError(
            f"no consistency proof from {old_size} to {new_size} ({len(leaves)} leaves known)"
        )
    path: list[bytes] = []
    first, last, is_whole = 0, new_size, True
    while old_size != last:
        split = first + _split(last - first)
        if old_size <= split:
            path.append(root_of(leaves[split:last]))
            last = split
        else:
            path.append(root_of(leaves[first:split]))
            first, is_whole = split, False
    if not is_whole:
        path.append(root_of(leaves[first:last]))
    path.reverse()
    return path


def check_inclusion(
    *, leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """True when the path leads from this leaf at this index to this root.

    Source: RFC 9162 section 2.1.3.2.
    """
    if not 0 <= index < size:
        return False
    node, last, reached = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            reached = node_hash(sibling, reached)
            while not node & 1 and node:
                node >>= 1
                last >>= 1
        else:
            reached = node_hash(reached, sibling)
        node >>= 1
        last >>= 1
    return last == 0 and reached == root


def check_consistency(
    *, old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """True when the proof shows the old root to be that of a prefix of the new list.

    Source: RFC 9162 section 2.1.4.2.
    """
    if old_size == new_size:
        return not proof and old_root == new_root
    if not 0 < old_size < new_size:
        return False
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    if not path:
        return False
    old_node, last = old_size - 1, new_size - 1
    while old_node & 1:
        old_node >>= 1
        last >>= 1
    old_reached = new_reached = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if old_node & 1 or old_node == last:
            old_reached = node_hash(sibling, old_reached)
            new_reached = node_hash(sibling, new_reached)
            while not old_node & 1 and old_node:
                old_node >>= 1
                last >>= 1
        else:
            new_reached = node_hash(new_reached, sibling)
        old_node >>= 1
        last >>= 1
    return last == 0 and old_reached == old_root and new_reached == new_root


def _split(count: int) -> int:
    """The largest power of two below `count` (count > 1)."""
    return 1 << ((count - 1).bit_length() - 1)
