"""A loader whose processes outlive an epoch draws its seed once: a spare and a rewind must give the same batches."""

from itertools import pairwise

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lastgood.training.rank.feed import EndOfEpoch, Feed
from lastgood.training.rank.state import capture_streams, restore_streams

STEPS_PER_EPOCH, STEPS = 6, 16
DATA = TensorDataset(torch.arange(4 * STEPS_PER_EPOCH))


def make_global(_rank, _world):
    return DataLoader(DATA, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)


def make_own(_rank, _world):
    own = torch.Generator().manual_seed(3)
    return DataLoader(
        DATA, batch_size=4, shuffle=True, generator=own, num_workers=1, persistent_workers=True
    )


def play(feed, first, last):
    """Step -> batch and a draw of the step, and where the state behind it stands."""
    found = {}
    for step in range(first, last + 1):
        try:
            (batch,) = feed.batch(step)
        except EndOfEpoch:
            feed.next_epoch()
            (batch,) = feed.batch(step)
        drawn = torch.rand(1).item()
        found[step] = ((batch.tolist(), drawn), capture_streams(), feed.position)
    return found


@pytest.mark.parametrize("make", [make_global, make_own])
def test_a_spare_and_a_rewind_get_the_batches_of_the_undisturbed_run(make):
    torch.manual_seed(5)
    feed = Feed(make, rank=0, world=1)
    done = play(feed, 1, STEPS)
    orders = [[done[s + e][0][0] for s in range(1, STEPS_PER_EPOCH + 1)] for e in (0, STEPS_PER_EPOCH)]  # fmt: skip
    assert all(one != other for one, other in pairwise(orders)), (
        "each epoch has an order of its own"
    )
    for at in (2, 5, 6, 8, 12, 14):
        for reader in (Feed(make, rank=0, world=1), feed):
            _, streams, position = done[at]
            restore_streams(streams)
            reader.seek(position, step=at)
            again = play(reader, at + 1, min(at + 2, STEPS))
            assert {s: one[0] for s, one in again.items()} == {s: done[s][0] for s in again}, at
