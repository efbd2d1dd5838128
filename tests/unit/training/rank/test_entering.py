"""Into the next generation: which group a rank enters, and what it makes of a state that was loaded early."""

from types import SimpleNamespace

import pytest

from lastgood.training.control import Assignment, Plan
from lastgood.training.rank.generation import Generation
from lastgood.training.rank.readiness import Readiness
from lastgood.training.rundir import RunDir

PLAN = Plan(tier="slot", mode="predecessor", restore_step=4, target_step=5, digest="d", locator="")
STATE = SimpleNamespace(tensors={}, values={}, streams=None, position={"feed": 0}, step=4)


@pytest.fixture
def generation(tmp_path):
    made = object.__new__(Generation)
    made.number, made.rank, made.world = 3, 0, 2
    joined = []
    made.link = SimpleNamespace(
        has_standby=True,
        slot=SimpleNamespace(enter=lambda *_, **__: None, note_exclusive=lambda _: None),
        run=RunDir(tmp_path),
        group=SimpleNamespace(sockets=(), join=lambda **how: joined.append(how["lost_rank"])),
        joined=joined,
    )
    made.readiness = Readiness(made)
    return made


def assignment(plan, standby=(1, 1)):
    return Assignment(generation=3, rank=0, world=2, plan=plan, standby=standby)


def test_the_group_that_stands_by_is_entered_where_all_have_said_that_they_have_it(generation):
    generation._join(assignment(PLAN))
    generation.link.has_standby = False
    generation._join(assignment(PLAN))
    assert generation.link.joined == [1, None]


def test_what_was_agreed_in_another_generation_does_not_count_without_a_plan(generation):
    """Nobody is asked there: one rank would wait in the group that stands by, another in one that forms."""
    generation._join(assignment(None))
    assert generation.link.joined == [None]


def test_a_state_is_loaded_again_where_the_scripts_loader_was_made_behind_it(
    generation, monkeypatch
):
    """It may have touched what is part of the state, such as a generator in `extra`."""
    generation._feed, generation._make_loader = None, lambda rank, world: []
    generation.injection = SimpleNamespace(begin_rank=lambda: None)
    generation.readiness._in_place = STATE
    monkeypatch.setattr(generation, "_start_fresh", lambda: None)
    generation._begin(None)
    assert not generation.readiness.take(STATE)
