"""Ordinary steps of the simulated job: compute, meet in the collective, publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.recovery.simulated import breaking, pacing
from lastgood.recovery.simulated.workers import StoredState
from lastgood.signals import correctness
from lastgood.signals.reading import Phase, StepReport, Verdict

CHECKPOINT_STEPS = 10
"""A checkpoint is written every so many steps; three are kept."""

if TYPE_CHECKING:
    from lastgood.recovery.simulated.world import World


def begin_step(world: World) -> None:
    """Every rank that is able begins the next step."""
    if not world.is_stepping:
        return
    generation, step = world.generation, world.step + 1
    world.entered, world.published = set(), set()
    for rank, name in enumerate(world.serving):
        worker = world.workers[name]
        if not worker.is_able:
            continue
        worker.moved(Phase.COMPUTE, world.kernel.now_us)
        if breaking.is_poisoned(world, rank, step):
            world.kernel.after(1_000, "poison", lambda r=rank: breaking.raise_own(world, r, step))
            continue
        world.kernel.after(
            world.delay(world.step_us // 3, world.step_us),
            "enter",
            lambda r=rank: enter(world, r, generation, step),
        )


def enter(world: World, rank: int, generation: int, step: int) -> None:
    """A rank has launched its collectives; the last one to do so completes them for all."""
    worker = world.workers[world.serving[rank]]
    if generation != world.generation or step != world.step + 1 or not worker.is_able:
        return
    worker.launches += 1
    worker.moved(Phase.COLLECTIVE, world.kernel.now_us)
    world.entered.add(rank)
    if len(world.entered) == world.size and world.is_whole(generation):
        for each in range(world.size):
            world.kernel.after(
                world.delay(1_000, 30_000),
                "publish",
                lambda r=each: publish(world, r, generation, step),
            )


def publish(world: World, rank: int, generation: int, step: int) -> None:
    """A rank publishes its state."""
    worker = world.workers[world.serving[rank]]
    if generation != world.generation or not worker.is_able or not world.is_stepping:
        return
    worker.completions = worker.launches
    worker.moved(Phase.BETWEEN, world.kernel.now_us)
    world.shelf.publish(rank, StoredState(step, generation, worker.taint, world.kernel.now_us))
    world.published.add(rank)
    if len(world.published) == world.size:
        finish_step(world, step)


def finish_step(world: World, step: int) -> None:
    """All ranks have published: progress, checks, and the next step."""
    world.step = step
    world.tell(m.Progress(step, world.generation))
    breaking.strike_due(world)
    taints = {world.workers[w].taint for w in world.serving}
    reports = [
        StepReport(
            rank=rank,
            step=step,
            digest=f"{step}:{world.workers[name].taint}",
            loss=1.0,
            grad_norm=1.0,
            local_nonfinite=False,
            self_us=pacing.own_us(world, world.workers[name]),
            step_us=2000,
            starved_us=0,
        )
        for rank, name in enumerate(world.serving)
    ]
    verdict, world.correctness = correctness.assess(
        reports, memory=world.correctness, world=world.size, now_us=world.kernel.now_us
    )
    if verdict.verdict is not Verdict.OK:
        lag_us = world.delay(0, 200_000)
        generation = world.generation
        world.kernel.after(lag_us, "divergence", lambda: world.tell_verdict(verdict, generation))
    else:
        pacing.assess(world, reports)
    if step % CHECKPOINT_STEPS == 0 and len(taints) == 1:
        world.shelf.checkpoints.append(
            StoredState(step, world.generation, next(iter(taints)), world.kernel.now_us)
        )
        del world.shelf.checkpoints[:-3]
    if len(taints) > 1:
        # One wrong replica poisons everybody's next gradient.
        for name in world.serving:
            world.taint_count += 1
            world.workers[name].taint = world.workers[name].taint or world.taint_count
    if world.is_stepping:
        begin_step(world)
