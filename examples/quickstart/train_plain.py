"""A script that trains with DistributedDataParallel and knows nothing of lastgood."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "10"))


def make_loader(rank, world):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2048, 64, generator=generator)
    data = TensorDataset(inputs, inputs.sin())
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=2)
    return DataLoader(data, batch_size=16, sampler=sampler)


def train_step(model, optimizer, batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    loss = ((model(inputs) - wanted) ** 2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.03)  # stands for a larger model
    return loss


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loader = make_loader(rank, world)
ddp = DistributedDataParallel(model)
for epoch in range(EPOCHS):
    loader.sampler.set_epoch(epoch)
    for batch in loader:
        loss = train_step(ddp, optimizer, batch)

print(f"rank {rank} of {world}: last loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
