"""Three snapshot files per rank in shared memory, written every step, owned by the supervisor.

Order of publication: the header is emptied, then the data is copied, then the digest and the step are written.
A writer that dies in between leaves an empty header, which nobody restores. Digests are taken of the live
tensors and never of the copy, so a copy that went wrong does not hash to them.

File: a 4096-byte header (a JSON line, its checksum, blanks), the tensors at `data_offset`, then the pickled blob.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import xxhash

from lastgood.base.clock import SystemClock
from lastgood.base.errors import RecoveryError
from lastgood.base.units import format_bytes
from lastgood.training.catalogue import HEADER_BYTES, read_snapshot_header, seal_header
from lastgood.training.rank.state import (
    Digests,
    Entry,
    Layout,
    RandomStreams,
    digest_state,
    fits,
    pack,
    plan_layout,
    unpack,
)

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
        self._views: list[tuple[tuple[Entry, ...], list[torch.Tensor]]] = []
        self._layout: Layout | None = None

    def map_at_least(self, size: int) -> mmap.mmap:
        size = -(-size // _PAGE_BYTES) * _PAGE_BYTES
        if self._map is None or len(self._map) < size:
            self._views.clear()
            self._map = None
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

    def clear_gaps(self, layout: Layout) -> None:
        """Zero what lies between the tensors of a new layout, where an older one may have had bytes."""
        if layout is self._layout:
            return
        self._layout = layout
        assert self._map is not None, "gaps are cleared after mapping"
        for start, end in _gaps(layout):
            self._map[start:end] = bytes(end - start)

    def views(self, entries: tuple[Entry, ...]) -> list[torch.Tensor]:
        """Tensors over the mapping, one per entry; cached, since they are needed every step."""
        for known, found in self._views:
            if known is entries:
                return found
        assert self._map is not None, "views are asked for after mapping"
        found = [_view(self._map, entry) for entry in entries]
        self._views = [*self._views[-1:], (entries, found)]
        return found


class SnapshotWriter:
    """Writes the snapshots of one rank."""

    def __init__(self, run: RunDir, rank: int) -> None:
        self._run = run
        self._rank = rank
        self._files: dict[Path, _File] = {}
        self._layout: Layout | None = None

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
        replicated, private = trainable.tensors()
        if self._layout is None or not fits(self._layout, replicated, private):
            self._layout = plan_layout(replicated, private)
        layout = self._layout
        values = {"values": trainable.values(), "streams": streams, "position": position}
        blob = pack({"layout": layout, **values})
        path = self._run.snapshot(self._rank, step)
        if path not in self._files:
            self._files[path] = _File(path)
        file = self._files[path]
        mapped = file.map_at_least(HEADER_BYTES + layout.data_bytes + len(blob))
        mapped[:HEADER_BYTES] = b" " * HEADER_BYTES
        file.clear_gaps(layout)
        with torch.no_grad():
            for entries, tensors in ((layout.replicated, replicated), (layout.private, private)):
                if entries:
                    torch._foreach_copy_(file.views(entries), list(tensors.values()))
        blob_offset = HEADER_BYTES + layout.data_bytes
        mapped[blob_offset : blob_offset + len(blob)] = blob
        digests = digest_state(replicated, private, streams)
        header = {
            "step": step,
            "generation": generation,
            "published_us": SystemClock().monotonic_us(),
            "bytes": layout.data_bytes + len(blob),
            "data_offset": HEADER_BYTES,
            "blob_offset": blob_offset,
            "blob_bytes": len(blob),
            "digest": digests.replica,
            "private_digest": digests.private,
            "blob_digest": xxhash.xxh3_128_hexdigest(blob),
        }
        mapped[:HEADER_BYTES] = seal_header(header)
        return digests


def load_snapshot(run: RunDir, rank: int, step: int) -> LoadedState:
    """Re-read a snapshot and hash every byte of it; raises SnapshotMismatch when anything is off."""
    path = run.snapshot(rank, step)
    header = read_snapshot_header(path)
    if header is None or header["step"] != step:
        raise SnapshotMismatch(step, "its header is empty or holds another step")
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = header["data_offset"] + header["bytes"]
    if len(mapped) < whole:
        raise SnapshotMismatch(step, f"{len(mapped)} bytes in the file, {whole} were written")
    blob = mapped[header["blob_offset"] : header["blob_offset"] + header["blob_bytes"]]
    if xxhash.xxh3_128_hexdigest(blob) != header["blob_digest"]:
        raise SnapshotMismatch(step, "the bytes of its random streams and data position changed")
    content = unpack(blob)
    layout: Layout = content["layout"]
    if _has_dirty_gaps(mapped, layout):
        raise SnapshotMismatch(step, "bytes between two tensors changed")
    replicated = {e.name: _view(mapped, e) for e in layout.replicated}
    private = {e.name: _view(mapped, e) for e in layout.private}
    found = digest_state(replicated, private, content["streams"])
    if found.replica != header["digest"]:
        raise SnapshotMismatch(
            step, f"parameters and optimizer hash to {found.replica}, published {header['digest']}"
        )
    if found.private != header["private_digest"]:
        raise SnapshotMismatch(
            step, f"private state hashes to {found.private}, published {header['private_digest']}"
        )
    return LoadedState(
        step,
        found,
        replicated | private,
        content["values"],
        content["streams"],
        content["position"],
    )


def _gaps(layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield start and end of the padding behind each tensor, as places in the file."""
    entries = (*layout.replicated, *layout.private)
    ends = [*(entry.offset for entry in entries[1:]), layout.data_bytes]
    for entry, end in zip(entries, ends, strict=True):
        start = entry.offset + entry.size_bytes
        if start < end:
            yield HEADER_BYTES + start, HEADER_BYTES + end


def _has_dirty_gaps(mapped: mmap.mmap, layout: Layout) -> bool:
    """True when padding that no digest covers is not zero any more: whoever wrote there may have written elsewhere."""
    return any(mapped[start:end].strip(b"\0") for start, end in _gaps(layout))


def _view(mapped: mmap.mmap, entry: Entry) -> torch.Tensor:
    """Return a tensor over mapped bytes."""
    count = 1
    for extent in entry.shape:
        count *= extent
    if count == 0:
        return torch.empty(entry.shape, dtype=entry.dtype)
    return torch.frombuffer(
        mapped, dtype=entry.dtype, count=count, offset=HEADER_BYTES + entry.offset
    ).view(entry.shape)
