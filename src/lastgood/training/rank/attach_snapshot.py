"""Snapshots of one host: the replicated state in a node-local file, its digest in its name's companion, two kept.

Written behind a step by local rank 0, read by every rank of the host. A file whose bytes do not hash to what was
written is passed over and said; the newest step that *every* rank can read is loaded, so that no two ranks go on from
different states. Random streams are those of one rank each and are not in it: a resumed run is not bit-equal.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

KEPT = 2


class HostSnapshots:
    """The snapshots in one folder."""

    def __init__(
        self, folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self._folder = folder
        self._model = model
        self._optimizer = optimizer

    def save(self, step: int) -> bool:
        """Write the state after a step: data, then the digest, then the name. A failed save is said and costs nothing else."""
        buffer = io.BytesIO()
        state = {
            "model": _bare(self._model).state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": step,
        }
        torch.save(state, buffer)
        data = buffer.getvalue()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._folder / f"step-{step}.pt", data)
            digest = hashlib.sha256(data).hexdigest()
            note = json.dumps({"step": step, "bytes": len(data), "sha256": digest})
            _write(self._folder / f"step-{step}.json", note.encode())
        except OSError as error:
            sys.stderr.write(f"lastgood: snapshot of step {step} failed: {error.strerror}\n")
            return False
        for old in self.steps()[:-KEPT]:
            for suffix in ("json", "pt"):
                with suppress(OSError):
                    (self._folder / f"step-{old}.{suffix}").unlink()
        return True

    def steps(self) -> list[int]:
        """Steps of which a complete snapshot is there, oldest first."""
        return sorted(
            int(path.stem.removeprefix("step-"))
            for path in self._folder.glob("step-*.json")
            if path.stem.removeprefix("step-").isdigit()
        )

    def restore(self) -> int:
        """Load the newest snapshot that holds on every rank; returns its step, 0 when there is none."""
        intact = {step: data for step in self.steps() if (data := self._read(step)) is not None}
        common = set(intact)
        if dist.is_initialized() and dist.get_world_size() > 1:
            everybody: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, sorted(intact))
            common = set.intersection(*map(set, everybody))
        if not common:
            return 0
        step = max(common)
        state = torch.load(io.BytesIO(intact[step]), weights_only=True)
        _bare(self._model).load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        return step

    def _read(self, step: int) -> bytes | None:
        """The bytes of a snapshot, or None when they are not what was written."""
        try:
            note = json.loads((self._folder / f"step-{step}.json").read_bytes())
            data = (self._folder / f"step-{step}.pt").read_bytes()
        except (OSError, ValueError):
            return None
        if hashlib.sha256(data).hexdigest() != note.get("sha256"):
            sys.stderr.write(
                f"lastgood: snapshot of step {step} is damaged: its bytes do not hash to what was written; passed over\n"
            )
            return None
        return data


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    inner = getattr(model, "module", None)
    return inner if isinstance(inner, torch.nn.Module) else model


def _write(path: Path, data: bytes) -> None:
    """Whole and on disk, or not there."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)
