"""Which passes verify a restored state; the rules are those of the module's text, written out."""

import pytest

from lastgood.recovery.messages import VerifyMode
from lastgood.training.rank.passes import Pass, PassKind, passes_after_restore, passes_of_probe

D, T, P, R = PassKind.DISCARD, PassKind.TRIAL, PassKind.PROBE, PassKind.REPLAY


def shape(passes):
    """Kind and whether a fresh wrapper is made, such as `discard+`."""
    return [f"{p.kind}{'+' if p.wraps else ''}" for p in passes]


@pytest.mark.parametrize(
    ("mode", "restore_step", "is_wrapped", "expected"),
    [
        (VerifyMode.PREDECESSOR, 7, True, ["discard+", "discard", "replay"]),
        (VerifyMode.PREDECESSOR, 7, False, ["replay"]),
        (VerifyMode.REPEAT, 7, True, ["discard+", "trial", "replay"]),
        (VerifyMode.REPEAT, 7, False, ["trial", "replay"]),
        # Step 1 itself runs the first bucket layout: a fresh wrapper for each run, and none thrown away.
        (VerifyMode.PREDECESSOR, 0, True, ["replay+"]),
        (VerifyMode.REPEAT, 0, True, ["trial+", "replay+"]),
        (VerifyMode.PREDECESSOR, 0, False, ["replay"]),
        (VerifyMode.REPEAT, 0, False, ["trial", "replay"]),
    ],
)
def test_the_passes_after_a_restore(mode, restore_step, is_wrapped, expected):
    passes = passes_after_restore(mode, restore_step=restore_step, is_wrapped=is_wrapped)
    assert expected == shape(passes)
    assert {restore_step + 1} == {p.step for p in passes}


@pytest.mark.parametrize("mode", list(VerifyMode))
@pytest.mark.parametrize("restore_step", [0, 1, 2, 50])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_every_restore_ends_in_exactly_one_replay(mode, restore_step, is_wrapped):
    """Leaving VERIFYING always needs one replayed step."""
    passes = passes_after_restore(mode, restore_step=restore_step, is_wrapped=is_wrapped)
    assert [p.kind for p in passes if p.kind is R] == [R]
    assert passes[-1].kind is R
    assert (T in {p.kind for p in passes}) is (mode is VerifyMode.REPEAT)


def test_the_probe_goes_through_a_fresh_wrapper_as_a_recovery_would():
    assert shape(passes_of_probe(2, is_wrapped=True)) == ["discard+", "discard", "probe"]
    assert passes_of_probe(2, is_wrapped=False) == (Pass(P, 2),)
