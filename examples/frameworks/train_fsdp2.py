"""Sharded by FSDP2: model, optimizer and scheduler are functions, made anew in every generation."""

import os

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lastgood

STEPS = int(os.environ.get("STEPS", "200"))


def make_loader(rank, world):
    inputs = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs.sin())
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, world, rank, seed=2))


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))


def shard(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


run = lastgood.start(
    model=make_model,
    optimizer=make_optimizer,
    scheduler=make_scheduler,
    loader=make_loader,
    build=shard,
)
for inputs, wanted in run.batches(steps=STEPS):
    with run.step() as step:
        run.optimizer.zero_grad()
        step.loss = (run.model(inputs) - wanted).square().mean()
        step.loss.backward()
        run.optimizer.step()
        run.scheduler.step()
print(
    f"rank {run.rank}: {run.steps_done} steps, last loss {float(step.loss.detach()):.6f}",
    flush=True,
)
