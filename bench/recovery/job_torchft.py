"""The job as one torchft replica group of one rank; whoever started it starts it again when it dies.

Gradients are reduced as one flat tensor through the manager: the DDP wrapper of 0.2.0 ends a surviving replica with an
AssertionError when the all-reduce under it fails, so with it every replica starts again from nothing.
"""

from __future__ import annotations

import datetime as dt
import os
import time

import workload

diary = workload.Diary()
import torch  # noqa: E402
from torchft import Manager, Optimizer, ProcessGroupGloo  # noqa: E402

diary.write("imported")
rank, world = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
model = workload.make_model()
inner = workload.make_optimizer(model)


def state() -> dict[str, object]:
    """What a late replica gets from its peers."""
    return {"model": model.state_dict(), "optimizer": inner.state_dict()}


def load_state(kept: dict) -> None:
    """What a late replica does with it."""
    model.load_state_dict(kept["model"])
    inner.load_state_dict(kept["optimizer"])


manager = Manager(
    pg=ProcessGroupGloo(timeout=dt.timedelta(seconds=5)),
    min_replica_size=2,
    load_state_dict=load_state,
    state_dict=state,
    replica_id=f"replica-{rank}",
    timeout=dt.timedelta(seconds=10),
    store_addr="127.0.0.1",
    store_port=int(os.environ["BENCH_STORE_PORT"]),
    rank=0,
    world_size=1,
)
optimizer = Optimizer(manager, inner)
diary.write("ready", rank=rank)


def train_step(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """As in `workload.train_step`, with the manager between backward and update."""
    inputs, wanted = batch
    optimizer.zero_grad()
    loss = ((model(inputs) - wanted) ** 2).mean()
    time.sleep(workload.STEP_S)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    optimizer.step()
    return loss.detach()


while manager.current_step() < workload.STEPS_MAX:
    step = manager.current_step() + 1
    loss = train_step(workload.batch_of(step, rank, world))
    if manager.current_step() == step:  # committed
        diary.write(
            "step", rank=rank, step=step, loss=float(loss).hex(), members=manager.num_participants()
        )
