"""What is remarked about a loader at the start, and what is not."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, TensorDataset, default_collate

from lastgood.training.rank.feed import Feed
from lastgood.training.rank.group import group_to_come
from lastgood.training.rank.loader_remarks import loader_remarks, tell_loader_remarks

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


class MeetsInEpochs(Sampler):
    def __iter__(self):
        dist.barrier()
        return iter(range(8))


class MeetsInItems:
    def __len__(self):
        return 8

    def __getitem__(self, item):
        dist.barrier()
        return torch.tensor(item)


def meeting_collate(items):
    dist.barrier()
    return default_collate(items)


def meeting_batches():
    for item in range(8):
        dist.barrier()
        yield torch.tensor(item)


def told_after(feed, *, batches, world=2):
    """The texts that were told at the start, and behind so many batches."""
    told = []
    channel = SimpleNamespace(send=lambda remark: told.append(remark.text))
    link = SimpleNamespace(channel=channel)
    tell_loader_remarks(SimpleNamespace(feed=feed, world=world, rank=0, link=link))
    before = list(told)
    for step in range(1, batches + 1):
        feed.batch(step)
    return before, told


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


@pytest.mark.parametrize(
    "make",
    [
        lambda *_: DataLoader(DATA, sampler=MeetsInEpochs()),
        lambda *_: DataLoader(MeetsInItems()),
        lambda *_: DataLoader(DATA, collate_fn=meeting_collate),
        lambda *_: meeting_batches(),
    ],
    ids=["sampler", "dataset", "collate", "generator"],
)
@pytest.mark.usefixtures("group")
def test_a_collective_for_a_batch_is_told_once_behind_the_first_one(make):
    before, (text,) = told_after(Feed(make, rank=0, world=2), batches=4)
    assert before == []
    assert text.startswith("the loader called a collective while it gave a batch")
    assert told_after(Feed(make, rank=0, world=1), batches=2, world=1) == ([], [])


@pytest.mark.usefixtures("group")
def test_a_collective_that_only_a_later_batch_needs_is_told_then():
    items = iter([0, 0, 0, 1])
    make = lambda *_: DataLoader(DATA, collate_fn=lambda _: next(items) and dist.barrier())
    feed = Feed(make, rank=0, world=2)
    assert told_after(feed, batches=3) == ([], [])
    _, told = told_after(feed, batches=4)
    assert len(told) == 1


@pytest.mark.usefixtures("group")
def test_collectives_of_the_step_are_not_the_loaders():
    feed = Feed(lambda *_: DataLoader(DATA, shuffle=True), rank=0, world=2)
    _, told = told_after(feed, batches=1)
    for step in range(2, 6):
        dist.barrier()
        feed.batch(step)
    assert told == []
