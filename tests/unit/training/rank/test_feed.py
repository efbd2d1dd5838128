"""The batch of a step is the same after a rewind, in a spare, and across the end of an epoch.

The oracle is always a plain loop over a fresh loader under the same seed, with a draw from the global stream in
each step, as dropout would make one.
"""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from lastgood.base.errors import BadInput
from lastgood.training.rank.feed import KEPT_BATCHES, EndOfEpoch, Feed
from lastgood.training.rank.state import capture_streams, restore_streams

SEED = 20_261
EPOCH_STEPS = 5


class Numbers(Dataset):
    """Twenty numbers, each with noise from all three streams: an augmentation."""

    def __init__(self, *, noisy=True):
        self.noisy = noisy

    def __len__(self):
        return 4 * EPOCH_STEPS

    def __getitem__(self, index):
        if not self.noisy:
            return torch.tensor([float(index)])
        noise = torch.rand(1) + np.random.random() + random.random()  # noqa: NPY002
        return (index + noise).float()


class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.tensor([float(i)]) for i in range(4 * EPOCH_STEPS))


class Positioned:
    """A loader that keeps its own position, as torchdata's does; opening it draws a seed from the global stream."""

    def __init__(self):
        self.offset, self.next_offset = 0, 0

    def __iter__(self):
        torch.empty((), dtype=torch.int64).random_()
        self.offset, self.next_offset = self.next_offset, 0
        return self.rest()

    def rest(self):
        while self.offset < EPOCH_STEPS:
            self.offset += 1
            yield torch.tensor([float(self.offset)])

    def state_dict(self):
        return {"offset": self.offset}

    def load_state_dict(self, state):
        self.next_offset = state["offset"]


def shuffled(rank, world):
    return DataLoader(Numbers(), batch_size=4, shuffle=True)


def shuffled_in_workers(rank, world):
    return DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2)


def distributed(rank, world):
    data = Numbers(noisy=False)
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, world, rank))


def streamed(rank, world):
    return DataLoader(Stream(), batch_size=4)


def positioned(rank, world):
    return Positioned()


def one_shot(rank, world):
    """A generator: it cannot be started over, only made anew."""
    return (torch.tensor([float(i)]) for i in range(100))


def seeded(rank, world):
    """A generator of its own, which no global stream knows of."""
    generator = torch.Generator().manual_seed(7)
    return DataLoader(Numbers(), batch_size=4, shuffle=True, generator=generator)


def weighted(rank, world):
    sampler = torch.utils.data.WeightedRandomSampler([1.0] * 20, 20)
    return DataLoader(Numbers(), batch_size=4, sampler=sampler)


LOADERS = [shuffled, seeded, weighted, distributed, streamed, positioned, one_shot]


def seed():
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    random.seed(SEED)


def user_step(batch):
    """What a step does to the streams: dropout."""
    return float(batch.double().sum()) + float(torch.rand(()))


def undisturbed(make, steps):
    """The oracle: no Feed at all. Returns what each step saw."""
    seed()
    loader = make(1, 2)
    seen, epoch = [], 0
    while True:
        sampler = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        for batch in loader:
            seen.append(user_step(batch))
            if len(seen) == steps:
                return seen
        epoch += 1


class Rank:
    """A rank around a Feed: it remembers the state after each step, as snapshots do."""

    def __init__(self, make):
        self.feed = Feed(make, rank=1, world=2)
        self.states = {0: (capture_streams(), self.feed.position)}

    def step(self, number):
        while True:
            try:
                batch = self.feed.batch(number)
                break
            except EndOfEpoch:
                self.feed.next_epoch()
        seen = user_step(batch)
        self.states[number] = (capture_streams(), self.feed.position)
        return seen

    def steps(self, first, last):
        return [self.step(number) for number in range(first, last + 1)]

    def restore(self, step, states=None):
        streams, position = (states or self.states)[step]
        restore_streams(streams)
        self.feed.seek(position, step=step)


@pytest.mark.parametrize("make", LOADERS)
def test_an_undisturbed_feed_is_the_plain_loop(make):
    expected = undisturbed(make, 12)
    seed()
    assert expected == Rank(make).steps(1, 12)


@pytest.mark.parametrize("back_to", [6, 7, 8])
@pytest.mark.parametrize("make", LOADERS)
def test_a_short_rewind_repeats_the_kept_batches(make, back_to):
    expected = undisturbed(make, 12)
    seed()
    rank = Rank(make)
    rank.steps(1, 9)
    rank.restore(back_to)
    assert expected[back_to:] == rank.steps(back_to + 1, 12)


@pytest.mark.parametrize("back_to", [0, 1, 3, 4, 5, 6])
@pytest.mark.parametrize("make", LOADERS)
def test_a_long_rewind_skips_ahead_from_the_start_of_the_epoch(make, back_to):
    """Steps 1-5 are the first epoch: 5 is its last state, so what follows lies in the next one."""
    expected = undisturbed(make, 13)
    seed()
    rank = Rank(make)
    rank.steps(1, 11)
    assert 11 - back_to > KEPT_BATCHES
    rank.restore(back_to)
    assert expected[back_to:] == rank.steps(back_to + 1, 13)


@pytest.mark.parametrize("taken_over", [1, 4, 5, 7])
@pytest.mark.parametrize("make", LOADERS)
def test_a_spare_takes_over_in_the_middle(make, taken_over):
    expected = undisturbed(make, 10)
    seed()
    lost = Rank(make)
    lost.steps(1, taken_over)
    torch.manual_seed(99)  # a spare has had another past
    spare = Rank(make)
    spare.restore(taken_over, lost.states)
    assert expected[taken_over:] == spare.steps(taken_over + 1, 10)


@pytest.mark.timeout(30)
def test_worker_processes_give_the_same_batches_to_a_spare():
    expected = undisturbed(shuffled_in_workers, 7)
    seed()
    lost = Rank(shuffled_in_workers)
    assert expected[:3] == lost.steps(1, 3)
    spare = Rank(shuffled_in_workers)
    spare.restore(3, lost.states)
    assert expected[3:] == spare.steps(4, 7)


def test_two_rewinds_in_a_row_and_a_rewind_after_a_rewind():
    expected = undisturbed(shuffled, 12)
    seed()
    rank = Rank(shuffled)
    rank.steps(1, 9)
    rank.restore(2)
    rank.restore(2)
    rank.step(3)
    rank.restore(2)
    assert expected[2:5] == rank.steps(3, 5)
    rank.restore(4)
    assert expected[4:] == rank.steps(5, 12)


def test_the_same_step_can_run_many_times_from_one_state():
    """The passes after a restore: discard, discard, replay."""
    expected = undisturbed(shuffled, 4)
    seed()
    rank = Rank(shuffled)
    rank.steps(1, 3)
    for _ in range(3):
        rank.restore(3)
        assert expected[3] == rank.step(4)


def dictionaries(rank, world):
    return [
        {"x": torch.full((2,), float(i)), "labels": torch.tensor([i]), "ids": [i]} for i in range(9)
    ]


def test_a_step_that_takes_its_batch_apart_sees_it_whole_again():
    """`labels = batch.pop("labels")` is how many scripts begin a step."""
    feed = Feed(dictionaries, rank=0, world=1)
    start = feed.position
    for _ in range(3):
        feed.seek(start, step=0)
        batch = feed.batch(1)
        assert batch.pop("labels") == torch.tensor([0])
        batch["ids"].append("mine")
        assert batch["ids"] == [0, "mine"]


def test_a_step_that_changes_its_batch_in_place_sees_it_fresh_again():
    seed()
    feed = Feed(shuffled, rank=0, world=1)
    start, streams = feed.position, capture_streams()
    seen = []
    for _ in range(4):
        restore_streams(streams)
        feed.seek(start, step=0)
        batch = feed.batch(1)
        seen.append(float(batch.sum()))
        batch.mul_(3.0)
    assert seen == [seen[0]] * 4


def test_an_epoch_without_a_batch_is_refused_with_the_place():
    feed = Feed(lambda rank, world: [], rank=0, world=1)
    with pytest.raises(EndOfEpoch):
        feed.batch(1)
    with pytest.raises(BadInput, match=r"lastgood\.start\(loader=\.\.\.\)"):
        feed.next_epoch()


def test_kept_batches_are_bounded():
    feed = Feed(lambda rank, world: [torch.zeros(1)] * 50, rank=0, world=1)
    for step in range(1, 40):
        feed.batch(step)
    assert len(feed._kept) == KEPT_BATCHES


def test_a_kept_batch_of_the_next_epoch_does_not_hide_the_end_of_this_one():
    """An evaluation between two epochs runs there, and a run of one epoch ends there."""
    feed = Feed(lambda rank, world: [torch.zeros(1)] * 3, rank=0, world=1)
    for step in (1, 2, 3):
        feed.batch(step)
    last = feed.position
    feed.next_epoch()
    feed.batch(4)
    feed.seek(last, step=3)
    with pytest.raises(EndOfEpoch):
        feed.batch(4)
    feed.next_epoch()
    assert feed.epoch == 1
    assert [feed.batch(step) is not None for step in (4, 5)] == [True, True]
