"""How the simulated job is broken: each fault changes the truth, never what the loop was told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.simulated.tape import FaultKind, Poison, SimulatedFault
from lastgood.recovery.simulated.workers import Being, SimulatedWorker
from lastgood.signals.reading import (
    Assessment,
    Phase,
    ProcessState,
    Question,
    Raised,
    Symptom,
    Verdict,
)

if TYPE_CHECKING:
    from lastgood.recovery.simulated.world import World


def strike(world: World, fault: SimulatedFault) -> None:
    """Carries out one fault of the tape."""
    world.faults_left -= 1
    world.trace.append(f"{world.kernel.now_us:>10} FAULT {fault}")
    worker = world.workers[world.serving[fault.rank]]
    match fault.kind:
        case FaultKind.KILL:
            if worker.is_alive and not worker.is_unkillable:
                die(world, worker)
        case FaultKind.KILL_SPARE:
            for spare in [w for w in world.workers.values() if w.being is Being.SPARE][:1]:
                spare.being, spare.exit_code = Being.DEAD, -9
                world.later(1_000, 100_000, m.SpareLost(spare.name))
        case FaultKind.HANG_STOPPED | FaultKind.HANG_SPINNING:
            if worker.is_alive:
                is_stopped = fault.kind is FaultKind.HANG_STOPPED
                worker.process = ProcessState.STOPPED if is_stopped else ProcessState.RUNNING
        case FaultKind.EXCEPTION:
            raise_own(world, fault.rank, world.step + 1)
        case FaultKind.POISON | FaultKind.POISON_EVERYWHERE | FaultKind.POISON_WANDERS:
            world.poisons[world.step + 2] = Poison(fault.kind)
        case FaultKind.POISON_REPLAY:
            world.replays_raise = fault.count
        case FaultKind.NO_SPARES:
            world.has_spares_ever = False
        case FaultKind.NONFINITE | FaultKind.NAN_GRADIENT:
            strike_nonfinite(world, fault)
        case FaultKind.DIVERGENCE:
            world.taint_count += 1
            worker.taint = world.taint_count
        case FaultKind.FLIP_SLOT:
            steps = sorted(
                (s for s in world.shelf.slots[fault.rank].values()), key=lambda s: -s.step
            )
            for state in steps[fault.count - 1 : fault.count]:
                state.is_flipped = True
        case FaultKind.REFUSE_PARK:
            worker.refuses_to_park = True
        case FaultKind.UNKILLABLE:
            worker.is_unkillable = True
        case FaultKind.SPARES_LATE:
            world.spares_late_until_us = world.kernel.now_us + 5_000_000 * fault.count
        case FaultKind.REPLAY_DIFFERS:
            world.replays_differ += fault.count
        case FaultKind.REPLAY_MINORITY:
            world.replays_minority += [fault.rank] * fault.count
        case FaultKind.GROUP_ERROR:
            break_group(world, world.generation)
        case FaultKind.SLOW:
            worker.slowness = 3
        case FaultKind.RESTORE_STALLS:
            world.stalls.add(fault.rank)


def strike_due(world: World) -> None:
    """Carries out the faults that are due at a step, in the order of the tape."""
    while world.stepped and world.step >= (world.stepped[0].at_step or 0):
        is_calm = world.state.phase is LoopPhase.RUNNING and (
            world.state.crew.spares or not world.spare_count
        )
        if world.stepped[0].waits and not is_calm:
            return
        strike(world, world.stepped.pop(0))


def strike_nonfinite(world: World, fault: SimulatedFault) -> None:
    """All ranks go wrong together in the next step; a check names that step some steps later."""
    if not world.is_stepping:
        return
    world.taint_count += 1
    for name in world.serving:
        world.workers[name].taint = world.taint_count
    first = world.step + 1
    is_named = fault.kind is FaultKind.NAN_GRADIENT and world.size > 1
    verdict = Assessment(
        question=Question.CORRECTNESS,
        verdict=Verdict.FAILED,
        symptom=Symptom.NONFINITE,
        culprits=(fault.rank,) if is_named else (),
        onset_us=world.kernel.now_us,
        first_divergent_step=first,
        evidence=("values went wrong on all ranks",),
    )
    generation = world.generation
    world.kernel.after(
        fault.count * world.step_us, "nonfinite", lambda: world.tell_verdict(verdict, generation)
    )


def is_poisoned(world: World, rank: int, step: int) -> bool:
    """Whether user code raises in this step on this rank: on the first, on all, or now here and now there."""
    poison = world.poisons.get(step)
    match poison.kind if poison is not None else None:
        case FaultKind.POISON:
            return rank == 0
        case FaultKind.POISON_EVERYWHERE:
            return True
        case FaultKind.POISON_WANDERS:
            return rank == world.generation % world.size
        case _:
            return False


def raise_own(world: World, rank: int, step: int) -> None:
    """User code raises in the body of a step on one rank."""
    worker = world.workers[world.serving[rank]]
    if not worker.is_able or worker.phase is Phase.HELD:
        return
    worker.raised = Raised(
        type_name="ValueError",
        message="bad batch",
        is_group_error=False,
        step=step,
        t_us=world.kernel.now_us,
    )
    worker.progress_us = world.kernel.now_us


def die(world: World, worker: SimulatedWorker) -> None:
    """The process ends; its end is collected a little later, its peers notice in their collectives."""
    was_serving = worker.being is Being.SERVING
    worker.being = Being.DEAD
    worker.process = ProcessState.GONE
    worker.exit_code = -9

    world.later(1_000, 60_000, m.WorkerGone(worker.name))
    if was_serving:
        break_group(world, worker.generation)


def break_group(world: World, generation: int) -> None:
    """Some ranks of the generation get an error from the group and park; the others stay blocked."""
    for name in world.serving:
        if world.delay(0, 9) < 5:
            world.kernel.after(
                world.delay(10_000, 200_000),
                "group error",
                lambda n=name: raise_group(world, n, generation),
            )


def raise_group(world: World, name: str, generation: int) -> None:
    """One rank gets an error from the process group and parks by itself."""
    worker = world.workers[name]
    if not worker.is_able or worker.generation != generation or worker.phase is Phase.HELD:
        return
    worker.raised = Raised(
        type_name="RuntimeError",
        message="peer closed",
        is_group_error=True,
        step=world.step + 1,
        t_us=world.kernel.now_us,
    )
    if not worker.refuses_to_park:
        worker.being = Being.PARKED
        worker.moved(Phase.PARKED, world.kernel.now_us)
        world.tell(m.WorkerParked(name, generation))
