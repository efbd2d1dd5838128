"""How fast the simulated ranks are, and the detector that watches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.signals import performance
from lastgood.signals.reading import StepReport, Verdict

if TYPE_CHECKING:
    from lastgood.recovery.simulated.workers import SimulatedWorker
    from lastgood.recovery.simulated.world import World

OWN_US = 100_000


def first_memory() -> performance.PerformanceMemory:
    """What the detector knows at first: the run is short, so it learns fast and acts early."""
    return performance.PerformanceMemory(
        window_count=5, slow_count_min=4, usual_count_min=5, skip_count=1, assumed_cost_us=500_000
    )


def own_us(world: World, worker: SimulatedWorker) -> int:
    """Time of the rank's own part of one step: two per cent of noise, from a stream of its own."""
    return int(OWN_US * worker.slowness * world.kernel.stream("pace").uniform(0.98, 1.02))


def assess(world: World, reports: Sequence[StepReport]) -> None:
    """Look at the pace of a step that was acceptable; at once, since what is slow is not wrong."""
    verdict, world.performance = performance.assess(
        reports, memory=world.performance, now_us=world.kernel.now_us
    )
    if verdict.verdict in (Verdict.SUSPECT, Verdict.FAILED):
        world.tell(m.Assessed(verdict))


def begin_generation(world: World) -> None:
    """Other processes may serve."""
    world.performance = performance.begin_generation(world.performance)
