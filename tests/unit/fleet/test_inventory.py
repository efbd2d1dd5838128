"""Only the moves of the table are legal, and a rank never has two owners."""

import itertools

import pytest

from lastgood.fleet.inventory import LEGAL_MOVES, OWNING, IllegalMove, Inventory, WorkerState

PATHS = {
    WorkerState.LAUNCHING: (),
    WorkerState.PARKED: ("park",),
    WorkerState.ACTIVE: ("park", "activate"),
    WorkerState.SUSPECT: ("park", "activate", "suspect"),
    WorkerState.QUARANTINED: ("park", "activate", "suspect", "quarantine"),
    WorkerState.GONE: ("end",),
}
"""The moves that bring a worker into each state."""


def move(inventory: Inventory, name: str, verb: str, rank: int = 0) -> Inventory:
    extra = {
        "activate": {"rank": rank},
        "quarantine": {"evidence": "differs"},
        "park": {"evidence": "replayed clean"},
    }
    return getattr(inventory, verb)(name, **extra.get(verb, {}))


def worker_in(state: WorkerState) -> Inventory:
    inventory = Inventory().launch("w", host="h")
    for verb in PATHS[state]:
        inventory = move(inventory, "w", verb)
    assert inventory.workers["w"].state is state
    return inventory


VERBS = {WorkerState.PARKED: "park", WorkerState.ACTIVE: "activate", WorkerState.SUSPECT: "suspect",
         WorkerState.QUARANTINED: "quarantine", WorkerState.GONE: "end"}  # fmt: skip


@pytest.mark.parametrize(("here", "there"), list(itertools.product(WorkerState, VERBS)))
def test_every_pair_of_states_follows_the_table(here, there):
    inventory = worker_in(here)
    verb = "clear" if (here, there) == (WorkerState.SUSPECT, WorkerState.ACTIVE) else VERBS[there]
    if there in LEGAL_MOVES[here]:
        moved = move(inventory, "w", verb).workers["w"]
        assert moved.state is there
        assert (moved.rank is not None) == (there in OWNING)
    else:
        with pytest.raises(IllegalMove):
            move(inventory, "w", verb)


def test_a_move_leaves_the_old_inventory_as_it_was():
    before = worker_in(WorkerState.PARKED)
    after = before.activate("w", rank=3)
    assert before.workers["w"].state is WorkerState.PARKED
    assert after.owner_of(3) == "w"
    assert before.owner_of(3) is None


def test_a_rank_is_not_given_away_while_anybody_holds_it():
    inventory = worker_in(WorkerState.ACTIVE).launch("x", host="h").park("x")
    with pytest.raises(IllegalMove, match="rank 0 held by w"):
        inventory.activate("x", rank=0)
    with pytest.raises(IllegalMove, match="rank 0 held by w"):
        inventory.suspect("w").activate("x", rank=0)
    assert inventory.end("w").activate("x", rank=0).owner_of(0) == "x"
    assert (
        inventory.suspect("w").quarantine("w", evidence="e").activate("x", rank=0).owner_of(0)
        == "x"
    )


def test_nobody_returns_from_quarantine_without_evidence_or_goes_there_without():
    with pytest.raises(IllegalMove, match="no evidence"):
        worker_in(WorkerState.QUARANTINED).park("w")
    with pytest.raises(IllegalMove, match="no evidence"):
        worker_in(WorkerState.SUSPECT).quarantine("w", evidence="")
    back = worker_in(WorkerState.QUARANTINED).park("w", evidence="replay of step 9 equal")
    assert back.workers["w"].evidence == "replay of step 9 equal"


def test_a_name_is_used_once_and_an_unknown_one_never_moves():
    with pytest.raises(IllegalMove):
        worker_in(WorkerState.GONE).launch("w", host="h")
    with pytest.raises(IllegalMove, match="an unknown worker"):
        Inventory().park("w")
    with pytest.raises(IllegalMove, match="rank -1"):
        worker_in(WorkerState.PARKED).activate("w", rank=-1)
    with pytest.raises(IllegalMove, match="clear, or park first"):
        worker_in(WorkerState.SUSPECT).activate("w", rank=5)
    with pytest.raises(IllegalMove, match="needs suspect"):
        worker_in(WorkerState.PARKED).clear("w")


def test_what_is_where_can_be_asked():
    inventory = worker_in(WorkerState.ACTIVE).launch("x", host="h").park("x").launch("y", host="g")
    assert inventory.in_state(WorkerState.PARKED) == ("x",)
    assert inventory.vacant(3) == (1, 2)
    assert inventory.on_host("h") == ("w", "x")
    assert inventory.end("w").on_host("h") == ("x",)
