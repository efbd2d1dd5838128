import pytest

from lastgood.recovery.policy import ONWARD, LoopPhase, OnTimeout, policy_from, simple_policy
from lastgood.recovery.turn import Turn
from tests.unit.recovery.scene import Scene

RESTING = {LoopPhase.RUNNING, LoopPhase.ESCALATED}


@pytest.mark.parametrize(
    "policy", [policy_from(None), simple_policy(timeout_us=5)], ids=["contract", "simple"]
)
def test_every_phase_has_a_limit_an_owner_a_test_and_a_way_on(policy):
    assert set(policy.rows) == set(LoopPhase)
    for phase, row in policy.rows.items():
        assert (row.timeout_us is None) == (phase in RESTING)
        assert row.owner
        assert row.accept
        assert isinstance(row.on_timeout, OnTimeout)
        assert row.onward == ONWARD[phase]


def test_only_verification_leads_back_to_running():
    assert [phase for phase, onward in ONWARD.items() if LoopPhase.RUNNING in onward] == [
        LoopPhase.VERIFYING
    ]


def test_every_phase_but_the_resting_ones_can_call_a_person():
    assert {phase for phase, onward in ONWARD.items() if LoopPhase.ESCALATED in onward} == set(
        LoopPhase
    ) - RESTING


def test_no_state_is_restored_before_the_culprits_are_isolated():
    assert [phase for phase, onward in ONWARD.items() if LoopPhase.RESTORING in onward] == [
        LoopPhase.ISOLATING
    ]


def test_escalated_is_the_end():
    assert ONWARD[LoopPhase.ESCALATED] == frozenset()


def test_the_loop_refuses_a_move_that_the_table_does_not_have():
    turn = Turn(Scene().state, 200_000_000)
    with pytest.raises(AssertionError, match="no move from running to verifying"):
        turn.enter(LoopPhase.VERIFYING)


def test_the_numbers_come_from_the_contract():
    from lastgood.contract.load import default_contract

    contract = default_contract(kind="training")
    policy = policy_from(contract)
    recovery = contract.spec.recovery
    assert policy.rows[LoopPhase.ISOLATING].timeout_us == recovery.isolate.timeout_us
    assert policy.rows[LoopPhase.RESTORING].timeout_us == recovery.restore.timeout_us
    assert policy.rows[LoopPhase.VERIFYING].timeout_us == recovery.verify.timeout_us
    assert policy.rows[LoopPhase.VERIFYING].accept == recovery.verify.accept
    assert policy.rows[LoopPhase.RUNNING].owner == recovery.detect.owner
    assert policy.recurrence_window_us == recovery.recurrence.window_us
    assert policy.recurrence_limit == recovery.recurrence.limit
    assert policy.soft_deadline_us == recovery.soft_deadline_us


def test_a_stack_dump_gets_one_second():
    assert policy_from(None).rows[LoopPhase.SUSPECT].timeout_us == 1_000_000
