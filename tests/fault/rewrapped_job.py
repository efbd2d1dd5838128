"""The plain drill job with a fresh wrapper before every step, as a recovery would make it.

From step 2 on with throw-away passes, or with `--recorded` from step 3 on with the gradient buckets of the step before.
"""

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
from lastgood.training.rank.buckets import BucketRecord, lay_out, registered_in


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


def wrap_recorded(model, layout):
    """What a recovery does to a rank that knows the buckets: a new wrapper that begins with them, and no pass for it."""
    record = BucketRecord()
    with registered_in(layout) as made:
        wrapped = nn.parallel.DistributedDataParallel(model, init_sync=False, **BUCKETS)
    record.follow(made[0])
    if layout is not None:
        assert lay_out(wrapped)

    def hook(state, bucket):
        record.see(bucket)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    wrapped.register_comm_hook(None, hook)
    return wrapped, record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True, help="less than an epoch")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--discards", type=int, default=0)
    parser.add_argument("--recorded", action="store_true")
    options = parser.parse_args()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    wrapped, record = wrap_recorded(model, None)
    for done, batch in zip(range(options.steps), make_loader(rank, dist.get_world_size())):  # noqa: B905
        if options.recorded and done >= 2:
            wrapped, record = wrap_recorded(model, record.layout)
        elif done and not options.recorded:
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
