"""What comes behind the batches that were used, held against the loader's own order."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from lastgood.base.errors import BadInput
from lastgood.training.rank.skipping import indices_behind, skip_batches


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 40, 41])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 16])
def test_indices_behind_any_count_are_those_of_torch(length, world, shuffle, drop_last):
    for rank in range(world):
        sampler = DistributedSampler(
            range(length), world, rank, shuffle=shuffle, seed=5, drop_last=drop_last
        )
        sampler.set_epoch(3)
        whole = list(sampler)
        for count in range(len(whole) + 2):
            assert list(indices_behind(sampler, count)) == whole[count:]


def _loader(length=41, batch_size=4, *, drop_last=False, **options):
    sampler = DistributedSampler(range(length), 2, 1, shuffle=True, seed=9)
    return DataLoader(
        range(length), batch_size=batch_size, sampler=sampler, drop_last=drop_last, **options
    )


def _behind(loader, count):
    iterator = iter(loader)
    skip_batches(iterator, count, loader)
    return [batch.tolist() for batch in iterator]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_batches_behind_are_those_of_an_undisturbed_epoch(count, drop_last):
    loader = _loader(drop_last=drop_last)
    whole = [batch.tolist() for batch in loader]
    assert _behind(loader, count) == whole[count:]


def test_a_sampler_is_not_asked_for_its_list(monkeypatch):
    loader = _loader()
    whole = [batch.tolist() for batch in loader]

    def refuse(self):
        raise AssertionError("the whole list was made")

    monkeypatch.setattr(DistributedSampler, "__iter__", refuse)
    assert _behind(loader, 2) == whole[2:]


class _Backwards(DistributedSampler):
    def __iter__(self):
        return iter(list(super().__iter__())[::-1])


class _Doubled(BatchSampler):
    def __iter__(self):
        return (batch * 2 for batch in super().__iter__())


class _Rotated(DataLoader):
    @property
    def _index_sampler(self):
        return [batch[::-1] for batch in super()._index_sampler]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(range(20), batch_size=2, sampler=_Backwards(range(20), 2, 0)),
        lambda: DataLoader(
            range(20), batch_sampler=_Doubled(DistributedSampler(range(20), 2, 0), 2, False)
        ),
        lambda: _Rotated(range(20), batch_size=2, sampler=DistributedSampler(range(20), 2, 0)),
        lambda: DataLoader(range(20), batch_size=None, sampler=DistributedSampler(range(20), 2, 0)),
        lambda: DataLoader(range(20), batch_size=2, sampler=[3, 1, 4, 1, 5, 9, 2, 6]),
    ],
    ids=["own sampler", "own batches", "own loader", "no batches", "a list"],
)
def test_orders_of_the_user_are_gone_through(make):
    loader = make()
    whole = [torch.as_tensor(batch).tolist() for batch in loader]
    iterator = iter(loader)
    skip_batches(iterator, 2, loader)
    assert [torch.as_tensor(batch).tolist() for batch in iterator] == whole[2:]


@pytest.mark.parametrize("sampler", [None, [0, 1, 2, 3]], ids=["distributed", "a list"])
def test_a_loader_that_became_shorter_is_told(sampler):
    loader = _loader(8, 2) if sampler is None else DataLoader(range(8), 2, sampler=sampler)
    with pytest.raises(BadInput, match="has become shorter") as caught:
        skip_batches(iter(loader), 3, loader)
    assert "2 batches in an epoch of which 3" in str(caught.value)
