"""The job under `lastgood run`."""

from __future__ import annotations

import workload

diary = workload.Diary()
import lastgood  # noqa: E402 - the diary's first line comes before the imports

diary.write("imported")
model = workload.make_model()
optimizer = workload.make_optimizer(model)
run = lastgood.start(model=model, optimizer=optimizer, loader=workload.make_loader)
diary.write("ready", rank=run.rank)
for batch in run.batches(steps=workload.STEPS_MAX):
    with run.step() as step:
        step.loss = workload.train_step(run.model, optimizer, batch)
    if step.is_accepted and not step.is_replay:
        diary.write(
            "step",
            rank=run.rank,
            step=run.steps_done,
            loss=float(step.loss).hex(),
            members=run.world_size,
            generation=run.generation,
        )
