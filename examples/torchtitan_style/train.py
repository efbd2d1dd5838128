"""A training loop in the style of torchtitan, with lastgood on the hard path: five places, marked (1) to (5).

    lastgood run --mode act --nproc-per-node 4 train.py --folder out

Parallel dimensions make a mesh, `fully_shard` shards (and replicates) over it, a Trainer holds everything that has a
state, and a checkpoint manager writes it with torch.distributed.checkpoint. Lastgood changes none of that: it watches,
keeps the ledger, names the culprit, ends all ranks and starts them again, and says which checkpoint still holds.
It runs under torchrun as well: then lastgood.attach() does what can be done from inside.
"""

import argparse
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import lastgood
from lastgood.training.frameworks import newest_that_holds, seal

SYMBOLS, CONTEXT, WIDTH = 64, 32, 48


@dataclass
class ParallelDims:
    """How the ranks are used: copies of the model times shards of each copy."""

    dp_replicate: int
    dp_shard: int
    world_size: int

    def __post_init__(self) -> None:
        if self.dp_shard == -1:
            self.dp_shard = self.world_size // self.dp_replicate
        if self.dp_replicate * self.dp_shard != self.world_size:
            raise SystemExit(
                f"--dp-replicate {self.dp_replicate} times --dp-shard {self.dp_shard} "
                f"is not the number of ranks, {self.world_size}"
            )

    def build_mesh(self, device_type: str) -> DeviceMesh:
        """One dimension when there is one copy, else (replicate, shard)."""
        if self.dp_replicate == 1:
            return init_device_mesh(device_type, (self.dp_shard,), mesh_dim_names=("dp_shard",))
        names = ("dp_replicate", "dp_shard")
        return init_device_mesh(
            device_type, (self.dp_replicate, self.dp_shard), mesh_dim_names=names
        )


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(CONTEXT, CONTEXT)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        x = self.embed(symbols)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Stream:
    """An endless stream of batches for one rank, made from their number: its state is that number."""

    def __init__(self, rank: int, batch_size: int) -> None:
        self.rank, self.batch_size, self.position = rank, batch_size, 0

    def next(self) -> torch.Tensor:
        self.position += 1
        generator = torch.Generator().manual_seed(10_000 * self.position + self.rank)
        start = torch.randint(0, SYMBOLS, (self.batch_size, 1), generator=generator)
        return (start + 3 * torch.arange(CONTEXT)) % SYMBOLS


class Trainer:
    """Everything that has a state, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        dims = ParallelDims(options.dp_replicate, options.dp_shard, dist.get_world_size())
        mesh = dims.build_mesh("cpu")
        torch.manual_seed(7)
        self.model = Model()
        for layer in self.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.stream = Stream(dist.get_rank(), options.batch_size)
        self.step, self.tokens = 0, 0

    def train_step(self) -> float:
        symbols = self.stream.next()
        self.optimizer.zero_grad()
        logits = self.model(symbols)
        loss = cross_entropy(logits[:, :-1].reshape(-1, SYMBOLS), symbols[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step, self.tokens = self.step + 1, self.tokens + symbols.numel()
        return float(loss.detach())

    def state_dict(self) -> dict:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
            "progress": {
                "step": self.step,
                "tokens": self.tokens,
                "position": self.stream.position,
            },
        }

    def load_state_dict(self, state: dict) -> None:
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        progress = state["progress"]
        self.step, self.tokens = progress["step"], progress["tokens"]
        self.stream.position = progress["position"]


class CheckpointManager:
    """Checkpoints in `folder/step-N`, of which the newest `kept` stay."""

    def __init__(self, trainer: Trainer, folder: Path, *, interval: int, kept: int) -> None:
        self.trainer, self.folder, self.interval, self.kept = trainer, folder, interval, kept
        self.newest_step = 0

    def save(self, *, is_forced: bool = False) -> None:
        step = self.trainer.step
        path = self.folder / f"step-{step}"
        # Not by whether the folder is there: a faster rank may have made it already, and all have to save together.
        if not (is_forced or step % self.interval == 0) or step == self.newest_step:
            return
        self.newest_step = step
        dcp.save(self.trainer.state_dict(), checkpoint_id=str(path))
        if dist.get_rank() == 0:  # its save returns last: the parts of all ranks are there
            seal(path, step=step)  # (4) from now on it counts
            for old in sorted(self.folder.glob("step-*"), key=_step_of)[: -self.kept]:
                shutil.rmtree(old, ignore_errors=True)

    def load(self) -> int:
        """Go on from the newest checkpoint whose bytes still hold; 0 when there is none."""
        found = newest_that_holds(self.folder)  # (5) a torn or damaged one is passed over
        if found is not None:
            state = self.trainer.state_dict()
            dcp.load(state, checkpoint_id=str(found.path))
            self.trainer.load_state_dict(state)
            self.newest_step = self.trainer.step
        dist.barrier()  # nobody writes or deletes a checkpoint while another rank still chooses
        return self.trainer.step


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--dp-replicate", type=int, default=1)
    parser.add_argument("--dp-shard", type=int, default=-1, help="-1: what the ranks leave")
    parser.add_argument("--checkpoint-interval", type=int, default=20)
    options = parser.parse_args()
    checkpoint: CheckpointManager | None = None

    def save_before_stop(_step: int) -> None:
        if checkpoint is not None:
            checkpoint.save(is_forced=True)

    # (1) before the group and the model are made
    attached = lastgood.attach(spool=options.folder / "spool", on_stop=save_before_stop)
    dist.init_process_group("gloo")
    trainer = Trainer(options)
    checkpoint = CheckpointManager(
        trainer, options.folder / "checkpoints", interval=options.checkpoint_interval, kept=2
    )
    started_at = checkpoint.load()
    if dist.get_rank() == 0:
        print(f"starts behind step {started_at}", flush=True)
    while trainer.step < options.steps:
        loss = trainer.train_step()
        attached.step(trainer.step, loss=loss)  # (2) done, with its loss
        if dist.get_rank() == 0 and trainer.step % 5 == 0:
            print(f"step {trainer.step} loss {loss:.4f} tokens {trainer.tokens}", flush=True)
        with attached.section("checkpoint", limit="10min"):  # (3) takes longer than a step
            checkpoint.save()
    weights = hashlib.sha256()
    for parameter in trainer.model.parameters():
        weights.update(parameter.detach().full_tensor().numpy().tobytes())
    if dist.get_rank() == 0:
        print(f"done: step {trainer.step} weights {weights.hexdigest()}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()
