"""Models of several kinds, trained with one wrapper and with a fresh one before every step from step 3 on.

The fresh wrapper begins with the gradient buckets that the step had in the undisturbed run, or with DDP's own.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lastgood.training.rank.buckets import BucketRecord, lay_out, lays_out_again, registered_in

STEPS = 8
FIRST_FRESH = 3
OPTIONS = {
    "shared": {},
    "view": {"gradient_as_bucket_view": True},
    "accumulated": {},
    "unused": {"find_unused_parameters": True},
    "two types": {},
}


class Model(nn.Module):
    """Registered in another order than it is used in, with one weight in two places."""

    def __init__(self, case: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.last = nn.Linear(96, 4)
        self.middle = nn.Linear(96, 96)
        self.first = nn.Linear(32, 96)
        self.norm = nn.LayerNorm(96)
        self.again = nn.Linear(96, 96)
        self.again.weight = self.middle.weight
        if case == "unused":
            self.extra = nn.Linear(64, 64)
        dtype = torch.float64 if case == "two types" else torch.float32
        self.scale = nn.Parameter(torch.randn(96, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.middle(torch.relu(self.first(x))))
        return self.last(torch.tanh(self.again(hidden)) * self.scale.float())


def wrap(model: nn.Module, case: str, layout: tuple | None):
    """A fresh wrapper, and what it tells of its buckets."""
    options, record = OPTIONS[case], BucketRecord()
    is_ordered = layout is not None and lays_out_again(options)
    with registered_in(layout if is_ordered else None) as made:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.02, init_sync=False, **options)
    record.follow(made[0])
    if is_ordered:
        assert lay_out(wrapped)

    def hook(state, bucket):
        record.see(bucket)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    wrapped.register_comm_hook(None, hook)
    return wrapped, record


def train(case: str, layouts: list[tuple] | None, *, is_fresh: bool) -> tuple[str, list[tuple]]:
    """Weights after the last step, and the buckets of each."""
    model = Model(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    wrapped, record = wrap(model, case, None)
    batches = torch.Generator().manual_seed(100 + dist.get_rank())
    seen = []
    for step in range(1, STEPS + 1):
        if is_fresh and step >= FIRST_FRESH:
            optimizer.zero_grad()
            wrapped, record = wrap(model, case, layouts[step - 1] if layouts else None)
        optimizer.zero_grad()
        for part in range(2):
            inputs, wanted = (torch.randn(8, n, generator=batches) for n in (32, 4))
            loss = ((wrapped(inputs) - wanted) ** 2).mean() if part else None
            if loss is not None:
                loss.backward()
            elif case == "accumulated":
                with wrapped.no_sync():
                    ((wrapped(inputs) - wanted) ** 2).mean().backward()
        optimizer.step()
        seen.append(record.layout)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(weights).hexdigest(), seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for case in OPTIONS:
        plain, layouts = train(case, None, is_fresh=False)
        fresh, seen = train(case, layouts, is_fresh=True)
        bare, _ = train(case, None, is_fresh=True)
        found[case] = {
            "is_equal": (fresh, seen) == (plain, layouts),
            "is_sensitive": bare != plain,
        }
    path = options.out / f"found-rank{dist.get_rank()}.json"
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").rename(path)  # whole, or not there
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
