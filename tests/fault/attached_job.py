"""A job under somebody else's launcher that calls `lastgood.attach()` and nothing else of lastgood."""

import argparse
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import lastgood


def say(line: str) -> None:
    """One write: where nothing is buffered `print` makes two, and the lines of two ranks get into each other."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument(
        "--steps-after-resume", type=int, help="end so many steps behind a resumed one"
    )
    parser.add_argument("--pace-ms", type=float, default=20)
    parser.add_argument("--snapshot-every", type=int, default=0)
    parser.add_argument("--snapshot-dir")
    parser.add_argument("--hang-after", default="1s")
    parser.add_argument("--raise-at", type=int)
    options = parser.parse_args()
    torch.manual_seed(0)
    bare = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3)
    attached = lastgood.attach(
        model=bare,
        optimizer=optimizer,
        snapshot_every=options.snapshot_every,
        snapshot_dir=options.snapshot_dir,
        hang_after=options.hang_after,
        on_stop=lambda step: say(f"stopped after step {step}"),
    )
    dist.init_process_group("gloo", rank=attached.place.rank, world_size=attached.place.world)
    done = attached.resume()
    if done and options.steps_after_resume is not None:
        options.steps = done + options.steps_after_resume
    say(f"rank {attached.place.rank} begins after step {done}")
    model = DistributedDataParallel(bare)
    while done < options.steps:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        done += 1
        if done == options.raise_at and attached.place.rank == 0:
            raise ValueError("a batch that nobody expected")
        time.sleep(options.pace_ms / 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
