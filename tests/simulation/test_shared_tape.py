"""The event tape of drills and demos drives the simulated job too."""

import pytest

from lastgood.faults.spec import FaultKind as Shared
from lastgood.faults.tape import stepped_tape
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.simulated.tape import SHARED, FaultKind, from_shared_tape
from lastgood.recovery.simulated.world import World

KINDS = list(SHARED)


def test_every_kind_that_the_loop_can_act_upon_has_its_counterpart():
    found = {
        fault.kind
        for seed in range(40)
        for fault in from_shared_tape(stepped_tape(seed, world=4, steps=60, count=6, kinds=KINDS))
    }
    assert found == {
        FaultKind.KILL, FaultKind.HANG_STOPPED, FaultKind.EXCEPTION, FaultKind.NAN_GRADIENT,
        FaultKind.FLIP_SLOT, FaultKind.DIVERGENCE, FaultKind.SLOW,
    }  # fmt: skip


def test_a_corrupt_snapshot_comes_with_the_kill_that_makes_it_matter():
    tape = stepped_tape(1, world=4, steps=9, count=1, kinds=[Shared.FLIP_SNAPSHOT])
    assert [(f.kind, f.at_step) for f in from_shared_tape(tape)] == [
        (FaultKind.FLIP_SLOT, tape.faults[0].when.step),
        (FaultKind.KILL, tape.faults[0].when.step),
    ]


@pytest.mark.parametrize("block", range(4))
def test_drill_tapes_break_no_rule_and_the_job_recovers_from_each_fault(block):
    recovered = escalated = 0
    for seed in range(block * 25, block * 25 + 25):
        tape = stepped_tape(seed, world=4, steps=60, count=4, kinds=KINDS)
        world = World(seed, tape=from_shared_tape(tape), size=4)
        world.run()
        recovered += world.invariants.recovered_count
        escalated += world.state.phase is LoopPhase.ESCALATED
    assert recovered > 50
    assert escalated < 5
