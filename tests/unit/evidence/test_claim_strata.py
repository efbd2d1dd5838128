"""A mix of conditions is no improvement: like is compared with like, incident by incident, and what has no like is said."""

import pytest

from lastgood.evidence.claim import judge_claims
from lastgood.evidence.claim_records import Asked, ClaimName
from lastgood.evidence.claim_sides import side_of
from tests.unit.evidence.claim_cases import TEN, side_events

FIFTH = [v / 5 for v in TEN]
HALF = [v / 2 for v in TEN]
LATENCY, ETTR = ClaimName.DETECTION_LATENCY, ClaimName.ETTR


def side(*runs):
    """Each run as its times and how it was started."""
    events = []
    for number, (detect_s, given) in enumerate(runs):
        events += side_events(given.pop("run", f"r{number}"), detect_s, **given)
    return side_of(events, name="side")


def judged(claim, before, after, **asked):
    (result,) = judge_claims([claim], before, after, Asked(**asked))
    return result


@pytest.mark.parametrize(
    ("one", "other"),
    [({"world": 8}, {"world": 2}), ({"host": "h8"}, {"host": "h2"}), ({"floor_us": 8_000_000}, {"floor_us": 200_000})],
)  # fmt: skip
def test_another_mix_of_the_same_conditions_is_no_improvement(one, other):
    """Both sides hold both conditions. Only how often differs, and one of them is five times as slow."""
    before = side((TEN, {**one}), (FIFTH[:1], {**other}))
    after = side((TEN[:1], {**one}), (FIFTH, {**other}))
    result = judged(LATENCY, before, after)
    assert result.answer == "not shown"
    assert result.effect == pytest.approx(1, abs=0.05)
    assert sorted((row.n_before, row.n_after) for row in result.strata) == [(1, 10), (10, 1)]
    assert result.differing == ()


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [({"world": 8}, {"world": 2}, "world"), ({"floor_us": 8_000_000}, {"floor_us": 200_000}, "limits")],
)  # fmt: skip
def test_a_mix_is_no_improvement_either_when_it_is_named_as_changed(one, other, name):
    """Whoever names a condition of which both sides hold both values gets them compared value by value."""
    before = side((TEN, {**one}), (FIFTH[:1], {**other}))
    after = side((TEN[:1], {**one}), (FIFTH, {**other}))
    result = judged(LATENCY, before, after, changed=frozenset({name}))
    assert result.answer == "not shown"
    assert sorted((row.n_before, row.n_after) for row in result.strata) == [(1, 10), (10, 1)]
    assert "on both sides" in result.differing[0]
    assert "compared value by value" in result.differing[0]


def test_two_versions_in_other_shares_are_no_improvement():
    """The version may differ without being named; a mix of both is compared version by version."""
    before = side((TEN, {"version": "1"}), (FIFTH[:1], {"version": "2"}))
    after = side((TEN[:1], {"version": "1"}), (FIFTH, {"version": "2"}))
    assert judged(LATENCY, before, after).answer == "not shown"


def test_a_change_that_is_half_made_is_told_how_to_compare_it():
    before = side((TEN, {}))
    after = side((TEN[:2], {}), (HALF, {"world": 8, "run": "new"}))
    result = judged(LATENCY, before, after, changed=frozenset({"world"}))
    assert result.answer == "cannot tell"
    assert any("world: 4 before, 4, 8 after" in reason for reason in result.reasons)
    assert "--changed" not in result.next
    assert "LEDGER#RUN" in result.next


def test_each_of_several_conditions_can_be_better():
    before = side((TEN, {"world": 8}), (FIFTH, {"world": 2}))
    after = side((HALF, {"world": 8}), ([v / 10 for v in TEN], {"world": 2}))
    result = judged(LATENCY, before, after)
    assert result.answer == "shown"
    assert result.effect == pytest.approx(2, rel=0.05)
    assert [row.kind for row in result.strata] == ["sigstop, world 2", "sigstop, world 8"]


def test_what_ran_under_other_conditions_is_left_out_and_said():
    before = side((TEN, {}), (TEN[:4], {"world": 64}))
    result = judged(LATENCY, before, side((HALF, {})))
    assert result.answer == "shown"
    assert result.before.n == 10
    assert result.left_out == ("only before: sigstop, world 64 (4 of 14)",)


def test_conditions_that_cross_leave_nothing_alike():
    """Every value of every condition is on both sides, and no two incidents are alike."""
    before = side((TEN, {"world": 8, "host": "a"}), (TEN, {"world": 2, "host": "b"}))
    after = side((HALF, {"world": 8, "host": "b"}), (HALF, {"world": 2, "host": "a"}))
    result = judged(LATENCY, before, after)
    assert result.answer == "cannot tell"
    assert result.reasons == (
        "unlike conditions: 20 of 20 before happened under some that the other side lacks",
        "unlike conditions: 20 of 20 after happened under some that the other side lacks",
    )


def test_the_start_before_an_incident_is_the_one_that_counts():
    """One run, started again with other ranks: its incidents stand under two sets of conditions."""
    first, again = side_events("a", TEN, world=4), side_events("a", FIFTH, world=2)
    later_us = 10_000_000_000
    moved = [
        _later(e, later_us) for e in again if not (e.links and e.kind == "annotation")
    ]  # fmt: skip
    whole = side_of([*first, *moved], name="a")
    worlds = [c.conditions["world"] for c in whole.counted]
    assert (worlds.count("4"), worlds.count("2")) == (10, 10)


def _later(event, by_us):
    import msgspec

    moved = {
        name: value + by_us
        for name in ("t_occurred_us", "t_observed_us")
        if (value := getattr(event, name)) is not None
    }
    return msgspec.structs.replace(event, **moved)


def without_start(run, detect_s, **given):
    events = side_events(run, detect_s, **given)
    return side_of([e for e in events if e.kind != "run.start"], name=run)


def test_conditions_that_nobody_recorded_are_not_alike():
    before, after = without_start("a", TEN), without_start("b", FIFTH, world=64, host="h2")
    result = judged(LATENCY, before, after)
    assert result.answer == "cannot tell"
    assert result.reasons[0] == (
        "no conditions on record: nothing says whether 10 of 10 before had the same job, limits, machine, world as "
        "the other side"
    )
    assert result.next.endswith("--changed job,limits,machine,world")
    accepted = frozenset({"job", "limits", "machine", "world"})
    assert judged(LATENCY, before, after, changed=accepted).answer == "shown"
    assert (
        judged(LATENCY, before, after, changed=accepted - {"world"}).next == result.next
    )  # still all of them


def test_a_condition_that_one_side_recorded_is_a_difference():
    result = judged(LATENCY, side((TEN, {})), without_start("b", FIFTH))
    assert result.answer == "cannot tell"
    assert "world: 4 before, not recorded after" in result.reasons


def test_a_condition_on_both_sides_that_was_said_to_be_changed_is_printed_as_mixed():
    before = side((TEN, {"world": 8}), (TEN, {"world": 2}))
    after = side((HALF, {"world": 8}), (HALF, {"world": 2}))
    result = judged(LATENCY, before, after, changed=frozenset({"world"}))
    assert result.differing == ("world: 2, 8 on both sides, compared value by value",)


SLOW = {"late_s": 24, "recovery_s": 21}
"""A third of the time goes into recoveries."""


def test_useful_time_of_another_mix_is_no_improvement():
    """The large size recovers slowly; after, it is rarer. Within a size nothing differs."""
    before = side((TEN[:9], {"world": 8, **SLOW}), (TEN[:4], {"world": 2}))
    after = side((TEN[:4], {"world": 8, **SLOW}), (TEN[:9], {"world": 2}))
    result = judged(ETTR, before, after)
    assert result.effect == pytest.approx(0, abs=0.02)
    assert result.answer == "cannot tell"
    assert result.reasons[0].startswith("different faults were injected")  # as many, but elsewhere
    assert judged(ETTR, before, before).answer == "not shown"
    named = judged(ETTR, before, after, changed=frozenset({"world"}))
    assert named.effect == result.effect


def test_more_useful_time_is_shown_within_each_condition():
    before = side((TEN, {"world": 8, **SLOW}), (TEN, {"world": 2, **SLOW}))
    after = side((TEN, {"world": 8}), (TEN, {"world": 2}))
    result = judged(ETTR, before, after)
    assert result.answer == "shown"
    assert result.effect == pytest.approx(0.33, abs=0.03)


def test_useful_time_without_conditions_on_record_cannot_be_compared():
    result = judged(ETTR, without_start("a", TEN), without_start("b", TEN))
    assert result.answer == "cannot tell"
