"""A run directory as the injector sees it: who serves a rank, how far it is, where its snapshots lie.

The supervisor writes three things for outsiders and reads none of them back:

    state.json        {"generation", "phase", "spares_parked", "ranks": {"0": {"worker", "pid"}}}, replaced atomically
    progress.bin      little-endian int64; element r = newest published step of rank r
    addresses/W.json  {"parameters": [{"name", "address", "bytes", "dtype"}]} of worker W

and the ranks write `slots/<rank>/state.<0|1|2>`: a JSON line padded to 4096 bytes, then the state. A reader
may meet any of them half written or gone; whatever cannot be read is None, and the caller tries again.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.faults.in_step import arm
from lastgood.faults.spec import Fault

HEADER_BYTES = 4096
STATE_BYTES_MAX = 1 << 20
PHASES_OVER = frozenset({"finished", "ended", "escalated", "failed"})
"""Phases after which nothing can be broken any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The process that serves a rank in this generation."""

    worker: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What `state.json` says."""

    generation: int
    phase: str
    spares_parked: int
    ranks: dict[int, Member]
    spares: tuple[Member, ...] = ()
    """The parked spares, oldest first."""

    @property
    def is_over(self) -> bool:
        """The run has ended."""
        return self.phase in PHASES_OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One complete snapshot file of a rank."""

    path: Path
    step: int
    data_offset: int
    data_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Where a parameter lies in the memory of a worker."""

    name: str
    address: int
    size_bytes: int
    dtype: str


class LiveRun:
    """Reads a run directory; holds no descriptor of it."""

    def __init__(self, run_dir: Path) -> None:
        """Name the directory; it may not be complete yet."""
        self._dir = run_dir

    @property
    def folder(self) -> Path:
        """The directory."""
        return self._dir

    def state(self) -> RunState | None:
        """What the supervisor last wrote; None while there is nothing readable."""
        document = _read_json(self._dir / "state.json")
        try:
            return RunState(
                generation=int(document["generation"]),
                phase=str(document["phase"]),
                spares_parked=int(document.get("spares_parked", 0)),
                ranks={
                    int(rank): Member(worker=str(entry["worker"]), pid=int(entry["pid"]))
                    for rank, entry in document["ranks"].items()
                    if entry.get("pid")
                },
                spares=tuple(
                    Member(worker=str(entry["worker"]), pid=int(entry["pid"]))
                    for entry in document.get("spares", [])
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def published_step(self, rank: int) -> int | None:
        """The newest step that a rank has published; None while nobody can say."""
        try:
            with (self._dir / "progress.bin").open("rb") as file:
                raw = os.pread(file.fileno(), 8, 8 * rank)
        except OSError:
            return None
        return struct.unpack("<q", raw)[0] if len(raw) == 8 else None

    def snapshots(self, rank: int) -> list[Snapshot]:
        """The complete snapshot files of a rank, newest first."""
        document = _read_json(self._dir / "state.json")
        root = document.get("slots_dir")
        slots = Path(root) if isinstance(root, str) else self._dir / "slots"
        if not slots.is_absolute():
            slots = self._dir / slots
        found = [snapshot_of(slots / str(rank) / f"state.{number}") for number in range(3)]
        return sorted((item for item in found if item is not None), key=lambda item: -item.step)

    def arm(self, fault: Fault) -> None:
        """Tell the rank that a fault of its own is due; the one thing that is written here."""
        arm(fault, self._dir / "faults")

    def parameters(self, worker: str) -> list[Parameter]:
        """The parameters of a worker; empty while it has listed none."""
        if "/" in worker or worker in ("", ".", ".."):
            return []
        document = _read_json(self._dir / "addresses" / f"{worker}.json")
        try:
            return [
                Parameter(name=str(entry["name"]), address=int(entry["address"]),
                          size_bytes=int(entry["bytes"]), dtype=str(entry["dtype"]))
                for entry in document.get("parameters", [])
            ]  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError):
            return []


def snapshot_of(path: Path) -> Snapshot | None:
    """Read the header of a snapshot file; None when there is no complete snapshot in it."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(HEADER_BYTES).partition(b"\n")[0])
            snapshot = Snapshot(path=path, step=int(header["step"]), data_offset=int(header["data_offset"]),
                                data_bytes=int(header["bytes"]))  # fmt: skip
            is_whole = os.fstat(file.fileno()).st_size >= snapshot.data_offset + snapshot.data_bytes
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return snapshot if is_whole and snapshot.step >= 0 and snapshot.data_bytes > 0 else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(STATE_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
