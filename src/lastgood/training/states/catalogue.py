"""Which states could be restored: read from the snapshot headers of all ranks and the list of checkpoints.

No torch: the supervisor reads headers only. Whether the bytes behind a header are still what they were is for
the rank to find out, which re-reads and hashes all of them before it loads any.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lastgood.recovery.messages import Candidate, Tier

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.training.rundir import RunDir

HEADER_BYTES = 4096
_NEEDED = frozenset(
    {
        "step",
        "generation",
        "published_us",
        "bytes",
        "digest",
        "stripe",
        "stripes",
        "stripe_digest",
        "private_digest",
        "blob_offset",
        "blob_bytes",
        "blob_digest",
    }
)


def seal_header(fields: dict[str, Any]) -> bytes:
    """Return the header page of a snapshot: a JSON line, its checksum on the next line, then blanks."""
    line = msgspec.json.encode(fields)
    return (line + b"\n%08x\n" % zlib.crc32(line)).ljust(HEADER_BYTES)


def read_snapshot_header(path: Path) -> dict[str, Any] | None:
    """Return the header of a snapshot, or None when it is missing, empty, torn, changed or being written."""
    try:
        # A recovery waits until twelve and more of them are read, so nothing is built around the file.
        with open(path, "rb", buffering=0) as stream:
            page = stream.read(HEADER_BYTES)
        line, check, padding = page.split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if (
        check != b"%08x" % zlib.crc32(line)
        or len(page) < HEADER_BYTES
        or padding != b" " * len(padding)
    ):
        return None
    try:
        header = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return header if isinstance(header, dict) and header.keys() >= _NEEDED else None


class SlotHeader(NamedTuple):
    """One snapshot file of a rank, and what its header says; None where it says nothing that holds."""

    rank: int
    path: Path
    header: dict[str, Any] | None


def read_headers(run: RunDir, *, world: int) -> tuple[SlotHeader, ...]:
    """Read the headers of all ranks once, in their order."""
    return tuple(
        SlotHeader(rank, path, read_snapshot_header(path))
        for rank in range(world)
        for path in run.snapshots(rank)
    )


class DamagedHeader(NamedTuple):
    """A snapshot whose header was written and does not hold any more."""

    rank: int
    path: Path
    step: int | None
    """The step that it should hold, going by the same file of the other ranks; None when they do not tell."""


def damaged_headers(headers: tuple[SlotHeader, ...]) -> tuple[DamagedHeader, ...]:
    """Return the snapshots that cannot be offered because of their header; one that is being written is none of them."""
    found: list[DamagedHeader] = []
    steps: dict[str, list[int]] = {}
    for rank, path, header in headers:
        if header is not None:
            steps.setdefault(path.name, []).append(header["step"])
        elif not _is_blank(path):
            found.append(DamagedHeader(rank, path, None))
    return tuple(d._replace(step=max(steps.get(d.path.name, ()), default=None)) for d in found)


def _is_blank(path: Path) -> bool:
    """True while a snapshot is being written: its header is blanked first and sealed last."""
    try:
        with path.open("rb") as stream:
            return not stream.read(HEADER_BYTES).strip(b" \0")
    except OSError:
        return True


def slot_candidates(found: tuple[SlotHeader, ...], *, world: int) -> tuple[Candidate, ...]:
    """Return the states that every rank published in one generation with one and the same digest, newest first.

    Of a striped state every rank must hold the stripe that is its own.
    """
    headers: dict[int, list[dict[str, Any]]] = {}
    for _, _, header in found:
        if header is not None:
            headers.setdefault(header["step"], []).append(header)
    agreed = {
        step: max(said, key=lambda header: header["published_us"])
        for step, said in headers.items()
        if len(said) == world and _are_one_state(said)
    }
    return tuple(
        Candidate(
            step=step,
            tier=Tier.SLOT,
            digest=header["digest"],
            has_predecessor=step - 1 in agreed,
            generation=header["generation"],
            published_us=header["published_us"],
        )
        for step, header in sorted(agreed.items(), reverse=True)
    )


def _are_one_state(headers: list[dict[str, Any]]) -> bool:
    """True when the headers of all ranks, in order, say that they published the same."""
    said = {(h["digest"], h["generation"], h["stripes"]) for h in headers}
    stripes = [h["stripe"] for h in headers]
    count = headers[0]["stripes"]
    return len(said) == 1 and (count == 1 or stripes == list(range(count)))
