"""A job that never heard of lastgood: plain DDP under torchrun's environment, with a loader process of its own.

With `--checkpoint FILE` it saves every 10 steps and resumes from there, as such scripts do.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--pace-ms", type=float, default=20)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--optimizer", default="AdamW")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--raise-at", type=int)
    parser.add_argument("--stop-at", type=int, help="rank 1 stops itself behind this step")
    parser.add_argument("--exit-code", type=int, default=0)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = getattr(torch.optim, options.optimizer)(model.parameters(), lr=1e-3)
    done = 0
    if options.checkpoint and options.checkpoint.exists():
        kept = torch.load(options.checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    data = TensorDataset(torch.randn(4 * 64, 8))
    while done < options.steps:
        for (batch,) in DataLoader(data, batch_size=4, num_workers=options.loaders):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            done += 1
            time.sleep(options.pace_ms / 1000)
            if options.checkpoint and rank == 0 and done % 10 == 0:
                torch.save(
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": done,
                    },
                    options.checkpoint.with_suffix(".new"),
                )
                options.checkpoint.with_suffix(".new").rename(options.checkpoint)
            if done == options.stop_at and rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            if done == options.raise_at and rank == 1:
                raise ValueError("a batch that nobody expected")
            if done == options.steps:
                break
    print(f"rank {rank} of restart {os.environ['TORCHELASTIC_RESTART_COUNT']} is done", flush=True)
    dist.destroy_process_group()
    raise SystemExit(options.exit_code)


if __name__ == "__main__":
    main()
