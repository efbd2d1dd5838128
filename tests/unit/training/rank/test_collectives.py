"""Collectives of a model without DDP: counted while a generation wants it, and the same to whoever calls them."""

import pytest
import torch
import torch.distributed as dist

from lastgood.signals.reading import Phase
from lastgood.training.rank import collectives
from lastgood.training.rank.collectives import CollectiveCount, stop_counting
from lastgood.training.slot import StatusSlot


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    originals = {name: getattr(dist, name, None) for name in collectives._NAMES}
    yield
    dist.destroy_process_group()
    for name, function in originals.items():  # other tests of this process get torch as it was
        if function is not None:
            setattr(dist, name, function)
    collectives._is_installed = False


@pytest.fixture
def slot(tmp_path):
    made = StatusSlot(tmp_path / "w0", create=True)
    made.begin_generation(1, 0)
    yield made
    stop_counting()
    made.close()


def test_a_collective_is_counted_and_the_phase_is_as_before(slot):
    count = CollectiveCount(slot)
    count.start()
    slot.enter(Phase.COMPUTE)
    seen = torch.ones(2)
    dist.all_reduce(seen)
    assert seen.tolist() == [1, 1]
    view = slot.view()
    assert (view.launches, view.completions, view.phase) == (1, 1, Phase.COMPUTE)
    assert count.waited_us > 0


def test_inside_a_collective_the_rank_is_said_to_wait(slot):
    CollectiveCount(slot).start()
    phases = []
    original, dist.barrier = (
        dist.barrier,
        collectives._counted(lambda: phases.append(slot.view().phase)),
    )
    try:
        dist.barrier()
    finally:
        dist.barrier = original
    assert phases == [Phase.COLLECTIVE]


def test_a_call_that_returns_early_is_counted_and_the_rank_goes_on_computing(slot):
    count = CollectiveCount(slot)
    count.start()
    slot.enter(Phase.COMPUTE)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert isinstance(work, dist.Work), "FSDP2 asks for the type before it waits"
    work.wait()
    assert slot.view().launches == 1
    assert count.waited_us == 0


def test_a_collective_made_of_others_counts_once(slot):
    CollectiveCount(slot).start()
    together = collectives._counted(lambda: (dist.barrier(), dist.all_reduce(torch.ones(1))))
    together()
    assert slot.view().launches == 1


def test_nothing_is_counted_before_the_start_and_behind_the_end(slot):
    count = CollectiveCount(slot)
    dist.barrier()
    count.start()
    stop_counting()
    dist.barrier()
    assert slot.view().launches == 0


def test_the_next_generation_counts_into_its_own_and_nothing_is_counted_twice(slot):
    CollectiveCount(slot).start()
    CollectiveCount(slot).start()
    dist.barrier()
    assert slot.view().launches == 1


def test_an_error_of_the_collective_comes_through_and_leaves_the_count_in_order(slot):
    CollectiveCount(slot).start()
    with pytest.raises(ValueError, match="not initialized"):
        dist.all_gather([torch.zeros(1)] * 3, torch.zeros(1), group="not a group")
    dist.barrier()
    assert (slot.view().launches, slot.view().completions) == (2, 2)
