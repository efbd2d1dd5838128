"""What is remarked about a loader at the start, and what is not."""

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from lastgood.training.rank.feed import Feed
from lastgood.training.rank.group import group_to_come
from lastgood.training.rank.loader_remarks import loader_remarks

DATA = TensorDataset(torch.arange(8))


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Positioned(DataLoader):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def texts(make, *, world=2):
    return [text for text, _ in loader_remarks(Feed(make, rank=0, world=world), world=world)]


def test_processes_that_persist_without_a_position_may_draw_anew():
    (text,) = texts(lambda *_: DataLoader(DATA, num_workers=1, persistent_workers=True))
    assert "persistent_workers" in text
    assert "may differ" in text


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA),
        DataLoader(DATA, num_workers=1),
        Positioned(DATA, num_workers=1, persistent_workers=True),
        [torch.ones(1)],
    ],
)
def test_a_loader_whose_position_is_known_is_not_remarked(loader):
    assert texts(lambda *_: loader) == []


@pytest.mark.parametrize(
    "meet",
    [dist.barrier, lambda: dist.broadcast_object_list([1]), lambda: dist.all_reduce(torch.ones(1))],
)
@pytest.mark.usefixtures("group")
def test_a_collective_in_the_loader_function_is_seen_however_it_was_imported(meet):
    def make(_rank, _world):
        meet()
        return []

    (text,) = texts(make)
    assert text.startswith("the loader function called a collective")
    assert texts(make, world=1) == [], "a spare that takes over has nobody to wait for"


@pytest.mark.usefixtures("group")
def test_a_loader_function_that_asks_for_its_rank_calls_no_collective():
    dist.barrier()
    assert texts(lambda *_: [dist.get_rank(), dist.get_world_size()]) == []


def test_before_a_group_is_formed_nothing_is_counted():
    with group_to_come(rank=1, world=2):
        assert texts(lambda *_: [dist.get_rank()]) == []
