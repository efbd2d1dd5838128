"""The plain drill job with a fresh wrapper before every step from step 2 on, and throw-away passes, as a recovery would."""

import argparse
import copy
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from lastgood.training.examples.drill_job import (
    BUCKETS,
    digest_of,
    make_loader,
    make_model,
    train_step,
)


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True, help="less than an epoch")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--discards", type=int, required=True)
    options = parser.parse_args()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    wrapped = nn.parallel.DistributedDataParallel(model, **BUCKETS)
    for done, batch in zip(range(options.steps), make_loader(rank, dist.get_world_size())):  # noqa: B905
        if done:
            wrapped = rewrap(options.discards, model, optimizer, scheduler, batch)
        train_step(wrapped, optimizer, scheduler, batch)
    path = options.out / f"weights-rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps({"weights_sha256": digest_of(model)}))
    path.with_suffix(".new").rename(path)  # whole, or not there
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()
