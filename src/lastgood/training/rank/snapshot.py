"""Three snapshot files per rank in shared memory, written every step, owned by the supervisor.

Replicas are equal, so each rank may keep only its stripe of the replicated tensors; its private state is always whole.
Every rank hashes all of its state either way, so the comparison of the replicas' digests loses nothing. A restore of a
striped state reads the stripes of all ranks, and holds each against its own digest and all against that of the whole.

Order of publication: the header is emptied, then the data is copied, then the digest and the step are written.
A writer that dies in between leaves an empty header, which nobody restores. Digests are taken of the live
tensors and never of the copy, so a copy that went wrong does not hash to them.

File: a 4096-byte header (a JSON line, its checksum, blanks), the tensors at `data_offset`, then the pickled blob.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import xxhash

from lastgood.base.clock import SystemClock
from lastgood.base.errors import RecoveryError
from lastgood.base.units import format_bytes
from lastgood.training.rank.leaves import Stripe, contents_of, hash_leaves, join
from lastgood.training.rank.placement import Part, Placement, leaves_of, place
from lastgood.training.rank.state import (
    Digests,
    Entry,
    Layout,
    RandomStreams,
    digest_private,
    fits,
    pack,
    plan_layout,
    raw_bytes,
    unpack_each,
)
from lastgood.training.rank.views import LiveViews
from lastgood.training.rundir import SLOT_COUNT
from lastgood.training.states.catalogue import HEADER_BYTES, read_snapshot_header, seal_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lastgood.training.rank.state import Trainable
    from lastgood.training.rundir import RunDir

_PAGE_BYTES = 4096


class LoadedState(NamedTuple):
    """A state read back from a snapshot or a checkpoint, its bytes hashed to their digests."""

    step: int
    digests: Digests
    tensors: dict[str, torch.Tensor]
    values: dict[str, Any]
    streams: RandomStreams
    position: dict[str, Any]


class SnapshotMismatch(Exception):
    """The bytes of a snapshot do not hash to the digest that was published with them."""

    def __init__(self, step: int, detail: str) -> None:
        super().__init__(f"state {step}: {detail}")
        self.step = step
        self.detail = detail


class _File:
    """One mapped snapshot file that grows when the state does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._placement: Placement | None = None

    def map_at_least(self, size: int) -> mmap.mmap:
        size = -(-size // _PAGE_BYTES) * _PAGE_BYTES
        if self._map is None or len(self._map) < size:
            self._placement = self._map = None
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # Reserved before it is written: a page that cannot be had later would end the process by SIGBUS.
                os.posix_fallocate(descriptor, 0, size)
                self._map = mmap.mmap(descriptor, size)
            except OSError as error:
                raise RecoveryError(
                    "there is no room for a snapshot",
                    where=str(self._path),
                    found=str(error),
                    needs=f"{format_bytes(size)} for each of three snapshots of each rank",
                    next="type: lastgood doctor",
                ) from error
            finally:
                os.close(descriptor)
        return self._map

    def clear_gaps(self, placement: Placement) -> None:
        """Zero the padding of a new placement, where an older one may have had bytes."""
        if placement is self._placement:
            return
        self._placement = placement
        assert self._map is not None, "gaps are cleared after mapping"
        for start, end in placement.gaps():
            self._map[start:end] = bytes(end - start)


class _Plan(NamedTuple):
    """How one rank lays out the state that it has now."""

    layout: Layout
    packed_layout: bytes
    stripe: Stripe
    placement: Placement
    views: LiveViews
    """Of the replicated tensors."""


class SnapshotWriter:
    """Writes the snapshots of one rank: whole copies, or stripe `rank` of `stripe_count`."""

    def __init__(self, run: RunDir, rank: int, *, stripe_count: int = 1) -> None:
        self._run = run
        self._rank = rank
        self._stripe_count = stripe_count
        self._files: dict[int, _File] = {}
        """By the place of a step among those that are kept."""
        self._known: _Plan | None = None

    def write(
        self,
        trainable: Trainable,
        *,
        step: int,
        generation: int,
        streams: RandomStreams,
        position: dict[str, Any],
    ) -> Digests:
        """Publish the state after `step`; returns its digests. Raises RecoveryError when shared memory is full."""
        replicated, private = trainable.live_tensors()
        plan = self._plan(replicated, private)
        values = {"values": trainable.values(), "streams": streams, "position": position}
        blob = plan.packed_layout + pack(values)
        file = self._files.get(step % SLOT_COUNT)
        if file is None:
            file = self._files[step % SLOT_COUNT] = _File(self._run.snapshot(self._rank, step))
        blob_offset = HEADER_BYTES + plan.placement.data_bytes
        mapped = file.map_at_least(blob_offset + len(blob))
        mapped[:HEADER_BYTES] = b" " * HEADER_BYTES
        file.clear_gaps(plan.placement)
        mapped[blob_offset : blob_offset + len(blob)] = blob
        leaves = _keep_and_hash(plan, mapped, replicated, private)
        digests = Digests(join(leaves), digest_private(private, streams))
        header = {
            "step": step,
            "generation": generation,
            "published_us": SystemClock().monotonic_us(),
            "bytes": plan.placement.data_bytes + len(blob),
            "data_offset": HEADER_BYTES,
            "blob_offset": blob_offset,
            "blob_bytes": len(blob),
            "stripe": self._rank if self._stripe_count > 1 else 0,
            "stripes": self._stripe_count,
            "digest": digests.replica,
            "stripe_digest": join(leaves[plan.stripe.first_leaf : plan.stripe.end_leaf]),
            "private_digest": digests.private,
            "blob_digest": xxhash.xxh3_128_hexdigest(blob),
        }
        mapped[:HEADER_BYTES] = seal_header(header)
        return digests

    def _plan(self, replicated: dict[str, torch.Tensor], private: dict[str, torch.Tensor]) -> _Plan:
        if self._known is None or not fits(self._known.layout, replicated, private):
            layout = plan_layout(replicated, private)
            index = self._rank if self._stripe_count > 1 else 0
            stripe = leaves_of(layout).stripe(index, self._stripe_count)
            sizes = [entry.size_bytes for entry in layout.replicated]
            views = LiveViews(leaves_of(layout).pieces, sizes)
            self._known = _Plan(layout, pack(layout), stripe, place(layout, stripe), views)
        return self._known


def _keep_and_hash(
    plan: _Plan,
    mapped: mmap.mmap,
    replicated: dict[str, torch.Tensor],
    private: dict[str, torch.Tensor],
) -> list[bytes]:
    """Copy what this rank keeps and return the digests of all leaves.

    Piece by piece, so that the hash finds in the cache what the copy has just read; both read the live tensor.
    """
    found = list(replicated.values())
    pieces = leaves_of(plan.layout).pieces
    views = plan.views.contents(found)
    live = (
        iter(views)
        if views is not None
        else contents_of(chain.from_iterable(pieces), lambda index: raw_bytes(found[index]))
    )
    kept = memoryview(mapped)[HEADER_BYTES:]
    first, end, shift = plan.stripe.first_leaf, plan.stripe.end_leaf, plan.stripe.start

    def keep() -> Iterator[memoryview]:
        own = chain.from_iterable(pieces[first:end])
        for piece, content in zip(own, live, strict=False):  # the leaves behind the stripe are left
            at = piece.place - shift
            kept[at : at + len(content)] = content
            yield content

    for part in plan.placement.private:
        kept[part.offset : part.end] = raw_bytes(private[part.entry.name])
    leaves = hash_leaves(pieces[:first], live)
    leaves += hash_leaves(pieces[first:end], keep())
    leaves += hash_leaves(pieces[end:], live)
    assert next(live, None) is None, "every byte is hashed"
    return leaves


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Opened:
    """A snapshot file with a sound header that is as long as it says."""

    header: dict[str, Any]
    mapped: mmap.mmap

    def blob(self) -> bytes:
        start = self.header["blob_offset"]
        return self.mapped[start : start + self.header["blob_bytes"]]


def has_all_stripes(run: RunDir, rank: int, step: int) -> bool:
    """True once every rank has published what a restore of this state of `rank` would read."""
    own = read_snapshot_header(run.snapshot(rank, step))
    if own is None or own["stripes"] == 1:
        return own is not None
    others = [read_snapshot_header(run.snapshot(other, step)) for other in range(own["stripes"])]
    return all(
        other is not None and other["step"] == step and other["generation"] == own["generation"]
        for other in others
    )


def load_snapshot(run: RunDir, rank: int, step: int) -> LoadedState:
    """Re-read the state of a rank and hash every byte of it; raises SnapshotMismatch when anything is off.

    Of a striped state the stripes of all ranks are read, and hashed.
    """
    own = _open(run, rank, step)
    content = _content(own, rank)
    return _load_private(own, content, rank, *_load_replicated(run, own, content.layout, rank))


def load_world(run: RunDir, *, world: int, step: int) -> list[LoadedState]:
    """Re-read the state of every rank. Stripes, which all of them share, are read once."""
    opened = [_open(run, rank, step) for rank in range(world)]
    if opened[0].header["stripes"] == 1:
        return [load_snapshot(run, rank, step) for rank in range(world)]
    contents = [_content(own, rank) for rank, own in enumerate(opened)]
    shared = _load_replicated(run, opened[0], contents[0].layout, 0)
    for rank, other in enumerate(opened):
        if other.header["digest"] != opened[0].header["digest"]:
            raise SnapshotMismatch(step, f"ranks 0 and {rank} do not hold the same state")
    return [
        _load_private(own, content, rank, *shared)
        for rank, (own, content) in enumerate(zip(opened, contents, strict=True))
    ]


def _open(run: RunDir, rank: int, step: int) -> _Opened:
    path = run.snapshot(rank, step)
    header = read_snapshot_header(path)
    if header is None or header["step"] != step:
        raise SnapshotMismatch(step, f"the header of rank {rank} is empty or holds another step")
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = header["data_offset"] + header["bytes"]
    if len(mapped) < whole:
        raise SnapshotMismatch(
            step, f"{len(mapped)} bytes in the file of rank {rank}, {whole} were written"
        )
    return _Opened(header, mapped)


class _Content(NamedTuple):
    """What the blob of a snapshot holds."""

    layout: Layout
    values: dict[str, Any]


def _content(own: _Opened, rank: int) -> _Content:
    """Return what a snapshot's blob holds, once its bytes hashed to their digest."""
    blob = own.blob()
    if xxhash.xxh3_128_hexdigest(blob) != own.header["blob_digest"]:
        raise SnapshotMismatch(
            own.header["step"],
            f"the bytes of the random streams and data position of rank {rank} changed",
        )
    return _Content(*unpack_each(blob))


def _load_replicated(
    run: RunDir, own: _Opened, layout: Layout, rank: int
) -> tuple[dict[str, torch.Tensor], str]:
    """Return the replicated tensors and their digest, from one whole snapshot or from the stripes of all ranks."""
    # Private tensors may have other shapes on other ranks (shards have), so only what is shared is laid out here.
    layout = layout._replace(private=(), data_bytes=layout.replicated_bytes)
    step, count = own.header["step"], own.header["stripes"]
    holders = [rank] if count == 1 else list(range(count))
    leaves: list[bytes] = []
    parts: dict[str, list[tuple[Part, torch.Tensor]]] = {}
    for index, holder in enumerate(holders):
        file = own if holder == rank else _open(run, holder, step)
        _same_state(own.header, file.header, stripe=index, holder=holder)
        stripe = leaves_of(layout).stripe(index, count)
        placement = place(layout, stripe)
        if file.header["bytes"] < placement.data_bytes:
            raise SnapshotMismatch(step, f"the file of rank {holder} is too short for its stripe")
        found = _hash_stripe(file.mapped, layout, stripe)
        if join(found) != file.header["stripe_digest"]:
            raise SnapshotMismatch(step, _broken(file.header, holder, join(found)))
        if _has_dirty_gaps(file.mapped, placement):
            raise SnapshotMismatch(
                step, f"bytes between two tensors changed, kept by rank {holder}"
            )
        leaves += found
        for part in placement.replicated:
            parts.setdefault(part.entry.name, []).append((part, part.view(file.mapped)))
    if join(leaves) != own.header["digest"]:
        raise SnapshotMismatch(
            step,
            f"parameters and optimizer hash to {join(leaves)}, published {own.header['digest']}",
        )
    tensors = {
        entry.name: _assembled(parts.get(entry.name, []), entry) for entry in layout.replicated
    }
    return tensors, join(leaves)


def _same_state(own: dict[str, Any], other: dict[str, Any], *, stripe: int, holder: int) -> None:
    """Refuse a stripe of another state: it may be whole and still not belong here."""
    for key in ("generation", "digest", "stripes"):
        if own[key] != other[key]:
            raise SnapshotMismatch(
                own["step"], f"rank {holder} wrote {key} {other[key]}, needed is {own[key]}"
            )
    if other["stripe"] != stripe:
        raise SnapshotMismatch(
            own["step"], f"rank {holder} holds stripe {other['stripe']}, needed is {stripe}"
        )


def _hash_stripe(mapped: mmap.mmap, layout: Layout, stripe: Stripe) -> list[bytes]:
    """Return the digests of the leaves in a file."""
    whole = memoryview(mapped)
    base = HEADER_BYTES - stripe.start
    pieces = leaves_of(layout).pieces[stripe.first_leaf : stripe.end_leaf]
    contents = (
        whole[base + place : base + place + end - start]
        for _, start, end, place in chain.from_iterable(pieces)
    )
    return hash_leaves(pieces, contents)


def _broken(header: dict[str, Any], holder: int, found: str) -> str:
    if header["stripes"] == 1:
        return f"parameters and optimizer hash to {found}, published {header['digest']}"
    return (
        f"stripe {header['stripe']} of {header['stripes']}, kept by rank {holder}, "
        f"hashes to {found}, published {header['stripe_digest']}"
    )


def _assembled(parts: list[tuple[Part, torch.Tensor]], entry: Entry) -> torch.Tensor:
    """Return a tensor from the parts of it that the files hold; a copy only where it was cut."""
    if len(parts) == 1 and parts[0][0].is_whole:
        return parts[0][1]
    tensor = torch.empty(entry.shape, dtype=entry.dtype)
    flat = tensor.view(-1)
    for part, view in parts:
        flat[part.first : part.first + part.count] = view
    return tensor


def _load_private(
    own: _Opened, content: _Content, rank: int, replicated: dict[str, torch.Tensor], digest: str
) -> LoadedState:
    """Add what belongs to one rank, hashed."""
    layout, values = content
    step = own.header["step"]
    placement = _placement_of(layout, own.header)
    private = {
        entry.name: torch.empty(entry.shape, dtype=entry.dtype) for entry in layout.private
    } | {part.entry.name: part.view(own.mapped) for part in placement.private}
    if _has_dirty_gaps(own.mapped, placement):
        raise SnapshotMismatch(step, f"bytes between two tensors changed, kept by rank {rank}")
    found = digest_private(private, values["streams"])
    if found != own.header["private_digest"]:
        raise SnapshotMismatch(
            step, f"private state hashes to {found}, published {own.header['private_digest']}"
        )
    return LoadedState(
        step,
        Digests(digest, found),
        replicated | private,
        values["values"],
        values["streams"],
        values["position"],
    )


def _placement_of(layout: Layout, header: dict[str, Any]) -> Placement:
    return place(layout, leaves_of(layout).stripe(header["stripe"], header["stripes"]))


def _has_dirty_gaps(mapped: mmap.mmap, placement: Placement) -> bool:
    """True when padding that no digest covers is not zero any more: whoever wrote there may have written elsewhere."""
    return any(mapped[start:end].strip(b"\0") for start, end in placement.gaps())
