"""Seals on a framework's own checkpoints: which of them is the last good one?

A framework takes its newest checkpoint, and a job that dies while it writes one, or on a disk that loses bytes, comes
back to a file that it cannot load or, worse, can. A seal is written once a checkpoint is complete and holds the
digest of every file of it. A checkpoint without a seal, or whose bytes do not hash to it, is passed over.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import xxhash

SEAL = "lastgood.json"
_CHUNK_BYTES = 1 << 20


class Sealed(NamedTuple):
    """A checkpoint (a file or a folder) and the step that its seal names."""

    step: int
    path: Path


def seal(path: Path, *, step: int) -> None:
    """Write down the digest of every file of a complete checkpoint; a full disk costs the seal and nothing else."""
    note = json.dumps({"step": step, "files": _digests(path)}, indent=1, sort_keys=True)
    place = _place(path)
    with suppress(OSError):
        fresh = place.with_name(f".{place.name}.new")
        with fresh.open("w", encoding="utf-8") as out:
            out.write(note)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(place)


def newest_that_holds(folder: Path) -> Sealed | None:
    """Return the newest checkpoint whose bytes are those that were sealed; None when there is none.

    Newest by its step. Every rank that looks into the same folder finds the same one.
    """
    found = []
    for place in (*folder.glob(f"*/{SEAL}"), *folder.glob(f"*.{SEAL}")):
        path = place.parent if place.name == SEAL else place.with_name(_bare(place.name))
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(place.read_text(encoding="utf-8"))
            found.append((int(note["step"]), path.name, path, dict(note["files"])))
    for step, _, path, files in sorted(found, key=lambda item: item[:2], reverse=True):
        with suppress(OSError):
            if _digests(path) == files:
                return Sealed(step, path)
    return None


def _place(path: Path) -> Path:
    """Where the seal of a checkpoint lies: inside a folder, so that it goes with it; beside a file."""
    return path / SEAL if path.is_dir() else path.with_name(f"{path.name}.{SEAL}")


def _bare(name: str) -> str:
    return name.removesuffix(f".{SEAL}")


def _digests(path: Path) -> dict[str, str]:
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {
        str(file.relative_to(path)) if path.is_dir() else file.name: _digest(file)
        for file in files
        if not file.name.endswith(SEAL) and not file.name.endswith(f"{SEAL}.new")
    }


def _digest(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
