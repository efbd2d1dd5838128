"""Whether the user's loader raised an error or something else, and for which batch: read from the frames of the error."""

import os
import signal
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lastgood.training.rank.feed import Feed
from lastgood.training.rank.raised import step_raised


class Records(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise ValueError("a bad record")
        return torch.tensor(index)


def loader_words(error, position=None):
    return step_raised(error, generation=1, step=3, position=position).loader


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_record_names_the_loader_the_step_and_the_batch(workers):
    feed = Feed(lambda *_: DataLoader(Records(), batch_size=2, num_workers=workers), rank=0, world=1)  # fmt: skip
    for step in (1, 2):
        feed.batch(step)
    with pytest.raises(ValueError, match="a bad record") as caught:
        feed.batch(3)
    assert loader_words(caught.value, feed.position) == (
        "in its loader, for step 3 (batches of epoch 0 before it: 2)"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_record_is_told_in_its_own_words_and_from_the_loader_on(workers):
    feed = Feed(lambda *_: DataLoader(Records(), batch_size=8, num_workers=workers), rank=0, world=1)  # fmt: skip
    with pytest.raises(ValueError, match="a bad record") as caught:
        feed.batch(1)
    told = step_raised(caught.value, generation=1, step=1, position=None)
    assert told.message == "a bad record"
    assert told.trace.startswith("Traceback (most recent call last):\n")
    assert told.trace.endswith("ValueError: a bad record\n" + "\n" * workers)
    assert "in __getitem__" in told.trace
    assert "feed.py" not in told.trace


@pytest.mark.parametrize("part", ["__iter__", "state_dict", "set_epoch"])
def test_every_part_of_a_loader_is_the_loader(part):
    class Broken:
        def __iter__(self):
            return iter([torch.ones(1)])

    def raises(*_):
        raise OSError("away")

    setattr(Broken, part, raises)
    loader = Broken()
    loader.sampler = loader
    feed = Feed(lambda *_: loader, rank=0, world=1)
    with pytest.raises(OSError, match="away") as caught:
        feed.batch(1)
    assert loader_words(caught.value).startswith("in its loader, for step 3")


def test_a_loader_process_that_dies_while_the_step_runs_is_of_the_loader():
    """torch raises in its handler of SIGCHLD, wherever the main thread is."""
    loader = DataLoader(Records(), batch_size=2, num_workers=1, persistent_workers=True)
    feed = Feed(lambda *_: loader, rank=0, world=1)
    feed.batch(1)
    (process,) = feed._iterator._workers

    def step():
        os.kill(process.pid, signal.SIGKILL)
        threading.Event().wait(20)

    with pytest.raises(RuntimeError, match="killed by signal") as caught:
        step()
    assert loader_words(caught.value) == "for a process of its loader, in step 3"


def test_a_loader_function_that_raises_is_told_without_a_step():
    with pytest.raises(KeyError) as caught:
        Feed(lambda *_: {}["no such file"], rank=0, world=1)
    assert loader_words(caught.value) == "in its loader function"


def test_an_error_of_anything_else_is_none_of_the_loader():
    with pytest.raises(KeyError) as caught:
        {}["lost"]
    assert loader_words(caught.value) == ""
