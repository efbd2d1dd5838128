"""Restarts are bounded: by the contract's recurrence for one signature, and by starts without a step."""

from lastgood.contract.load import default_contract
from lastgood.training.observe.restarting import Restarting
from lastgood.training.observe.supervisor import job_code

HOUR_US = 3_600_000_000
CONTRACT = default_contract("training")
AGAIN = CONTRACT.spec.recovery.recurrence


def test_the_same_failure_soon_after_its_recovery_is_restarted_as_often_as_the_contract_allows():
    restarting = Restarting(CONTRACT)
    assert restarting.refusal("hang::1", now_us=0, has_progressed=True) is None
    for at in range(AGAIN.limit):
        restarting.recovered("hang::1", now_us=at * 10)
        assert restarting.refusal("hang::1", now_us=at * 10 + 5, has_progressed=True) is None
    restarting.recovered("hang::1", now_us=100)
    reason = restarting.refusal("hang::1", now_us=105, has_progressed=True)
    assert reason is not None
    assert f"came back {AGAIN.limit + 1} times" in reason


def test_a_failure_long_after_its_recovery_starts_the_count_again():
    restarting = Restarting(CONTRACT)
    for at in range(10):
        assert restarting.refusal("hang::1", now_us=at * HOUR_US, has_progressed=True) is None
        restarting.recovered("hang::1", now_us=at * HOUR_US + 1)


def test_another_failure_has_its_own_count():
    restarting = Restarting(CONTRACT)
    for at, signature in enumerate(["a", "b", "c", "d", "e", "f"]):
        assert restarting.refusal(signature, now_us=at, has_progressed=True) is None
        restarting.recovered(signature, now_us=at)


def test_starts_in_a_row_without_a_step_are_bounded_whatever_their_signatures():
    restarting = Restarting(CONTRACT)
    answers = [restarting.refusal(f"s{at}", now_us=at, has_progressed=False) for at in range(AGAIN.limit + 1)]  # fmt: skip
    assert answers[:-1] == [None] * AGAIN.limit
    assert "without" not in (answers[0] or "")
    assert (
        answers[-1] == f"{AGAIN.limit + 1} starts in a row ended before every rank had done a step"
    )


def test_the_code_of_a_job_is_93_then_75_then_that_of_the_culprit():
    assert job_code([0, 75, 93], None) == 93
    assert job_code([1, 75, -9], -9) == 75
    assert job_code([1, -9, 1], -9) == 137
    assert job_code([0, 3, 1], None) == 3
    assert job_code([0, 0], None) == 0
