"""Which passes verify a restored state; the rules are those of the module's text, written out."""

import pytest

from lastgood.recovery.messages import VerifyMode
from lastgood.training.rank.passes import (
    Pass,
    PassKind,
    more_passes_of_probe,
    passes_after_restore,
    passes_of_probe,
    passes_of_static_graph,
)

T, R = PassKind.TRIAL, PassKind.REPLAY


def shape(passes):
    """Kind and whether a fresh wrapper is made, such as `discard+`."""
    return [f"{p.kind}{'+' if p.wraps else ''}" for p in passes]


@pytest.mark.parametrize(
    ("mode", "restore_step", "expected"),
    [
        (VerifyMode.PREDECESSOR, 7, ["discard+", "replay"]),
        (VerifyMode.REPEAT, 7, ["discard+", "trial", "replay"]),
        # Step 1 itself runs the first bucket layout: a fresh wrapper for each run, and none thrown away.
        (VerifyMode.PREDECESSOR, 0, ["replay+"]),
        (VerifyMode.REPEAT, 0, ["trial+", "replay+"]),
    ],
)
def test_the_passes_after_a_restore(mode, restore_step, expected):
    passes = passes_after_restore(mode, restore_step=restore_step)
    assert expected == shape(passes)
    assert {restore_step + 1} == {p.step for p in passes}


@pytest.mark.parametrize("restore_step", [2, 7])
def test_nothing_is_thrown_away_where_the_wrapper_is_made_with_the_buckets_of_the_step(
    restore_step,
):
    passes = passes_after_restore(
        VerifyMode.PREDECESSOR, restore_step=restore_step, is_laid_out=True
    )
    assert shape(passes) == ["replay+"]


@pytest.mark.parametrize(("restore_step", "besides"), [(0, []), (1, []), (2, ["discard"])])
def test_a_static_graph_lays_its_buckets_out_behind_the_second_pass(restore_step, besides):
    first, *_ = passes_after_restore(VerifyMode.PREDECESSOR, restore_step=restore_step)
    assert shape(passes_of_static_graph(first)) == besides
    assert passes_of_static_graph(Pass(PassKind.REPLAY, 7)) == ()


# A new beginning restores nothing: its state 0 is compared between the ranks instead.
@pytest.mark.parametrize("mode", [mode for mode in VerifyMode if mode is not VerifyMode.BEGIN])
@pytest.mark.parametrize("restore_step", [0, 1, 2, 50])
def test_every_restore_ends_in_exactly_one_replay(mode, restore_step):
    """Leaving VERIFYING always needs one replayed step."""
    passes = passes_after_restore(mode, restore_step=restore_step)
    assert [p.kind for p in passes if p.kind is R] == [R]
    assert passes[-1].kind is R
    assert (T in {p.kind for p in passes}) is (mode is VerifyMode.REPEAT)


def test_the_probe_goes_through_a_fresh_wrapper_as_a_recovery_would():
    assert shape(passes_of_probe(2)) == ["discard+", "probe"]
    assert shape(more_passes_of_probe(2)) == ["probe"] * 7


def test_each_probe_of_a_model_without_buckets_is_wrapped_anew():
    passes = (*passes_of_probe(2, has_buckets=False), *more_passes_of_probe(2, has_buckets=False))
    assert shape(passes) == ["probe+"] * 8
