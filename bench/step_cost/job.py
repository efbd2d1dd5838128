"""The job of the step-cost bench: 10 M parameters, AdamW, a step of about half a second of CPU; plain or under lastgood.

    job.py --batch N --steps N --out DIR [--plain]

Every rank writes `cost-<rank>.json`: its CPU seconds (user and system, all threads) over the measured steps, and the
CPU seconds inside the writing of snapshots, digests included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

WIDTH, LAYERS = 1000, 10
WARMUP_STEPS = 5
"""Not measured: the optimizer's state is made, DDP settles its buckets, lastgood runs step 2 twice."""


def make_model() -> torch.nn.Module:
    """10,010,000 parameters: 40 MB, and 80 MB of moments."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


class Batches:
    """The same batch again and again: the bench measures what a step costs, not what it learns."""

    def __init__(self, size: int, count: int) -> None:
        self._batch = torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(2))
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self._batch for _ in range(self._count))


def train_step(model, optimizer, batch) -> torch.Tensor:  # noqa: ANN001 - a wrapper or a module
    """One step."""
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def cpu_s() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_s_of(pid: int) -> float:
    """User and system time of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meter:
    """CPU and wall time from the first measured step to the last."""

    def __init__(self, *, watches_parent: bool) -> None:
        self._watches_parent = watches_parent
        self.snapshot_s = 0.0
        self.found: dict[str, float] = {}

    def _now(self) -> dict[str, float]:
        now = {"cpu_s": cpu_s(), "wall_s": time.monotonic(), "snapshot_s": self.snapshot_s}
        if self._watches_parent:
            now["supervisor_s"] = cpu_s_of(os.getppid())
        return now

    def step_done(self, done: int, steps: int) -> None:
        """Look at the clocks where the measured part begins and ends."""
        if done == WARMUP_STEPS:
            self._began = self._now()
        elif done == steps:
            now = self._now()
            self.found = {key: now[key] - self._began[key] for key in now}
            self.found["steps"] = steps - WARMUP_STEPS


def train_plain(options: argparse.Namespace, model: torch.nn.Module, optimizer) -> tuple[int, dict]:  # noqa: ANN001
    """The loop in plain torch."""
    dist.init_process_group("gloo")
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    meter = Meter(watches_parent=False)
    for done, batch in enumerate(Batches(options.batch, options.steps), 1):
        train_step(wrapped, optimizer, batch)
        meter.step_done(done, options.steps)
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rank, meter.found


def train_supervised(options: argparse.Namespace, model, optimizer) -> tuple[int, dict]:  # noqa: ANN001
    """The same loop under lastgood."""
    import lastgood
    from lastgood.training.rank.snapshot import SnapshotWriter

    meter = Meter(watches_parent=True)
    write = SnapshotWriter.write

    def timed(*args: object, **kwargs: object) -> object:
        began = time.thread_time()
        try:
            return write(*args, **kwargs)
        finally:
            meter.snapshot_s += time.thread_time() - began

    SnapshotWriter.write = timed
    run = lastgood.start(
        model=model,
        optimizer=optimizer,
        loader=lambda _rank, _world: Batches(options.batch, options.steps),
    )
    for batch in run.batches(steps=options.steps):
        with run.step() as step:
            step.loss = train_step(run.model, optimizer, batch)
        if step.is_accepted:
            meter.step_done(step.number, options.steps)
    return run.rank, meter.found


def main() -> None:
    """Train, then say what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train = train_plain if options.plain else train_supervised
    rank, found = train(options, model, optimizer)
    (options.out / f"cost-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
