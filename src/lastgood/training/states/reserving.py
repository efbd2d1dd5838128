"""Room for the snapshots, taken before a rank trains: shared memory that is missing later ends a process, not a run.

A page of a file in shared memory is only had when it is written, and a write that finds none is a SIGBUS. So the files
are made at their full size at the start, and where that fails the run is refused with what it needs and what is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lastgood.base.errors import Refused
from lastgood.base.units import format_bytes
from lastgood.training.rundir import SLOT_COUNT
from lastgood.training.states.catalogue import HEADER_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.training.rundir import RunDir

OTHER_BYTES = 64 * 1024
"""Streams, data position and layout beside the tensors; more is taken when it is needed."""


def snapshot_bytes(state_bytes: int, *, stripes: int) -> int:
    """Return the size of one snapshot file of a rank that keeps one of so many stripes."""
    return HEADER_BYTES + -(-state_bytes // stripes) + OTHER_BYTES


def reserve_snapshots(run_dir: RunDir, *, ranks: int, state_bytes: int, stripes: int) -> None:
    """Make every snapshot file of a run at the size that it will have.

    Raises:
        Refused: there is no room for all of them.
    """
    each = snapshot_bytes(state_bytes, stripes=stripes)
    files = [run_dir.snapshot(rank, step) for rank in range(ranks) for step in range(SLOT_COUNT)]
    missing = sum(max(0, each - _size_of(path)) for path in files)
    status = os.statvfs(run_dir.root)
    free = status.f_bavail * status.f_frsize
    if missing > free:
        raise _refused(run_dir, each=each, ranks=ranks, free=free, reason="")
    for path in files:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, each)
        except OSError as error:
            reason = f", and then: {error.strerror}"
            raise _refused(run_dir, each=each, ranks=ranks, free=free, reason=reason) from error
        finally:
            os.close(descriptor)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _refused(run_dir: RunDir, *, each: int, ranks: int, free: int, reason: str) -> Refused:
    place = run_dir.root.parent
    whole = each * ranks * SLOT_COUNT
    needs = f"{format_bytes(whole)}: {SLOT_COUNT} snapshots of {format_bytes(each)} for each of {ranks} ranks"
    return Refused(
        "there is no room for the snapshots",
        where=str(place),
        found=f"{format_bytes(free)} free ({free} bytes){reason}",
        needs=f"{needs} ({whole} bytes)",
        next=(
            f"type: mount -o remount,size={-(-whole * 5 // 4 // 2**20)}M {place}; in a container start it with "
            f"--shm-size; or use --snapshots striped; lastgood doctor shows what killed runs left there"
        ),
    )
