"""A job whose parameters, gradients and optimizer state are sharded over the ranks by FSDP2's `fully_shard`.

`--plain` runs the same in plain torch, without lastgood: whatever happened to the other one, the weights must be equal.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, BATCH = 37, 6
"""No extent divides by the number of ranks, so shards are uneven and one may be empty."""


class Rows:
    """The batches of one rank, made from their number."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __len__(self) -> int:
        return 100_000

    def __iter__(self):
        for number in range(len(self)):
            generator = torch.Generator().manual_seed(1_000 * number + self._rank)
            yield torch.randn(BATCH, WIDTH, generator=generator)


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(*[make_block() for _ in range(2)])


def make_block() -> nn.Module:
    wide = 2 * WIDTH
    inside = (nn.Linear(WIDTH, wide), nn.GELU(), nn.Dropout(0.1), nn.Linear(wide, WIDTH))
    return nn.Sequential(*inside, nn.LayerNorm(WIDTH))


def shard(model: nn.Module, _group: dist.ProcessGroup) -> nn.Module:
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def make_scheduler(optimizer: torch.optim.Optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)


def train_step(model, optimizer, scheduler, batch) -> torch.Tensor:
    optimizer.zero_grad()
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    return loss


def train_plain(options):
    dist.init_process_group("gloo")
    model = shard(make_model(), dist.group.WORLD)
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer)
    rank = dist.get_rank()
    for step, batch in enumerate(Rows(rank), start=1):
        train_step(model, optimizer, scheduler, batch)
        if step == options.steps:
            return model, rank, step
    raise AssertionError("too few rows")


def train_supervised(options):
    import lastgood

    run = lastgood.start(
        model=make_model,
        optimizer=make_optimizer,
        scheduler=make_scheduler,
        loader=lambda rank, world: Rows(rank),
        build=shard,
    )
    for batch in run.batches(steps=options.steps):
        with run.step() as step:
            step.loss = train_step(run.model, run.optimizer, run.scheduler, batch)
        time.sleep(options.pace_ms / 1000)
    return run.model, run.rank, run.steps_done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pace-ms", type=float, default=0)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    model, rank, steps = (train_plain if options.plain else train_supervised)(options)
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().full_tensor().numpy().tobytes())
    result = {"rank": rank, "steps": steps, "weights_sha256": weights.hexdigest()}
    path = options.out / f"weights-rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(result))
    path.with_suffix(".new").rename(path)  # whole, or not there
    if options.plain:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.exit(main())
