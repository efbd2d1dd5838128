"""The same script under lastgood: it says what is trained and what one step is; lastgood does the rest."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lastgood

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

run = lastgood.start(model=model, optimizer=optimizer, loader=make_loader)
for batch in run.batches(epochs=EPOCHS):
    with run.step() as step:
        step.loss = loss = train_step(run.model, optimizer, batch)

print(f"rank {run.rank} of {run.world_size}: last loss {loss.item():.6f}", flush=True)
