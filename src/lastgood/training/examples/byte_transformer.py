"""A small byte-level transformer on the source files of Python's standard library.

    lastgood run --nproc-per-node 4 --spares 1 byte_transformer.py --steps 200 --out DIR
    byte_transformer.py --plain ...      the same job in plain torch, with the environment of torchrun

Both write `weights-rank<r>.sha256` to DIR: equal bytes mean bit-for-bit equal parameters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 48, 64, 2, 4, 4
TEXT_BYTES_MAX = 2_000_000
SMALL_BUCKETS = {"bucket_cap_mb": 0.1}
"""Several gradient buckets even in a small model, so that bucket layouts matter as they do in a large one."""


class StandardLibraryText(Dataset):
    """Windows of bytes of `*.py` files in the standard library, in file order."""

    def __init__(self) -> None:
        folder = Path(sysconfig.get_path("stdlib"))
        raw = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))[:TEXT_BYTES_MAX]
        self._bytes = torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self._bytes) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self._bytes[index * CONTEXT : (index + 1) * CONTEXT + 1].long()
        return window[:-1], window[1:]


class ByteTransformer(nn.Module):
    """Next-byte prediction with a causal transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.place = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            4 * WIDTH,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Logits of the next byte at every place."""
        hidden = self.embed(symbols) + self.place
        return self.head(self.body(hidden, mask=self.mask, is_causal=True))


def make_loader(rank: int, world: int) -> DataLoader:
    """The batches of one rank."""
    text = StandardLibraryText()
    sampler = DistributedSampler(text, num_replicas=world, rank=rank, seed=11)
    return DataLoader(text, batch_size=BATCH, sampler=sampler, drop_last=True)


def train_step(model, optimizer, scheduler, batch) -> torch.Tensor:  # noqa: ANN001 - a DDP model or a stand-in for one
    """One step; returns the loss."""
    symbols, following = batch
    optimizer.zero_grad()
    loss = cross_entropy(model(symbols).reshape(-1, 256), following.reshape(-1))
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss


def main() -> None:
    """Train, then write the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pace-ms", type=float, default=0.0, help="shortest step")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(5)
    model = ByteTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    train = train_plain if options.plain else train_supervised
    rank, steps, loss = train(options, model, optimizer, scheduler)
    digest = hashlib.sha256(
        b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    ).hexdigest()
    result = {"rank": rank, "steps": steps, "weights_sha256": digest, "last_loss": loss}
    path = options.out / f"weights-rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(result))
    path.with_suffix(".new").rename(path)  # whole, or not there
    if options.plain:
        dist.barrier()
        dist.destroy_process_group()


def train_supervised(options, model, optimizer, scheduler):  # noqa: ANN001, ANN201
    """The loop as a user of lastgood writes it."""
    import lastgood

    run = lastgood.start(
        model=model, optimizer=optimizer, scheduler=scheduler, loader=make_loader, ddp=SMALL_BUCKETS
    )
    loss = None
    for batch in run.batches(steps=options.steps):
        began = time.monotonic()
        with run.step() as step:
            step.loss = train_step(run.model, optimizer, scheduler, batch)
        loss = step.loss if step.is_accepted else loss
        time.sleep(max(0.0, options.pace_ms / 1000 - (time.monotonic() - began)))
    return run.rank, run.steps_done, None if loss is None else float(loss.detach())


def train_plain(options, model, optimizer, scheduler):  # noqa: ANN001, ANN201
    """The same loop in plain torch: no lastgood anywhere."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = make_loader(rank, world)
    assert isinstance(loader.sampler, DistributedSampler)
    wrapped = nn.parallel.DistributedDataParallel(model, **SMALL_BUCKETS)
    done, loss = 0, None
    while done < options.steps:
        loader.sampler.set_epoch(done // len(loader))
        for batch in loader:
            loss = train_step(wrapped, optimizer, scheduler, batch)
            done += 1
            if done == options.steps:
                break
    return rank, done, None if loss is None else float(loss.detach())


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()
