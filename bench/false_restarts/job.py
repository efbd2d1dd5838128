"""The job of the recovery bench, with long phases in between: an evaluation on every rank, a checkpoint on rank 0.

    BENCH_OUT=DIR job.py

The evaluation computes for 3 s and more and declares a limit; the checkpoint writes, sleeps 2 s and declares none, so
its limit is learned. Rank 0 writes to `progress.json` how far it came.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recovery"))

import torch
import workload

EVAL_EVERY, EVAL_S = 150, 3.0
CHECKPOINT_EVERY, CHECKPOINT_S = 100, 2.0


def evaluate(model: torch.nn.Module) -> None:
    """Forward passes without a gradient."""
    began = time.monotonic()
    with torch.no_grad():
        while time.monotonic() - began < EVAL_S:
            model(torch.randn(256, workload.WIDTH))


def main() -> None:
    """Train until the bench ends it."""
    import lastgood

    folder = Path(os.environ["BENCH_OUT"])
    model = workload.make_model()
    optimizer = workload.make_optimizer(model)
    run = lastgood.start(model=model, optimizer=optimizer, loader=workload.make_loader)
    counts = {"evaluations": 0, "checkpoints": 0}
    for batch in run.batches(steps=workload.STEPS_MAX):
        with run.step() as step:
            step.loss = workload.train_step(run.model, optimizer, batch)
        if not step.is_accepted:
            continue
        if step.number % EVAL_EVERY == 0:
            with run.section("eval", limit="10min"):
                evaluate(model)
            counts["evaluations"] += 1
        if step.number % CHECKPOINT_EVERY == 0 and run.rank == 0:
            with run.section("checkpoint", counts_as="checkpoint.blocking"):
                workload.save(folder, step.number, model, optimizer)
                time.sleep(CHECKPOINT_S)
            counts["checkpoints"] += 1
        if run.rank == 0:
            fresh = folder / "progress.new"
            fresh.write_text(json.dumps({"steps": step.number, **counts}))
            fresh.rename(folder / "progress.json")


if __name__ == "__main__":
    main()
