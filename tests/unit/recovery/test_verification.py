from lastgood.recovery.messages import (
    Replayed,
    ReplayOutcome,
    Restored,
    RestorePlan,
    Tier,
    VerifyMode,
)
from lastgood.recovery.verification import describe_test, judge_replay, judge_restore

EQUAL, NEAR, OTHER = ReplayOutcome.EQUAL, ReplayOutcome.WITHIN_TOLERANCE, ReplayOutcome.DIFFERENT


def replays(*outcomes: ReplayOutcome) -> dict[int, Replayed]:
    return {r: Replayed(rank=r, generation=2, step=5, outcome=o) for r, o in enumerate(outcomes)}


def restores(*intact: bool) -> dict[int, Restored]:
    return {r: Restored(rank=r, generation=2, is_intact=i) for r, i in enumerate(intact)}


def test_all_equal_is_accepted_as_equal():
    finding = judge_replay(replays(EQUAL, EQUAL), world=2)
    assert (finding.is_accepted, finding.outcome) == (True, EQUAL)


def test_one_within_tolerance_makes_all_of_it_within_tolerance():
    finding = judge_replay(replays(EQUAL, NEAR, EQUAL), world=3)
    assert (finding.is_accepted, finding.outcome) == (True, NEAR)


def test_one_different_is_not_accepted_and_is_the_minority():
    finding = judge_replay(replays(EQUAL, NEAR, OTHER), world=3)
    assert (finding.is_accepted, finding.outcome, finding.minority) == (False, OTHER, (2,))


def test_half_of_the_ranks_is_no_minority():
    assert judge_replay(replays(EQUAL, OTHER), world=2).minority == ()


def test_a_silent_rank_is_not_fine():
    finding = judge_replay(replays(EQUAL, EQUAL), world=3)
    assert (finding.is_accepted, finding.outcome, finding.silent) == (False, None, (2,))


def test_bytes_are_intact_when_every_rank_says_so():
    assert judge_restore(restores(True, True), world=2).is_intact
    assert not judge_restore(restores(True, True), world=3).is_intact
    assert not judge_restore(restores(True, False), world=2).is_intact


def test_a_broken_rank_is_named_before_the_others_have_spoken():
    assert [a.rank for a in judge_restore(restores(True, False), world=4).broken] == [1]


def test_the_words_say_which_step_was_run():
    plan = RestorePlan(
        tier=Tier.SLOT, mode=VerifyMode.PREDECESSOR, restore_step=4, target_step=5, digest="d"
    )
    assert describe_test(plan) == "replay step 5 on every rank"
    plan = RestorePlan(
        tier=Tier.SLOT, mode=VerifyMode.REPEAT, restore_step=5, target_step=5, digest="d"
    )
    assert describe_test(plan) == "run step 6 twice on every rank"
