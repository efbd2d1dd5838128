"""What one snapshot with its digest costs a rank, by itself: CPU milliseconds, whole and in stripes of 2, 3, 4 and 8.

    python bench/step_cost/snapshot.py [--repeats 30] [-o FILE]

One process plays rank 0 of the job of `job.py`. The kinds take turns, and every tensor is written between two
snapshots, as a step would. No other rank of the job runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import job
import torch

from lastgood.training.rank.snapshot import SnapshotWriter
from lastgood.training.rank.state import Trainable, capture_streams, digest_tensors
from lastgood.training.rundir import RunDir

STRIPES = (1, 2, 3, 4, 8)
WARMUP = 3
"""Writes of each kind that are not measured: the three files are made."""


def main() -> int:
    """Measure everything and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("-o", "--output", help="write the JSON here instead of stdout")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trainable = made()
    replicated, _ = trainable.tensors()
    found: dict[str, list[float]] = {str(count): [] for count in STRIPES} | {"digest alone": []}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        writers = {}
        for count in STRIPES:
            run = RunDir.create(Path(name) / str(count), ranks=1)
            writers[count] = SnapshotWriter(run, 0, stripe_count=count)
        for step in range(WARMUP + arguments.repeats):
            for count, writer in writers.items():
                found[str(count)].append(snapshot_ms(writer, trainable, replicated, step))
            touch(replicated)
            began = time.thread_time()
            digest_tensors(replicated)
            found["digest alone"].append((time.thread_time() - began) * 1000)
    text = json.dumps(summary(found, replicated), indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


def made() -> Trainable:
    """The model of the job, with the state of its optimizer."""
    model = job.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    job.train_step(model, optimizer, torch.randn(8, job.WIDTH))
    optimizer.zero_grad()
    return Trainable(model, optimizer)


def touch(tensors: dict[str, torch.Tensor]) -> None:
    """Write every tensor, as an update does."""
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.mul_(1.0)


def snapshot_ms(
    writer: SnapshotWriter, trainable: Trainable, tensors: dict[str, torch.Tensor], step: int
) -> float:
    """CPU milliseconds of one snapshot."""
    touch(tensors)
    began = time.thread_time()
    writer.write(trainable, step=step, generation=1, streams=capture_streams(), position={})
    return (time.thread_time() - began) * 1000


def summary(found: dict[str, list[float]], tensors: dict[str, torch.Tensor]) -> dict:
    """Median and 95th percentile of each kind."""
    rows = []
    for kind, values in found.items():
        ordered = sorted(values[WARMUP:])
        middle, high = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
        rows.append({"stripes": kind, "p50_ms": round(middle, 2), "p95_ms": round(high, 2)})
    return {
        "rows": rows,
        "state_bytes": sum(t.numel() * t.element_size() for t in tensors.values()),
        "repeats": len(found["1"]) - WARMUP,
        "load": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    sys.exit(main())
