"""Each answer of a claim has its case, and each case that could be mistaken for an improvement is refused."""

import math

import pytest

from lastgood.evidence.claim import judge_claims
from lastgood.evidence.claim_records import Asked, ClaimName
from lastgood.evidence.claim_sides import read_sides, side_of
from tests.unit.evidence.claim_cases import TEN, side_events, write_side

HALF = [v / 2 for v in TEN]
LATENCY, RECOVERY, LOST, ETTR = (
    ClaimName.DETECTION_LATENCY,
    ClaimName.RECOVERY_TIME,
    ClaimName.LOST_WORK,
    ClaimName.ETTR,
)


def side(run, detect_s=TEN, **given):
    return side_of(side_events(run, detect_s, **given), name=run)


def judged(claim, before, after, **asked):
    (result,) = judge_claims([claim], before, after, Asked(**asked))
    return result


def test_twice_as_fast_is_shown_with_its_factor_and_interval():
    result = judged(LATENCY, side("a"), side("b", HALF))
    assert result.answer == "shown"
    assert result.effect == pytest.approx(2.0, rel=0.03)
    assert result.lo < 2.0 < result.hi
    assert result.measure == "from the injection to the detection"
    assert (result.before.n, result.after.n, result.unit) == (10, 10, "us")
    assert result.before.value == pytest.approx(1.015e6)
    assert result.is_injected
    assert result.needed == ""


def test_the_same_again_is_not_shown_and_says_what_it_would_take():
    result = judged(LATENCY, side("a"), side("b", TEN[::-1]))
    assert result.answer == "not shown"
    assert "takes about" in result.needed


def test_the_opposite_is_called_worse():
    assert judged(LATENCY, side("a", HALF), side("b")).answer == "worse"


def test_an_improvement_that_is_smaller_than_claimed_is_not_shown():
    before, after = side("a"), side("b", HALF)
    assert judged(LATENCY, before, after, at_least=1.5).answer == "shown"
    assert judged(LATENCY, before, after, at_least=3.0).answer == "not shown"


def test_three_against_three_cannot_tell_however_far_apart():
    result = judged(LATENCY, side("a", TEN[:3]), side("b", [v / 1000 for v in TEN[:3]]))
    assert result.answer == "cannot tell"
    assert "4 on each side" in result.reasons[0]


@pytest.mark.parametrize(
    ("given", "name"),
    [({"world": 2}, "world"), ({"host": "h2"}, "machine"), ({"floor_us": 500_000}, "limits"), ({"mode": "run"}, "injected")],
)  # fmt: skip
def test_a_condition_that_nobody_said_was_changed_leaves_nothing_to_tell(given, name):
    before, after = side("a"), side("b", HALF, **given)
    refused = judged(LATENCY, before, after)
    assert refused.answer == "cannot tell"
    assert refused.reasons[0].startswith(f"{name}: ")
    told = judged(LATENCY, before, after, changed=frozenset({name}))
    assert told.answer == "shown"
    assert told.differing == refused.differing


def test_another_output_folder_is_no_other_job():
    assert side("a").conditions["job"] == ("job.py --out --size 3",)


def test_like_is_compared_with_like():
    """After looks faster only because the slow kind is rarer: within each kind nothing has changed."""
    slow, fast = [10 * v for v in TEN], TEN
    many = side(
        "a", [v for pair in zip(slow, fast, strict=True) for v in pair], kinds=("spin", "sigstop")
    )
    few = side("b", [*slow[:2], *fast, *fast], kinds=("spin",) * 2 + ("sigstop",) * 20)
    result = judged(LATENCY, many, few)
    assert result.answer == "not shown"
    assert [(row.kind, row.n_before, row.n_after) for row in result.strata] == [
        ("sigstop", 10, 20),
        ("spin", 10, 2),
    ]


def test_different_faults_cannot_be_compared():
    result = judged(LATENCY, side("a", kinds=("sigstop",)), side("b", HALF, kinds=("spin",)))
    assert result.answer == "cannot tell"
    assert "no kind of fault is on both sides" in result.reasons
    mostly = judged(LATENCY, side("a"), side("b", HALF, kinds=("sigstop", "spin", "spin")))
    assert mostly.answer == "cannot tell"


def test_a_side_without_a_record_of_it_is_said_to_have_none():
    result = judged(LATENCY, side("a", []), side("b"))
    assert result.answer == "cannot tell"
    assert "no incident before has this on record" in result.reasons


def test_a_fault_that_was_never_detected_stands_behind_every_time():
    result = judged(LATENCY, side("a"), side("b", HALF[:9], undetected=9))
    assert result.after.never == 9
    assert result.answer != "shown"
    blind = judged(LATENCY, side("a"), side("b", HALF[:1], undetected=9))
    assert blind.answer == "worse"
    assert blind.after.value is None


def test_a_recovery_that_escalated_took_for_ever():
    result = judged(RECOVERY, side("a"), side("b", recovery_s=0.1, escalated=range(8)))
    assert result.answer == "worse"
    assert result.after.never == 8


def test_recovery_counts_from_the_detection():
    result = judged(RECOVERY, side("a"), side("b", [v * 3 for v in TEN]))
    assert result.answer == "not shown"
    assert judged(RECOVERY, side("a"), side("b", recovery_s=0.1)).answer == "shown"


def test_lost_steps_are_compared_by_their_mean():
    lost = [0, 1, 2, 1, 3, 1, 0, 2, 1, 4]
    result = judged(LOST, side("a", lost=lost), side("b", lost=[0] * 10))
    assert result.answer == "shown"
    assert result.effect == pytest.approx(1.5)
    assert judged(LOST, side("a", lost=lost), side("b", lost=lost[::-1])).answer == "not shown"
    nothing = judged(LOST, side("a"), side("b"))
    assert nothing.answer == "not shown"
    assert "nothing to improve on" in nothing.needed


def test_useful_time_is_that_of_all_pieces_and_needs_four_of_them():
    result = judged(ETTR, side("a"), side("b"))
    assert result.answer == "not shown"
    assert result.before.value == pytest.approx(result.after.value)
    assert 0.85 < result.before.value < 0.97
    few = judged(ETTR, side("a", TEN[:2]), side("b", TEN[:2]))
    assert few.answer == "cannot tell"


def test_useful_time_under_other_injected_faults_cannot_be_compared():
    result = judged(ETTR, side("a"), side("b", kinds=("sigstop", "spin")))
    assert result.answer == "cannot tell"
    assert "different faults were injected" in result.reasons[0]


def test_several_claims_share_the_chance_of_a_false_one():
    before, after = side("a"), side("b", HALF)
    alone = judged(LATENCY, before, after)
    first, _, _ = judge_claims([LATENCY, RECOVERY, LOST], before, after, Asked())
    assert alone.p_adjusted is None
    assert first.p_adjusted == pytest.approx(3 * alone.p)


def test_a_time_is_taken_from_the_onset_where_no_injection_is_on_record():
    events = [e for e in side_events("b", HALF) if e.kind != "annotation"]
    field = side_of(events, name="b")
    assert {c.kind for c in field.counted} == {"hang"}
    result = judged(LATENCY, side("a"), field)
    assert result.measure == "from the recorded onset to the detection"


def test_a_run_of_a_ledger_can_be_a_side(tmp_path):
    path = write_side(tmp_path / "l.db", "a", TEN)
    write_side(path, "b", HALF)
    one, both = read_sides(f"{path}#b", str(path))
    assert one.runs == ("b",)
    assert len(both.counted) == 20
    assert not list(tmp_path.glob("*-wal"))


def test_an_open_incident_is_left_out_and_said(tmp_path):
    events = side_events("a", TEN)
    last = [e for e in events if e.kind == "incident.close"][-1]
    open_side = side_of([e for e in events if e is not last], name="a")
    assert "1 of 10 incidents have no recorded end of recovery" in open_side.notes
    assert sum(c.recovery_us is None for c in open_side.counted) == 1
    assert not any(c.recovery_us == math.inf for c in open_side.counted)
