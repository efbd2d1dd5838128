"""The job that drills break: small, several gradient buckets, dropout, a scheduler, several epochs.

    lastgood run --nproc-per-node 4 drill_job.py --steps 200 --out DIR
    drill_job.py --plain --steps 200 --out DIR       the same in plain torch, with the environment of torchrun

Both write `weights-rank<r>.json` to DIR. The plain job writes the digest of the weights behind every step, so one
undisturbed run is the twin of every job that was no longer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BUCKETS = {"bucket_cap_mb": 0.05}
BALLAST_BYTES = 1 << 20


def make_model() -> nn.Module:
    """A small network whose gradients fill several buckets."""
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


def make_loader(
    rank: int, world: int, *, workers: int = 0, is_persistent: bool = False
) -> DataLoader:
    """The batches of one rank."""
    generator = torch.Generator().manual_seed(8)
    data = TensorDataset(
        torch.randn(512, 32, generator=generator), torch.randn(512, 4, generator=generator)
    )
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=4)
    return DataLoader(
        data, batch_size=4, sampler=sampler, num_workers=workers, persistent_workers=is_persistent
    )


class Growing:
    """A part of the state that has much more to keep from a step on."""

    def __init__(self, at_step: int) -> None:
        """Grow behind `at_step`; 0 = never."""
        self.at_step, self.steps_done = at_step, 0

    def state_dict(self) -> dict[str, object]:
        """The count, and the ballast once it is due."""
        is_large = 0 < self.at_step <= self.steps_done
        return {"steps_done": self.steps_done, "ballast": "x" * (is_large * BALLAST_BYTES)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take the count back."""
        self.steps_done = state["steps_done"]


def train_step(model, optimizer, scheduler, batch) -> torch.Tensor:  # noqa: ANN001 - a DDP model or a stand-in for one
    """One step; returns the loss."""
    inputs, wanted = batch
    optimizer.zero_grad()
    loss = ((model(inputs) - wanted) ** 2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss


def digest_of(model: nn.Module) -> str:
    """SHA-256 of all parameters."""
    return hashlib.sha256(
        b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    ).hexdigest()


def train_plain(options, model, optimizer, scheduler):  # noqa: ANN001, ANN201
    """Plain torch: no lastgood anywhere, but for one line where it is to be attached."""
    if options.attach:
        import lastgood

        lastgood.attach(hang_after="1s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = make_loader(
        rank, world, workers=options.workers, is_persistent=options.persistent_workers
    )
    assert isinstance(loader.sampler, DistributedSampler)
    wrapped = nn.parallel.DistributedDataParallel(model, **BUCKETS)
    digests: list[str] = []
    while len(digests) < options.steps:
        loader.sampler.set_epoch(len(digests) // len(loader))
        for batch in loader:
            train_step(wrapped, optimizer, scheduler, batch)
            digests.append(digest_of(model))
            time.sleep(options.pace_ms / 1000)
            if len(digests) == options.steps:
                break
    return rank, len(digests), {"digests": digests}


def train_supervised(options, model, optimizer, scheduler):  # noqa: ANN001, ANN201
    """The loop as a user of lastgood writes it, with an evaluation now and then where it is asked for."""
    import lastgood

    growing = Growing(options.grow_at)
    run = lastgood.start(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=lambda rank, world: make_loader(
            rank, world, workers=options.workers, is_persistent=options.persistent_workers
        ),
        ddp=BUCKETS,
        extra={"growing": growing} if options.grow_at else None,
    )
    for batch in run.batches(steps=options.steps):
        with run.step() as step:
            step.loss = train_step(run.model, optimizer, scheduler, batch)
            growing.steps_done += 1
        time.sleep(options.pace_ms / 1000)
        if options.section_every and run.steps_done % options.section_every == 0:
            with run.section("evaluation"):
                time.sleep(options.section_ms / 1000)
    return run.rank, run.steps_done, {}


def main() -> None:
    """Train, then write the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pace-ms", type=float, default=0.0, help="pause behind each step")
    parser.add_argument("--section-every", type=int, default=0, help="steps between evaluations")
    parser.add_argument("--section-ms", type=float, default=300.0, help="how long one takes")
    parser.add_argument("--workers", type=int, default=0, help="data loader processes of each rank")
    parser.add_argument("--persistent-workers", action="store_true", help="they outlive an epoch")
    parser.add_argument("--grow-at", type=int, default=0, help="step behind which the state grows")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--attach", action="store_true", help="with --plain: lastgood.attach()")
    options = parser.parse_args()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    train = train_plain if options.plain else train_supervised
    rank, steps, more = train(options, model, optimizer, scheduler)
    result = {"rank": rank, "steps": steps, "weights_sha256": digest_of(model), **more}
    path = options.out / f"weights-rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(result))
    path.with_suffix(".new").rename(path)  # whole, or not there
    if options.plain:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()
