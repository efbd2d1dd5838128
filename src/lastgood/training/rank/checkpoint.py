"""Durable checkpoints in `torch.distributed.checkpoint` format, written from the snapshots by a helper process.

The ranks do not write them and do not wait for them: the helper copies a pinned snapshot out of shared memory,
writes it beside the others, reads it back, hashes it, and only then gives the folder its name. One checkpoint holds
the replicated state once and the private state of every rank. `lastgood.json` inside names step and digests; the
`.metadata` file of torch and this file are both there only when the checkpoint is complete.
"""

from __future__ import annotations

if __name__ == "__main__":
    # Before torch, whose import takes seconds: its successor writes to the same folder.
    from lastgood.training.starter import end_with_starter

    end_with_starter()

import json
import os
import shutil
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import xxhash
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from lastgood.base.clock import boot_id
from lastgood.base.units import format_bytes
from lastgood.training.rank.shards import OWN_PREFIXES
from lastgood.training.rank.snapshot import LoadedState, SnapshotMismatch, load_world
from lastgood.training.rank.state import Digests, digest_state, pack, unpack
from lastgood.training.rundir import RunDir
from lastgood.training.states.checkpoints import MARK, read_mark, seal_mark

_PROBE_BYTES = 1 << 20


def _flatten(states: list[LoadedState]) -> dict[str, torch.Tensor]:
    """One flat dictionary of tensors: what all ranks share once, and each rank's own under its number."""
    flat = {name: t for name, t in states[0].tensors.items() if not name.startswith(OWN_PREFIXES)}
    for rank, state in enumerate(states):
        flat |= {
            f"rank{rank}.{name}": t
            for name, t in state.tensors.items()
            if name.startswith(OWN_PREFIXES)
        }
        blob = pack({"values": state.values, "streams": state.streams, "position": state.position})
        flat[f"rank{rank}.blob"] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
    return flat


def write_checkpoint(
    path: Path,
    states: list[LoadedState],
    *,
    published_us: int | None = None,
    tolerance: str | None = None,
) -> dict[str, Any]:
    """Write one checkpoint, read it back and give it its name; returns what `lastgood.json` says."""
    if len({state.digests.replica for state in states}) != 1:
        raise SnapshotMismatch(states[0].step, "the ranks do not hold the same state")
    fresh = path.with_name(path.name + ".partial")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    flat = _flatten(states)
    with _single_process():
        dcp.save(flat, checkpoint_id=str(fresh), no_dist=True)
    mark = {
        "step": states[0].step,
        "digest": states[0].digests.replica,
        "private_digests": [state.digests.private for state in states],
        "blob_digests": [_blob_digest(flat, rank) for rank in range(len(states))],
        "order": [name for name in states[0].tensors if not name.startswith(OWN_PREFIXES)],
        "private_order": [name for name in states[0].tensors if name.startswith(OWN_PREFIXES)],
        "world": len(states),
        "bytes": sum(t.numel() * t.element_size() for t in flat.values()),
        "files": _file_digests(fresh),
        "published_us": published_us,
        "tolerance": tolerance,
        "boot_id": boot_id(),
    }
    with (fresh / MARK).open("w", encoding="utf-8") as out:
        out.write(seal_mark(mark))
        out.flush()
        os.fsync(out.fileno())
    for rank in range(len(states)):
        load_checkpoint(str(fresh), rank=rank, step=states[0].step)
    shutil.rmtree(path, ignore_errors=True)
    fresh.rename(path)
    _sync_folder(path.parent)
    return mark


@contextmanager
def _single_process() -> Generator[None]:
    """Torch remarks each time that no group is there: that is the intent, and no news for the user's terminal."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _file_digests(path: Path) -> dict[str, str]:
    """Digest of each file that torch wrote: tensors have digests of their own, the format around them has not."""
    found = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.name != MARK:
            with file.open("rb") as stream:
                digest = xxhash.xxh3_128()
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
            found[str(file.relative_to(path))] = digest.hexdigest()
    return found


def _sync_folder(path: Path) -> None:
    """Make a name durable: older checkpoints are deleted on the strength of this one."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _blob_digest(flat: dict[str, torch.Tensor], rank: int) -> str:
    return xxhash.xxh3_128_hexdigest(flat[f"rank{rank}.blob"].numpy().tobytes())


def load_checkpoint(locator: str, *, rank: int, step: int) -> LoadedState:
    """Read one rank's state from a checkpoint and hash all of it; raises SnapshotMismatch when anything is off."""
    path = Path(locator)
    mark = read_mark(path)
    if mark is None:
        raise SnapshotMismatch(step, f"checkpoint {path.name}: {MARK} is missing or changed")
    if rank >= mark["world"]:
        raise SnapshotMismatch(step, f"checkpoint {path.name} was written by {mark['world']} ranks")
    try:
        # Before torch reads any of it: its metadata is pickled.
        found_files = _file_digests(path)
        changed = {n for n, digest in mark["files"].items() if found_files.get(n) != digest}
        if changed:
            raise SnapshotMismatch(
                step, f"checkpoint {path.name}: changed or missing: {', '.join(sorted(changed))}"
            )
        flat = _read_tensors(path, rank)
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        EOFError,
        dcp.CheckpointException,
    ) as error:
        raise SnapshotMismatch(step, f"checkpoint {path.name} cannot be read: {error}") from error
    blob = flat.pop(f"rank{rank}.blob").numpy().tobytes()
    if xxhash.xxh3_128_hexdigest(blob) != mark["blob_digests"][rank]:
        raise SnapshotMismatch(
            step, f"checkpoint {path.name}: the bytes of rank {rank}'s streams and position changed"
        )
    content = unpack(blob)
    own = f"rank{rank}."
    private = {name.removeprefix(own): t for name, t in flat.items() if name.startswith(own)}
    replicated = {name: t for name, t in flat.items() if not name.startswith(own)}
    # The digest is taken in the order of the live model, which the file format does not keep.
    replicated = {name: replicated[name] for name in mark["order"]}
    private = {name: private[name] for name in mark["private_order"]}
    found = digest_state(replicated, private, content["streams"])
    wanted = Digests(mark["digest"], mark["private_digests"][rank])
    if found != wanted or mark["step"] != step:
        raise SnapshotMismatch(
            step, f"checkpoint {path.name} hashes to {found}, it was written as {wanted}"
        )
    return LoadedState(
        step,
        found,
        replicated | private,
        content["values"],
        content["streams"],
        content["position"],
    )


def _read_tensors(path: Path, rank: int) -> dict[str, torch.Tensor]:
    """Read what one rank needs: the shared tensors and its own."""
    metadata = dcp.FileSystemReader(str(path)).read_metadata().state_dict_metadata
    flat = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in metadata.items()
        if isinstance(about, TensorStorageMetadata)
        and (not name.startswith("rank") or name.startswith(f"rank{rank}."))
    }
    with _single_process():
        dcp.load(flat, checkpoint_id=str(path), no_dist=True)
    return flat


def main() -> None:
    """Serve requests on standard input, one JSON object a line; answer each on standard output.

    A request names the run's folder, the world, the step and the path to write. The first answer says that the
    snapshot has been copied and need not be pinned any longer; the second how the writing ended.
    """
    torch.set_num_threads(1)
    _answer({"kind": "ready", "step": -1})
    for line in sys.stdin:
        request = json.loads(line)
        step = request["step"]
        try:
            run = RunDir(Path(request["run_dir"]))
            states = [
                _copied(state, is_first=rank == 0)
                for rank, state in enumerate(load_world(run, world=request["world"], step=step))
            ]
            _answer({"kind": "copied", "step": step})
            mark = write_checkpoint(
                Path(request["path"]),
                states,
                published_us=request.get("published_us"),
                tolerance=request.get("tolerance"),
            )
        except (Exception, dcp.CheckpointException) as error:  # noqa: BLE001 - a failed save is no reason to stop
            reason = _why(error, Path(request["path"]).parent)
            _answer({"kind": "failed", "step": step, "reason": reason})
        else:
            _answer(
                {"kind": "written", "step": step, "bytes": mark["bytes"], "digest": mark["digest"]}
            )


def _why(error: BaseException, folder: Path) -> str:
    """Say why a save failed, as a person would: torch reports a full disk as a wrong position in a file."""
    cause = error
    if isinstance(error, dcp.CheckpointException):
        cause = next((wrapped[0] for wrapped in error.failures.values()), error)
    text = f"{type(cause).__name__}: {cause}"[:400]
    if isinstance(cause, SnapshotMismatch | OSError):
        return text
    problem = _problem_of(folder)
    return text if problem is None else f"{problem}; {text}"


def _problem_of(folder: Path) -> str | None:
    """Write a little to a folder and say what the kernel thinks of it; None when it takes it."""
    probe = folder / f".lastgood-probe-{os.getpid()}"
    try:
        with probe.open("wb") as out:
            out.write(bytes(_PROBE_BYTES))
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        free = os.statvfs(folder)
        return f"{error.strerror} ({format_bytes(free.f_bavail * free.f_frsize)} free in {folder})"
    finally:
        with suppress(OSError):
            probe.unlink()
    return None


def _copied(state: LoadedState, *, is_first: bool) -> LoadedState:
    """Take the tensors out of shared memory; what all ranks share is taken once."""
    tensors = {
        name: tensor.clone()
        for name, tensor in state.tensors.items()
        if is_first or name.startswith(OWN_PREFIXES)
    }
    return state._replace(tensors=tensors)


def _answer(content: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(content) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # the supervisor is gone, and with it whoever could want to know


if __name__ == "__main__":
    main()
