"""What a rank does ahead is taken once, never counts for another state, and never raises before it is needed."""

import gc
import json
from types import SimpleNamespace

import pytest
import torch

from lastgood.training.rank import readiness as module
from lastgood.training.rank.readiness import Readiness

STATE = SimpleNamespace(tensors={"weight": 1}, values={})
OTHER = SimpleNamespace(tensors={"weight": 2}, values={})


@pytest.fixture
def made(tmp_path, monkeypatch):
    loaded, noted = [], []
    generation = SimpleNamespace(
        trainable=SimpleNamespace(
            load=lambda tensors, values: loaded.append(tensors), model=torch.nn.Linear(1, 1)
        ),
        replica=SimpleNamespace(is_made_anew=False, is_built=False),
        link=SimpleNamespace(
            worker="w0",
            run=SimpleNamespace(addresses=lambda name: tmp_path / name),
            slot=SimpleNamespace(note_exclusive=noted.append),
            group=SimpleNamespace(sockets=()),
        ),
    )
    monkeypatch.setattr(module, "refuse_other_model", lambda trainable, state: None)
    return SimpleNamespace(
        readiness=Readiness(generation),
        generation=generation,
        loaded=loaded,
        noted=noted,
        path=tmp_path / "w0",
    )


def ahead(state):
    return SimpleNamespace(likely=lambda rank: state)


def test_a_state_that_was_loaded_early_is_not_loaded_again(made):
    made.readiness.get_early(ahead(STATE), 0)
    made.readiness.get(STATE)
    assert made.loaded == [STATE.tensors]
    assert made.readiness.take(STATE)


def test_it_counts_once_since_the_script_runs_afterwards(made):
    made.readiness.get(STATE)
    assert made.readiness.take(STATE)
    assert not made.readiness.take(STATE)


def test_a_spare_says_what_it_holds_and_a_survivor_has_said_it_already(made):
    made.readiness.get(STATE)
    assert len(made.noted) == 1
    made.readiness.joined()
    made.readiness.get(OTHER)
    made.readiness.look_behind_first_step()
    assert len(made.noted) == 1, "the step is not over"
    made.readiness.has_stepped = True
    made.readiness.look_behind_first_step()
    made.readiness.look_behind_first_step()
    assert len(made.noted) == 2


def test_what_the_first_step_opened_is_said_also_when_the_generation_ends_right_behind_it(made):
    made.readiness.joined()
    made.readiness.has_stepped = True
    made.readiness.joined()
    assert len(made.noted) == 2
    made.readiness.joined()
    assert len(made.noted) == 2


def test_another_state_than_the_likely_one_is_loaded_over_it(made):
    made.readiness.get_early(ahead(STATE), 0)
    assert not made.readiness.take(OTHER)
    made.readiness.get(OTHER)
    assert made.loaded == [STATE.tensors, OTHER.tensors]


def test_a_rank_that_leaves_once_more_has_nothing_in_place(made):
    made.readiness.get(STATE)
    made.readiness.forget()
    assert not made.readiness.take(STATE)


def test_what_goes_wrong_early_is_told_when_it_is_needed(made, monkeypatch):
    def refuse(trainable, state):
        raise ValueError("another model")

    monkeypatch.setattr(module, "refuse_other_model", refuse)
    made.readiness.get_early(ahead(STATE), 0)
    assert made.loaded == []
    with pytest.raises(ValueError, match="another model"):
        made.readiness.get(STATE)


@pytest.mark.parametrize("kind", ["is_made_anew", "is_built"])
def test_nothing_is_loaded_into_what_is_made_behind_the_join(made, kind):
    setattr(made.generation.replica, kind, True)
    made.readiness.get(STATE)
    assert made.loaded == []
    assert not made.readiness.take(STATE)


def test_it_is_written_once_where_the_parameters_lie(made):
    made.readiness.get(STATE)
    (weight, _) = json.loads(made.path.read_text())["parameters"]
    assert weight["address"] == made.generation.trainable.model.weight.data_ptr()
    made.path.unlink()
    made.readiness.get(OTHER)
    assert not made.path.exists()


def step(made):
    made.readiness.joined()
    made.readiness.has_stepped = True
    made.readiness.look_behind_first_step()


@pytest.fixture
def nothing_frozen():
    gc.unfreeze()  # a rank of another test that never came to its first step
    yield
    gc.unfreeze()


def test_the_collector_leaves_out_what_was_made_until_the_first_step(made, nothing_frozen):
    made.readiness.freeze()
    later = [[]]
    assert gc.is_tracked(later)
    assert sum(1 for found in gc.get_objects() if found is later) == 1
    made.readiness.freeze()
    assert not any(found is later for found in gc.get_objects()), "a spare freezes again when ready"
    assert gc.get_freeze_count() > 0
    step(made)
    assert gc.get_freeze_count() == 0


def test_what_the_script_has_frozen_itself_stays_so(made, nothing_frozen):
    gc.freeze()
    step(made)  # the first of all: nothing of ours is frozen there
    made.readiness.freeze()
    step(made)
    assert gc.get_freeze_count() > 0


def test_an_old_model_can_be_collected_where_it_is_made_anew(made, nothing_frozen):
    made.generation.replica.is_made_anew = True
    made.readiness.freeze()
    assert gc.get_freeze_count() == 0
