"""The start of the simulated job, and the same start again after a death in it: no state is there to be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.recovery.simulated import stepping
from lastgood.recovery.simulated.workers import Being, StoredState
from lastgood.signals.reading import Phase

if TYPE_CHECKING:
    from lastgood.recovery.simulated.world import World

DIGEST = "0:0"


def begin(world: World, generation: int) -> None:
    """Every rank builds its state 0 and publishes it, each in its own time."""
    for rank, name in enumerate(world.serving):
        world.workers[name].moved(Phase.JOINING, world.kernel.now_us)
        world.kernel.after(
            world.delay(20_000, 900_000), "begin", lambda r=rank: publish(world, r, generation)
        )


def publish(world: World, rank: int, generation: int) -> None:
    """A rank has its state 0; with the last one the run can begin."""
    worker = world.workers[world.serving[rank]]
    if generation != world.generation or not worker.is_able or world.is_begun:
        return
    world.shelf.publish(rank, StoredState(0, generation, worker.taint, world.kernel.now_us))
    worker.moved(Phase.BETWEEN, world.kernel.now_us)
    world.begun.add(rank)
    if len(world.begun) < world.size or not world.is_whole(generation):
        return
    world.is_begun = True
    if world.plan is None:
        world.is_stepping = True
        world.tell(m.Progress(0, generation))
        stepping.begin_step(world)
        return
    _tell_begun(world, generation)


def _tell_begun(world: World, generation: int) -> None:
    """What the supervisor says once all ranks of a new beginning hold a state 0."""
    copies = [world.shelf.slot(rank, 0) for rank in range(world.size)]
    is_one = len({copy.digest for copy in copies if copy is not None}) == 1
    outcome = m.ReplayOutcome.EQUAL if is_one else m.ReplayOutcome.DIFFERENT
    for rank in range(world.size):
        world.tell(m.Restored(rank=rank, generation=generation, is_intact=True))
    for rank in range(world.size):
        world.tell(m.Replayed(rank=rank, generation=generation, step=0, outcome=outcome))


def begin_again(world: World, generation: int) -> None:
    """A new generation without a state: whoever had begun goes back to where it began."""
    world.begun = set()
    world.is_begun = False
    for name in world.serving:
        worker = world.workers[name]
        if worker.being is Being.SERVING:
            worker.taint = 0
    begin(world, generation)


def candidates(world: World) -> tuple[m.Candidate, ...]:
    """The script's own state, while no state was published by all ranks."""
    if world.is_begun or world.shelf.checkpoints or world.state.published_step >= 0:
        return ()
    return (m.Candidate(step=0, tier=m.Tier.INITIAL, digest=DIGEST, has_predecessor=False),)
