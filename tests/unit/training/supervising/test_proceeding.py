"""The ranks hear whether all of them know the same gradient buckets: all have to make the same passes."""

from types import SimpleNamespace

import pytest

from lastgood.training import control
from lastgood.training.supervising.effects import Effects


@pytest.fixture
def made(tmp_path):
    sent = []
    worker = SimpleNamespace(channel=SimpleNamespace(send=sent.append))
    supervisor = SimpleNamespace(
        run_dir=SimpleNamespace(progress=tmp_path / "progress.bin"),
        serving=("w0", "w1"),
        workers={"w0": worker, "w1": worker},
        recorder=SimpleNamespace(attempt=3),
    )
    effects = Effects(supervisor)
    yield SimpleNamespace(effects=effects, sent=sent)
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
        made.effects.hear_buckets(message)
    made.effects.let_proceed(3)
    assert made.sent == [control.Proceed(generation=3, has_buckets=has_buckets)] * 2
    made.effects.let_proceed(3)
    assert len(made.sent) == 2, "said once a generation"
