"""What a recovery leaves behind is given back: the dead rank's descriptors, and the room in which ranks met before."""

from unittest.mock import MagicMock

import pytest

from lastgood.recovery import messages
from lastgood.training.rundir import RunDir
from lastgood.training.supervising.effects import Effects


@pytest.fixture
def supervisor(tmp_path):
    made = MagicMock()
    made.run_dir = RunDir.create(tmp_path / "run", ranks=2)
    made.workers = {name: MagicMock() for name in ("w0", "w1", "s1")}
    for name, worker in made.workers.items():
        worker.name = name
    made.serving, made.spares = ("w0", "w1"), ["s1"]
    made.tolerance, made.stripe_count, made.last_step = None, 1, None
    return made


@pytest.fixture
def effects(supervisor):
    made = Effects(supervisor)
    yield made
    made.close()


def replace_w1(effects):
    plan = messages.RestorePlan(
        tier=messages.Tier.SLOT,
        digest="aa",
        mode=messages.VerifyMode.PREDECESSOR,
        restore_step=8,
        target_step=9,
    )
    effects.carry_out(messages.Assign(generation=5, workers=("w0", "s1"), plan=plan))


def test_a_dead_rank_is_let_go_when_another_worker_has_its_rank(effects, supervisor):
    dead = supervisor.workers["w1"]
    effects.forget(dead)
    assert "w1" in supervisor.workers, "the loop still asks for it"
    dead.close.assert_not_called()
    replace_w1(effects)
    dead.close.assert_called_once()
    assert sorted(supervisor.workers) == ["s1", "w0"]


def test_one_that_the_kernel_still_holds_is_let_go_when_it_is_gone(effects, supervisor):
    held = supervisor.workers["w1"]
    replace_w1(effects)
    held.close.assert_not_called()
    effects.forget(held)
    held.close.assert_called_once()
    assert "w1" not in supervisor.workers


def test_one_that_has_ended_and_is_still_taken_apart_is_let_go_when_it_is_gone(effects, supervisor):
    dead = supervisor.workers["w1"]
    dead.is_gone = False
    effects.forget(dead)
    replace_w1(effects)
    supervisor.now_us.return_value = 0
    effects.poll()
    assert "w1" not in supervisor.workers
    dead.close.assert_not_called()
    dead.is_gone = True
    effects.poll()
    effects.poll()
    dead.close.assert_called_once()


def test_one_that_is_still_taken_apart_at_the_end_of_the_run_is_waited_for(supervisor):
    made, dead = Effects(supervisor), supervisor.workers["w1"]
    dead.is_gone = False
    made.forget(dead)
    replace_w1(made)
    made.close()
    dead.process.wait.assert_called_once()
    dead.close.assert_called_once()


def test_ranks_have_room_to_meet_after_this_recovery_and_after_one_in_it(effects, supervisor):
    for generation in (4, 5):
        supervisor.run_dir.reserve_store(generation)
    replace_w1(effects)
    there = {path.name for path in supervisor.run_dir.store(5).parent.iterdir()}
    assert there == {"gen5", "gen6"}
