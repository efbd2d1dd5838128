"""Laws of the fleet: no rank has two owners, and widening grows until nothing larger is left."""

from hypothesis import given
from hypothesis import strategies as st

from lastgood.contract.taxonomy import DomainKind
from lastgood.fleet.domain import Domain, forest_of
from lastgood.fleet.inventory import OWNING, IllegalMove, Inventory, WorkerState

NAMES = st.sampled_from(["a", "b", "c", "d"])
RANKS = st.integers(0, 2)
MOVES = st.one_of(
    st.tuples(st.sampled_from(["park", "suspect", "clear", "end"]), NAMES, st.just(0)),
    st.tuples(st.sampled_from(["activate"]), NAMES, RANKS),
    st.tuples(st.sampled_from(["launch", "quarantine", "readmit"]), NAMES, st.just(0)),
)


def apply(inventory: Inventory, verb: str, name: str, rank: int) -> Inventory:
    match verb:
        case "launch":
            return inventory.launch(name, host="h")
        case "activate":
            return inventory.activate(name, rank=rank)
        case "quarantine":
            return inventory.quarantine(name, evidence="e")
        case "readmit":
            return inventory.park(name, evidence="e")
    return getattr(inventory, verb)(name)


@given(st.lists(MOVES, max_size=60))
def test_after_any_sequence_of_moves_no_rank_has_two_owners(moves):
    inventory = Inventory()
    for verb, name, rank in (
        [("launch", n, 0) for n in "abcd"] + [("park", n, 0) for n in "abcd"] + moves
    ):
        before = inventory
        try:
            inventory = apply(inventory, verb, name, rank)
        except IllegalMove:
            assert inventory is before
        held = [worker.rank for worker in inventory.workers.values() if worker.rank is not None]
        assert len(held) == len(set(held))
        assert all((w.rank is not None) == (w.state in OWNING) for w in inventory.workers.values())
        gone = set(before.in_state(WorkerState.GONE))
        assert gone <= set(inventory.in_state(WorkerState.GONE))


FLEETS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))


def fleet(shape):
    racks, hosts, devices, feeds = shape
    count = racks * hosts * devices
    return forest_of({
        rank: [
            Domain(DomainKind.HOST, str(rank // devices)),
            Domain(DomainKind.RACK, str(rank // (devices * hosts))),
            Domain(DomainKind.POWER, str(rank % feeds)),
            Domain(DomainKind.SITE, "s"),
        ]
        for rank in range(count)
    })  # fmt: skip


@given(FLEETS, st.data())
def test_widening_holds_what_it_held_and_more_until_it_holds_everything(shape, data):
    forest = fleet(shape)
    domain = data.draw(st.sampled_from(sorted(forest.ranks_by_domain, key=str)))
    for _ in range(len(forest.ranks_by_domain)):
        wider = forest.widen(domain)
        if wider is None:
            break
        assert forest.members(domain) < forest.members(wider)
        domain = wider
    assert forest.members(domain) == forest.ranks


@given(FLEETS, st.data())
def test_the_smallest_shared_domain_holds_the_ranks_and_nothing_smaller_does(shape, data):
    forest = fleet(shape)
    ranks = data.draw(st.sets(st.sampled_from(sorted(forest.ranks)), min_size=1))
    shared = forest.smallest_shared(ranks)
    assert ranks <= forest.members(shared)
    sizes = [len(held) for held in forest.ranks_by_domain.values() if ranks <= held]
    assert len(forest.members(shared)) == min(sizes)


@given(FLEETS)
def test_a_parent_holds_its_child_and_nothing_lies_between(shape):
    forest = fleet(shape)
    for domain in forest.ranks_by_domain:
        for parent in forest.parents(domain):
            assert forest.members(domain) <= forest.members(parent)
            between = [
                other
                for other, held in forest.ranks_by_domain.items()
                if forest.members(domain) < held < forest.members(parent)
            ]
            assert between == []
