"""The job of the training fault tests: small, several gradient buckets, dropout, a scheduler; several epochs.

Started by `lastgood run`, or with `--plain` and torchrun's environment as the undisturbed twin. With `--rewrap` the
plain job makes a fresh wrapper before every step from step 2 on, with throw-away passes, as a recovery would.
"""

import argparse
import copy
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BUCKETS = {"bucket_cap_mb": 0.05}


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(32, 128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 128),
        nn.LayerNorm(128),
        nn.GELU(),
        nn.Linear(128, 4),
    )


def make_loader(rank: int, world: int) -> DataLoader:
    generator = torch.Generator().manual_seed(8)
    data = TensorDataset(
        torch.randn(512, 32, generator=generator), torch.randn(512, 4, generator=generator)
    )
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=4)
    return DataLoader(data, batch_size=4, sampler=sampler)


def train_step(model, optimizer, scheduler, batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    loss = ((model(inputs) - wanted) ** 2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss


def train_plain(options, model, optimizer, scheduler):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = make_loader(rank, world)
    wrapped = nn.parallel.DistributedDataParallel(model, **BUCKETS)
    done = 0
    while done < options.steps:
        loader.sampler.set_epoch(done // len(loader))
        for batch in loader:
            done += 1
            if options.rewrap and done > 1:
                wrapped = rewrap(options.discards, model, optimizer, scheduler, batch)
            train_step(wrapped, optimizer, scheduler, batch)
            if done == options.steps:
                break
    return rank, done


def rewrap(discard_count, model, optimizer, scheduler, batch):
    """What a recovery does to a rank: a new wrapper without broadcast, throw-away passes, state and streams back."""
    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
    stream = torch.get_rng_state()
    wrapped = nn.parallel.DistributedDataParallel(model, init_sync=False, **BUCKETS)
    for _ in range(discard_count):
        train_step(wrapped, optimizer, scheduler, batch)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(kept[0][name])
    optimizer.load_state_dict(kept[1])
    scheduler.load_state_dict(kept[2])
    torch.set_rng_state(stream)
    return wrapped


def train_supervised(options, model, optimizer, scheduler):
    import lastgood

    run = lastgood.start(
        model=model, optimizer=optimizer, scheduler=scheduler, loader=make_loader, ddp=BUCKETS
    )
    for batch in run.batches(steps=options.steps):
        with run.step() as step:
            step.loss = train_step(run.model, optimizer, scheduler, batch)
        time.sleep(options.pace_ms / 1000)
    return run.rank, run.steps_done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pace-ms", type=float, default=0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--rewrap", action="store_true")
    parser.add_argument("--discards", type=int, default=1)
    options = parser.parse_args()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    train = train_plain if options.plain else train_supervised
    rank, steps = train(options, model, optimizer, scheduler)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    result = {"rank": rank, "steps": steps, "weights_sha256": hashlib.sha256(weights).hexdigest()}
    path = options.out / f"weights-rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(result))
    path.with_suffix(".new").rename(path)  # whole, or not there
    if options.plain:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.exit(main())
