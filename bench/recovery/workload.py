"""The job that every system of this bench trains: one small network, deterministic batches, 50 ms of work a step.

A process writes one JSON line per thing that happens to `events-<pid>.jsonl` in the folder of `BENCH_OUT`, with the
machine's monotonic clock: `imported`, `ready`, and `step` with rank, step number, loss and how many members trained.
Only a step that counts is written: a replay or a vetoed step is not.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WIDTH = 256
BATCH = 4
STEP_S = 0.05
CHECKPOINT_EVERY = 10
"""Steps between checkpoints on disk, for the systems that need them."""
STEPS_MAX = 20_000
"""The bench ends the job; this ends it when the bench died."""


class Diary:
    """What this process did, line by line."""

    def __init__(self) -> None:
        path = Path(os.environ["BENCH_OUT"]) / f"events-{os.getpid()}.jsonl"
        self._file = path.open("a", buffering=1)

    def write(self, event: str, **facts: object) -> None:
        """One line, with the time of now."""
        line = {"t_us": time.monotonic_ns() // 1000, "event": event, "pid": os.getpid(), **facts}
        self._file.write(json.dumps(line) + "\n")


def make_model() -> torch.nn.Module:
    """The same weights in every process."""
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)
    )


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW, whose moments are two thirds of the state."""
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-3)


class Items:
    """Item i is the same wherever it is made: a dataset of `torch.utils.data` that keeps nothing."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        generator = torch.Generator().manual_seed(index)
        return torch.randn(WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)


def make_loader(rank: int, world: int):  # noqa: ANN201 - torch is imported late
    """The batches of one rank: without shuffling, so that `batch_of` can make any of them."""
    from torch.utils.data import DataLoader, DistributedSampler

    items = Items(STEPS_MAX * BATCH * world)
    sampler = DistributedSampler(items, num_replicas=world, rank=rank, shuffle=False)
    return DataLoader(items, batch_size=BATCH, sampler=sampler)


def batch_of(step: int, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of a step (the first is 1), as `make_loader` would give it."""
    import torch

    items = Items(STEPS_MAX * BATCH * world)
    chosen = [items[rank + world * ((step - 1) * BATCH + at)] for at in range(BATCH)]
    return torch.stack([a for a, _ in chosen]), torch.stack([b for _, b in chosen])


def train_step(model, optimizer, batch) -> torch.Tensor:  # noqa: ANN001 - a wrapper or a module
    """Forward, 50 ms of pretended work, backward, update."""
    inputs, wanted = batch
    optimizer.zero_grad()
    loss = ((model(inputs) - wanted) ** 2).mean()
    time.sleep(STEP_S)
    loss.backward()
    optimizer.step()
    return loss.detach()


def save(folder: Path, step: int, model, optimizer) -> None:  # noqa: ANN001
    """A checkpoint that is whole or not there."""
    import torch

    part = folder / f".step-{step}.part"
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part
    )
    part.rename(folder / "checkpoint.pt")


def load(folder: Path, model, optimizer) -> int:  # noqa: ANN001
    """The newest checkpoint; returns its step, 0 when there is none."""
    import torch

    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["step"])
