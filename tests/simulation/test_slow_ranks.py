"""A slow rank in the simulated job: the real detector names it, the loop replaces it, and nothing is lost."""

import pytest

from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.simulated.tape import FaultKind, SimulatedFault
from lastgood.recovery.simulated.world import World


def run(seed: int, *faults: SimulatedFault) -> World:
    world = World(seed, tape=faults, size=4)
    world.run()
    return world


def slow(rank: int, *, step: int) -> SimulatedFault:
    return SimulatedFault(kind=FaultKind.SLOW, at_us=0, at_step=step, rank=rank)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_rank_is_replaced_without_losing_a_step(seed):
    world = run(seed, slow(2, step=12))
    assert world.state.phase is LoopPhase.RUNNING
    opened = [line for line in world.trace if "kind='incident.open'" in line]
    assert len(opened) == 1
    assert "'symptom': 'slow'" in opened[0]
    assert "'ranks': (2,)" in opened[0]
    (closed,) = [line for line in world.trace if "kind='incident.close'" in line]
    assert "'lost_steps': 0" in closed
    assert world.workers[world.serving[2]].slowness == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_slow_from_the_beginning_is_never_replaced(seed):
    world = run(seed, slow(1, step=1))
    assert world.serving == ["w0", "w1", "w2", "w3"]


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_are_all_slow_from_one_step_on_are_left_alone(seed):
    world = run(seed, *(slow(rank, step=12) for rank in range(4)))
    assert world.serving == ["w0", "w1", "w2", "w3"]


@pytest.mark.parametrize("seed", range(10))
def test_a_death_while_the_slow_rank_is_replaced_is_recovered_too(seed):
    death = SimulatedFault(
        kind=FaultKind.KILL, at_us=0, rank=0, phase=LoopPhase.RESTORING, delay_us=50_000
    )
    world = run(seed, slow(2, step=12), death)
    assert world.state.phase is LoopPhase.RUNNING
    assert world.workers[world.serving[2]].slowness == 1
