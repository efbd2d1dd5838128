"""A new generation in the simulated job: join, restore, replay, go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.recovery.simulated import breaking, pacing, starting, stepping
from lastgood.recovery.simulated.workers import Being, StoredState
from lastgood.signals import correctness
from lastgood.signals.reading import Phase, ProcessState

if TYPE_CHECKING:
    from lastgood.recovery.simulated.world import World


def assign(world: World, generation: int, workers: tuple[str, ...], plan: m.RestorePlan) -> None:
    """Ranks get their workers; each restores after a drawn delay."""
    world.generation = generation
    world.serving = list(workers)
    world.plan = plan
    world.is_stepping = False
    world.raising = set()
    world.correctness = correctness.CorrectnessMemory(window_count=8)
    pacing.begin_generation(world)
    for rank, name in enumerate(workers):
        worker = world.workers[name]
        worker.rank, worker.generation = rank, generation
        worker.launches = worker.completions = 0
        worker.raised = None
        if not worker.is_alive:
            continue
        worker.being = Being.SERVING
        worker.moved(Phase.JOINING, world.kernel.now_us)
        if rank in world.stalls:
            world.stalls.discard(rank)
            worker.process = ProcessState.STOPPED
        if plan.tier is m.Tier.INITIAL:
            continue
        world.kernel.after(
            world.delay(20_000, 500_000),
            "restore",
            lambda r=rank: restore_rank(world, r, generation),
        )
    if plan.tier is m.Tier.INITIAL:
        starting.begin_again(world, generation)


def restore_rank(world: World, rank: int, generation: int) -> None:
    """One rank re-reads its copy, hashes it, and later replays."""
    if not world.is_whole(generation) or world.plan is None:
        return  # joining needs everybody: the others wait until they are revoked
    plan = world.plan
    worker = world.workers[world.serving[rank]]
    worker.moved(Phase.RESTORING, world.kernel.now_us)
    copy = copy_of(world, rank, plan.restore_step, plan)
    wanted = plan.digest if plan.restore_step == plan.target_step else None
    is_intact = (
        copy is not None and not copy.is_flipped and (wanted is None or copy.digest == wanted)
    )
    worker.taint = copy.taint if copy is not None else 0
    worker.moved(Phase.HELD, world.kernel.now_us)
    world.later(
        0,
        50_000,
        m.Restored(
            rank=rank,
            generation=generation,
            is_intact=is_intact,
            bad_step=None if is_intact else plan.restore_step,
        ),
    )
    if is_intact:
        world.kernel.after(
            world.delay(50_000, 400_000), "replay", lambda: replay_rank(world, rank, generation)
        )


def copy_of(world: World, rank: int, step: int, plan: m.RestorePlan) -> StoredState | None:
    """The rank's copy of a state in the tier of the plan."""
    if plan.tier is m.Tier.SLOT:
        return world.shelf.slot(rank, step)
    number = int(plan.locator[1:].partition("-")[0])
    kept = world.shelf.checkpoints
    return kept[number] if number < len(kept) and kept[number].step == step else None


def replay_rank(world: World, rank: int, generation: int) -> None:
    """One rank replays and compares with the published digest."""
    if not world.is_whole(generation) or world.plan is None:
        return
    plan = world.plan
    worker = world.workers[world.serving[rank]]
    outcome = m.ReplayOutcome.WITHIN_TOLERANCE if world.is_noisy else m.ReplayOutcome.EQUAL
    if plan.mode is m.VerifyMode.PREDECESSOR:
        taints = {world.workers[w].taint for w in world.serving}
        result = worker.taint if len(taints) == 1 else -1
        if f"{plan.target_step}:{result}" != plan.digest:
            outcome = m.ReplayOutcome.DIFFERENT
    if world.replays_differ > 0 or rank in world.replays_minority:
        outcome = m.ReplayOutcome.DIFFERENT
        if rank in world.replays_minority:
            world.replays_minority.remove(rank)
        elif rank == world.size - 1:
            world.replays_differ -= 1
    if world.replays_raise > 0:
        raise_together(world, rank, generation)
        return
    worker.moved(Phase.HELD, world.kernel.now_us)
    world.later(
        0,
        50_000,
        m.Replayed(rank=rank, generation=generation, step=plan.target_step, outcome=outcome),
    )


def raise_together(world: World, rank: int, generation: int) -> None:
    """A replay begins on all ranks at once: with the last one there, each raises in its own time."""
    world.raising.add(rank)
    if len(world.raising) < world.size:
        return
    world.replays_raise -= 1
    for each in range(world.size):
        world.kernel.after(
            world.delay(1_000, 100_000),
            "raise in the replay",
            lambda r=each: raise_in_replay(world, r, generation),
        )


def raise_in_replay(world: World, rank: int, generation: int) -> None:
    """User code of one rank raises in the replayed step."""
    worker = world.workers[world.serving[rank]]
    if generation != world.generation or not worker.is_able or world.plan is None:
        return
    worker.moved(Phase.COMPUTE, world.kernel.now_us)
    breaking.raise_own(world, rank, world.plan.target_step)


def resume(world: World, generation: int, step: int) -> None:
    """The ranks may take new steps after `step`."""
    world.step = step
    world.resumed_at_step = step
    world.is_stepping = True
    for name in world.serving:
        world.workers[name].moved(Phase.BETWEEN, world.kernel.now_us)
    world.kernel.after(
        10_000,
        "resume",
        lambda: stepping.begin_step(world) if generation == world.generation else None,
    )


def read_catalogue(world: World) -> None:
    """Lists what is there: also what is wrong, abandoned, or disagrees between ranks."""
    found = []
    steps = world.shelf.common_steps()
    for step in steps:
        copies = [
            copy for rank in range(world.size) if (copy := world.shelf.slot(rank, step)) is not None
        ]
        found.append(candidate(world, copies, tier=m.Tier.SLOT, has_predecessor=step - 1 in steps))
    for number, state in enumerate(world.shelf.checkpoints):
        found.append(
            candidate(
                world,
                [state],
                tier=m.Tier.CHECKPOINT,
                has_predecessor=False,
                locator=f"c{number}-{state.step}",
            )
        )
    found += starting.candidates(world)
    found.sort(key=lambda c: -c.step)
    world.tell(m.CatalogueRead(candidates=tuple(found)))


def candidate(
    world: World,
    copies: list[StoredState],
    *,
    tier: m.Tier,
    has_predecessor: bool,
    locator: str = "",
) -> m.Candidate:
    """A state as the catalogue lists it, with what this supervisor happens to know of it."""
    return m.Candidate(
        step=copies[0].step,
        tier=tier,
        digest=copies[0].digest,
        has_predecessor=has_predecessor,
        locator=locator,
        generation=min(c.generation for c in copies) if world.knows_generations else None,
        published_us=max(c.published_us for c in copies) if world.knows_times else None,
    )
