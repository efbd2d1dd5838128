"""A small fixed computation whose bits are known to be equal on every healthy worker of one machine.

A spare runs it before it may serve. It covers what a step needs (matrix products, softmax, AdamW) in a fraction of
a second; it is an admission check, not a stress test, and says nothing about a device that fails rarely.
"""

from __future__ import annotations

import torch

from lastgood.training.rank.state import digest_tensors


def golden_digest() -> str:
    """Return the digest of the computation; it also makes torch's lazy imports happen before they are missed."""
    generator = torch.Generator().manual_seed(20_260_101)
    layer = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    for _ in range(3):
        batch = torch.randn(32, 64, generator=generator)
        loss = -torch.log_softmax(layer(batch), dim=-1).diagonal().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return digest_tensors({name: p.detach() for name, p in layer.named_parameters()})
