"""A wrapper of one's own: DDP with options and a hook that compresses gradients."""

import os

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lastgood

STEPS = int(os.environ.get("STEPS", "200"))


def make_loader(rank, world):
    inputs = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs.sin())
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, world, rank, seed=2))


def wrap(module, group):
    ddp = DistributedDataParallel(module, process_group=group, gradient_as_bucket_view=True)
    ddp.register_comm_hook(group, fp16_compress_hook)
    return ddp


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

run = lastgood.start(model=model, optimizer=optimizer, loader=make_loader, build=wrap)
for inputs, wanted in run.batches(steps=STEPS):
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = (run.model(inputs) - wanted).square().mean()
        step.loss.backward()
        optimizer.step()
print(
    f"rank {run.rank}: {run.steps_done} steps, last loss {float(step.loss.detach()):.6f}",
    flush=True,
)
