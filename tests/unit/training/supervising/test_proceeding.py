"""Whether recorded gradient buckets are used, and whether they led to the right state, is decided for all ranks at once."""

from types import SimpleNamespace

import pytest

from lastgood.training import control
from lastgood.training.supervising.effects import Effects


@pytest.fixture
def made(tmp_path):
    sent, told = [], []
    worker = SimpleNamespace(name="w", channel=SimpleNamespace(send=sent.append))
    supervisor = SimpleNamespace(
        run_dir=SimpleNamespace(progress=tmp_path / "progress.bin"),
        serving=("w0", "w1"),
        workers={"w0": worker, "w1": worker},
        recorder=SimpleNamespace(attempt=3),
        tell_loop=told.append,
    )
    effects = Effects(supervisor)
    yield SimpleNamespace(effects=effects, sent=sent, told=told, worker=worker)
    effects.close()


def restored(rank, buckets, *, generation=3):
    return control.StateRestored(generation=generation, rank=rank, is_intact=True, buckets=buckets)


@pytest.mark.parametrize(
    ("messages", "has_buckets"),
    [
        ([restored(0, "a"), restored(1, "a")], True),
        ([restored(0, "a"), restored(1, "b")], False),
        ([restored(0, "a"), restored(1, "")], False),
        ([restored(0, ""), restored(1, "")], False),
        ([restored(0, "a")], False),
        ([restored(0, "a"), restored(1, "a", generation=2)], False),
    ],
    ids=["same", "different", "one without", "none", "one silent", "one of an older generation"],
)
def test_buckets_are_used_only_when_every_rank_knows_the_same(made, messages, has_buckets):
    for message in messages:
        made.effects.hear(made.worker, message)
    made.effects.let_proceed(3)
    assert made.sent == [control.Proceed(generation=3, has_buckets=has_buckets)] * 2
    made.effects.let_proceed(3)
    assert len(made.sent) == 2, "said once a generation"


def replayed(rank, *, is_by_buckets=True, generation=3):
    return control.StepReplayed(
        generation=generation,
        rank=rank,
        step=8,
        outcome="equal",
        digest="aa",
        is_by_buckets=is_by_buckets,
    )


def begin_replay(made, *, buckets="a"):
    for rank in range(2):
        made.effects.hear(made.worker, restored(rank, buckets))
    made.effects.let_proceed(3)
    made.told.clear()
    made.sent.clear()


def test_a_replay_by_buckets_is_told_when_all_ranks_have_made_it(made):
    begin_replay(made)
    made.effects.hear(made.worker, replayed(1))
    assert made.told == []
    made.effects.hear(made.worker, replayed(0))
    assert [heard.rank for heard in made.told] == [1, 0]
    assert made.sent == []


def test_one_rank_whose_buckets_led_elsewhere_makes_all_of_them_replay_again(made):
    begin_replay(made)
    made.effects.hear(made.worker, replayed(0))
    made.effects.hear(made.worker, replayed(1, is_by_buckets=False))
    assert made.told == []
    assert made.sent == [control.ReplayAgain(generation=3)] * 2
    for rank in range(2):
        made.effects.hear(made.worker, replayed(rank))
    assert [heard.rank for heard in made.told] == [0, 1]


def test_a_replay_without_buckets_is_told_at_once(made):
    begin_replay(made, buckets="")
    made.effects.hear(made.worker, replayed(0))
    assert [heard.rank for heard in made.told] == [0]


def test_a_word_of_an_older_generation_does_not_count_as_a_replay_of_this_one(made):
    begin_replay(made)
    made.effects.hear(made.worker, replayed(1, generation=2))
    made.effects.hear(made.worker, replayed(0))
    assert [heard.generation for heard in made.told] == [2]
