"""The loop by hand: the good way through the table, then what leaves it."""

import pytest

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.crew import Standing
from lastgood.recovery.last_good import Trust
from lastgood.recovery.policy import LoopPhase, simple_policy
from lastgood.signals.reading import Question, Symptom, Verdict
from tests.unit.recovery.scene import WORKERS, S, Scene, checkpoint, failed, slot, usual_states

# --- the good way ---------------------------------------------------------------------------------


def test_a_killed_rank_is_replaced_verified_and_nothing_is_lost():
    s = Scene().tell(failed(Symptom.PROCESS_EXIT, 2, onset_us=100 * S))
    assert s.phase is LoopPhase.ISOLATING
    assert s.said(m.Kill) == []
    assert s.said(m.Revoke) == [m.Revoke(1, ("w0", "w1", "w3"))]
    assert s.said(m.RefillSpare) == [m.RefillSpare(1)]

    s.park("w0", "w1", "w3")
    assert (s.phase, s.said(m.ReadCatalogue)) == (LoopPhase.RESTORING, [m.ReadCatalogue()])

    s.catalogue()
    (assign,) = s.said(m.Assign)
    assert (assign.generation, assign.workers) == (2, ("w0", "w1", "w4", "w3"))
    assert assign.plan == m.RestorePlan(
        tier=m.Tier.SLOT,
        mode=m.VerifyMode.PREDECESSOR,
        restore_step=9,
        target_step=10,
        digest="d10",
    )

    s.restored(0, 1, 2)
    assert s.phase is LoopPhase.RESTORING
    s.restored(3)
    assert s.phase is LoopPhase.VERIFYING

    s.replayed(0, 1, 3)
    assert (s.phase, s.said(m.Resume)) == (LoopPhase.VERIFYING, [])
    s.replayed(2)
    assert (s.phase, s.said(m.Resume)) == (LoopPhase.RUNNING, [m.Resume(2, 10)])
    (closed,) = s.records("incident.close")
    assert closed["body"]["outcome"] == "recovered"
    assert (closed["body"]["lost_steps"], closed["body"]["resumed_step"]) == (0, 10)
    assert closed["verification"] == {
        "test": "replay step 10 on every rank", "result": "equal", "evidence": "d10",
    }  # fmt: skip


def test_every_move_is_an_event_and_they_come_in_order():
    assert Scene().recover().kinds() == [
        "incident.open", "detect", "diagnose", "isolate", "restore.begin", "restore", "verify", "state.trust",
        "incident.close",
    ]  # fmt: skip


def test_the_times_of_an_incident_add_up_to_its_length():
    s = Scene().tell(failed(Symptom.HANG, 2, onset_us=95 * S))
    s.tell(m.StacksDumped("w2", "stack"), after_us=300_000)
    s.tell(m.WorkerGone("w2"), after_us=20_000).park("w0", "w1", "w3")
    s.catalogue().restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    (closed,) = s.records("incident.close")
    names = ("detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us")
    assert sum(closed[name] for name in names) == s.now_us - 95 * S
    assert closed["diagnose_us"] == 300_000
    assert closed["isolate_us"] == 20_000 + 3 * 1000
    assert closed["recover_us"] == 5 * 1000
    assert closed["verify_us"] == 4 * 1000
    assert closed["lost_device_us"] == 4 * (s.now_us - 95 * S)


def test_detection_is_charged_from_the_onset():
    s = Scene().tell(failed(Symptom.HANG, 2, onset_us=95 * S))
    (detected,) = s.records("detect")
    assert (detected["t_occurred_us"], detected["t_observed_us"]) == (95 * S, s.now_us)
    assert detected["detect_us"] == s.now_us - 95 * S


def test_a_hang_is_dumped_before_it_is_killed():
    s = Scene().tell(failed(Symptom.HANG, 2))
    assert (s.phase, s.said(m.DumpStacks), s.said(m.Kill)) == (
        LoopPhase.SUSPECT,
        [m.DumpStacks(("w2",))],
        [],
    )
    s.tell(m.StacksDumped("w2", "w2.txt"))
    assert (s.phase, s.said(m.Kill)) == (LoopPhase.ISOLATING, [m.Kill(("w2",))])
    assert s.records("diagnose")[0]["body"]["stacks"] == {"w2": "w2.txt"}


def test_a_stack_dump_that_does_not_come_is_given_up_after_a_second():
    s = Scene().tell(failed(Symptom.HANG, 2))
    s.tell(m.Tick(), after_us=999_999)
    assert s.phase is LoopPhase.SUSPECT
    s.tell(m.Tick(), after_us=1)
    assert (s.phase, s.said(m.Kill)) == (LoopPhase.ISOLATING, [m.Kill(("w2",))])


def test_a_hang_without_a_culprit_dumps_everybody_and_kills_nobody_yet():
    s = Scene().tell(failed(Symptom.HANG, verdict=Verdict.UNKNOWN))
    assert s.said(m.DumpStacks) == [m.DumpStacks(WORKERS)]
    s.tell(m.Tick(), after_us=S)
    assert (s.said(m.Kill), s.said(m.Revoke)) == ([], [m.Revoke(1, WORKERS)])


def test_a_worker_that_parked_by_itself_is_not_told_again():
    s = Scene().tell(m.WorkerParked("w0", 1), m.WorkerGone("w2"))
    assert s.said(m.Revoke) == [m.Revoke(1, ("w1", "w3"))]


def test_parking_in_an_older_generation_is_stale_news():
    s = Scene().recover()
    s.tell(m.WorkerParked("w0", 1), m.WorkerGone("w3"))
    assert s.said(m.Revoke) == [m.Revoke(2, ("w0", "w1", "w4"))]


def test_two_verdicts_on_one_death_are_one_incident():
    s = Scene().tell(
        failed(Symptom.PROCESS_EXIT, 2), m.WorkerGone("w2"), failed(Symptom.PROCESS_EXIT, 2)
    )
    assert s.kinds().count("incident.open") == 1
    assert s.records("annotation", ever=True) == []


def test_a_suspicion_is_noted_once_and_nothing_is_done():
    slow = failed(Symptom.SLOW, 1, verdict=Verdict.SUSPECT, question=Question.PERFORMANCE)
    s = Scene().tell(slow, slow, slow)
    assert s.phase is LoopPhase.RUNNING
    assert [a.kind for a in s.last] == ["annotation"]


def test_unknown_without_a_symptom_opens_nothing():
    s = Scene().tell(failed(None, verdict=Verdict.UNKNOWN))
    assert s.phase is LoopPhase.RUNNING


# --- isolation ------------------------------------------------------------------------------------


def test_a_survivor_that_does_not_park_in_time_takes_everybody_out():
    s = Scene().tell(m.WorkerGone("w2")).park("w0", "w1")
    s.tell(m.Tick(), after_us=2 * S)
    assert s.said(m.Kill) == [m.Kill(("w0", "w1", "w3"))]
    assert s.said(m.RefillSpare) == [m.RefillSpare(3)]
    s.tell(*[m.WorkerGone(w) for w in ("w0", "w1", "w3")])
    assert s.state.case.culprits == (2,)
    assert (s.phase, s.records("isolate")[0]["body"]["path"]) == (LoopPhase.RESTORING, "hard")


def test_a_later_attempt_of_the_same_incident_may_widen_again():
    s = Scene().tell(m.WorkerGone("w2"))
    s.tell(m.Tick(), after_us=2 * S).tell(*[m.WorkerGone(w) for w in ("w0", "w1", "w3")])
    s.tell(*[m.SpareReady(f"n{i}") for i in range(4)]).catalogue()
    s.tell(m.WorkerGone(s.state.crew.serving[0]), m.Tick(), after_us=S)
    s.tell(m.Tick(), after_us=2 * S)
    assert (s.phase, len(s.said(m.Kill))) == (LoopPhase.ISOLATING, 1)


def test_a_killed_process_that_never_ends_is_not_waited_for_for_ever():
    s = Scene().tell(failed(Symptom.EXCEPTION, 2), m.Tick(), after_us=S // 5).park("w0", "w1", "w3")
    s.tell(m.Tick(), after_us=2 * S)
    assert s.phase is LoopPhase.ISOLATING
    s.tell(m.Tick(), after_us=10 * S)
    assert s.phase is LoopPhase.ESCALATED


def test_a_process_that_the_kernel_holds_is_given_up_and_the_run_goes_on():
    s = Scene().tell(failed(Symptom.EXCEPTION, 2), m.Tick(), after_us=S // 5).park("w0", "w1", "w3")
    s.tell(m.WorkerUnkillable("w2"))
    assert s.phase is LoopPhase.RESTORING
    mark = s.records("annotation")[0]
    assert mark["body"]["what"] == "host.quarantine"
    assert (mark["body"]["worker"], mark["ranks"]) == ("w2", (2,))
    assert mark["body"]["host"]
    s.catalogue()
    assert s.said(m.Assign)[0].workers == ("w0", "w1", "w4", "w3")
    s.tell(m.WorkerParked("w2"), m.SpareReady("w2"))
    assert s.state.crew.spares == ()


def test_two_culprits_leave_together():
    s = Scene(spares=2).tell(failed(Symptom.EXCEPTION, 1, 3), m.Tick(), after_us=S // 5)
    assert s.said(m.Kill) == [m.Kill(("w1", "w3"))]
    s.tell(m.WorkerGone("w1"), m.WorkerGone("w3")).park("w0", "w2")
    s.catalogue()
    assert s.said(m.Assign)[0].workers == ("w0", "w4", "w2", "w5")


def test_a_second_culprit_found_while_isolating_leaves_too():
    s = Scene(spares=2).tell(m.WorkerGone("w2")).tell(failed(Symptom.HANG, 0))
    assert s.said(m.Kill) == [m.Kill(("w0",))]
    assert s.state.case.culprits == (0, 2)
    assert s.kinds().count("incident.open") == 1


@pytest.mark.parametrize(("code", "words"), [(-9, ": signal 9"), (3, ": exit code 3"), (None, "")])
def test_how_each_rank_ended_is_said_also_of_those_that_come_behind_the_first(code, words):
    s = Scene(spares=2).tell(failed(Symptom.PROCESS_EXIT, 2), m.WorkerGone("w0", False, code))
    (told,) = s.records("annotation", ever=True)
    assert told["body"]["evidence"] == [f"rank 0 (w0) ended{words}"]


def test_a_survivor_that_dies_while_parking_is_replaced():
    s = Scene(spares=2).tell(m.WorkerGone("w2")).park("w0", "w1").tell(m.WorkerGone("w3"))
    assert s.phase is LoopPhase.RESTORING
    s.catalogue()
    assert s.said(m.Assign)[0].workers == ("w0", "w1", "w4", "w5")


# --- spares ---------------------------------------------------------------------------------------


def test_without_a_spare_the_loop_waits_for_one():
    s = Scene(spares=0).isolate().catalogue()
    assert (s.phase, s.said(m.Assign)) == (LoopPhase.RESTORING, [])
    s.tell(m.SpareReady("n1"))
    assert s.said(m.Assign)[0].workers == ("w0", "w1", "n1", "w3")


def test_a_spare_that_dies_is_ordered_again():
    s = Scene().tell(m.SpareLost("w4"))
    assert s.said(m.RefillSpare) == [m.RefillSpare(1)]
    s.tell(m.SpareLost("n1"))
    assert s.said(m.RefillSpare) == [m.RefillSpare(1)]


def test_spares_that_always_die_are_not_ordered_for_ever():
    s = Scene(spares=0).isolate().catalogue()
    for number in range(10):
        s.tell(m.SpareLost(f"n{number}"))
    assert sum(a.count for a in s.actions if isinstance(a, m.RefillSpare)) == 5
    assert s.phase is LoopPhase.ESCALATED
    reasons = [a.reason for a in s.actions if isinstance(a, m.Escalate)]
    assert reasons == [
        "no spare is left: 1 rank has no worker, and the last 5 spares ended before they were ready"
    ]


def test_a_name_that_ended_never_serves():
    s = Scene(spares=0).isolate().catalogue().tell(m.SpareLost("n1"), m.SpareReady("n1"))
    assert s.said(m.Assign) == []


def test_a_parked_survivor_that_dies_while_a_spare_is_awaited_needs_one_more():
    s = Scene(spares=0).isolate().catalogue().tell(m.WorkerGone("w0"))
    assert s.said(m.RefillSpare) == [m.RefillSpare(1)]
    assert s.said(m.ReadCatalogue) == [
        m.ReadCatalogue()
    ]  # the plan is made again with what is known now
    s.catalogue().tell(m.SpareReady("n1"))
    assert s.said(m.Assign) == []
    s.tell(m.SpareReady("n2"))
    assert s.said(m.Assign)[0].workers == ("n1", "w1", "n2", "w3")


# --- states that do not hold ----------------------------------------------------------------------


def test_wrong_bytes_drop_to_the_next_older_state_in_a_new_generation():
    s = Scene().isolate().catalogue().restored(1, is_intact=False, bad_step=10)
    (trust,) = s.records("state.trust")
    assert trust["body"] == {
        "step": 10,
        "tier": "slot",
        "state": "suspect",
        "reason": "rank 1: re-read bytes differ",
    }
    assert (trust["symptom"], trust["class_"], trust["ranks"]) == ("snapshot_mismatch", "sdc", (1,))
    assert s.said(m.Revoke) == [m.Revoke(2, ("w0", "w1", "w4", "w3"))]
    assert s.said(m.Kill) == []
    s.park("w0", "w1", "w4", "w3").catalogue()
    (assign,) = s.said(m.Assign)
    assert (assign.generation, assign.plan.target_step, assign.plan.mode) == (
        3,
        9,
        m.VerifyMode.PREDECESSOR,
    )
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert s.records("incident.close")[0]["body"]["lost_steps"] == 1


def test_a_broken_predecessor_is_suspect_as_well():
    s = Scene().isolate().catalogue().restored(1, is_intact=False, bad_step=9)
    assert [(t["body"]["step"], t["body"]["state"]) for t in s.records("state.trust")] == [
        (9, "suspect"), (10, "suspect"),
    ]  # fmt: skip
    s.park("w0", "w1", "w4", "w3").catalogue()
    plan = s.said(m.Assign)[0].plan
    assert (plan.target_step, plan.mode, plan.restore_step) == (8, m.VerifyMode.REPEAT, 8)


def test_a_replay_that_differs_drops_the_state_and_never_resumes():
    s = Scene().isolate().catalogue().restored(0, 1, 2, 3)
    s.replayed(0, 1, 2).replayed(3, outcome=m.ReplayOutcome.DIFFERENT)
    assert (s.phase, s.said(m.Resume)) == (LoopPhase.ISOLATING, [])
    assert s.records("state.trust")[0]["symptom"] == "replay_mismatch"
    s.park("w0", "w1", "w4", "w3").catalogue()
    assert s.said(m.Assign)[0].plan.target_step == 9


def test_a_rank_alone_with_its_replay_twice_must_leave():
    s = Scene().isolate()
    for _ in range(2):
        s.catalogue().restored(0, 1, 2, 3)
        s.replayed(0, 1, 2).replayed(3, outcome=m.ReplayOutcome.DIFFERENT)
        killed = s.said(m.Kill)
        s.park("w0", "w1", "w4", "w3")
    assert killed == [m.Kill(("w3",))]


def test_a_difference_that_was_reported_counts_though_the_attempt_ended_otherwise():
    s = Scene(spares=2).isolate().catalogue().restored(0, 1, 2, 3)
    s.replayed(0, outcome=m.ReplayOutcome.DIFFERENT).tell(m.WorkerGone("w3"))
    s.park("w0", "w1", "w4").catalogue()
    assert s.said(m.Assign)[0].plan.target_step == 9


def test_a_death_during_restore_does_not_cost_the_state():
    s = Scene(spares=2).isolate().catalogue().restored(0, 1).tell(m.WorkerGone("w3"))
    assert (s.phase, s.kinds().count("incident.open")) == (LoopPhase.ISOLATING, 1)
    s.park("w0", "w1", "w4").catalogue()
    (assign,) = s.said(m.Assign)
    assert (assign.generation, assign.plan.target_step) == (3, 10)
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    (closed,) = s.records("incident.close")
    assert (closed["body"]["lost_steps"], closed["body"]["attempt_count"], closed["ranks"]) == (
        0,
        2,
        (2, 3),
    )


def test_answers_of_an_older_generation_do_not_count():
    s = Scene(spares=2).isolate().catalogue()
    s.restored(0, 1, 2).tell(m.WorkerGone("w3")).park("w0", "w1", "w4").catalogue()
    s.tell(m.Restored(rank=3, generation=2, is_intact=True)).restored(0, 1, 2)
    assert s.phase is LoopPhase.RESTORING


def test_the_same_state_is_tried_three_times_at_most_when_others_interrupt():
    s = Scene(spares=2).isolate()
    targets = []
    for number in range(4):
        s.catalogue()
        targets.append(s.said(m.Assign)[0].plan.target_step)
        lost = s.state.crew.serving[0]
        s.tell(m.WorkerGone(lost), m.SpareReady(f"n{number}"))
        s.park(*s.state.crew.serving[1:])
    assert targets == [10, 10, 10, 9]


def test_ranks_that_are_silent_in_restore_leave_and_the_state_is_given_up():
    s = Scene(spares=2).isolate().catalogue().restored(0, 1, 2)
    s.tell(m.Tick(), after_us=10 * S)
    assert (s.phase, s.said(m.Kill)) == (LoopPhase.ISOLATING, [m.Kill(("w3",))])
    s.tell(m.WorkerGone("w3")).park("w0", "w1", "w4").catalogue()
    assert s.said(m.Assign)[0].plan.target_step == 9


def test_without_a_state_that_holds_a_person_is_called():
    s = Scene().isolate().catalogue(slot(10, has_predecessor=False))
    s.restored(0, is_intact=False).park("w0", "w1", "w4", "w3").catalogue(
        slot(10, has_predecessor=False)
    )
    assert s.phase is LoopPhase.ESCALATED
    (escalation,) = s.said(m.Escalate)
    assert (escalation.reason, escalation.culprits) == (
        "no state is left that may be restored",
        (2,),
    )
    (closed,) = s.records("incident.close")
    assert closed["body"]["outcome"] == "escalated"
    # The last attempt was isolated and never restored: no time of a recovery that did not happen.
    assert closed["isolate_us"] > 0
    assert not {"recover_us", "verify_us"} & closed.keys()
    assert closed["body"]["unfinished_us"] == {"recover_us": 3 * 1000, "verify_us": 0}


def test_an_incident_that_comes_back_too_often_has_no_phase_to_its_name():
    policy = simple_policy(timeout_us=10 * S, soft_deadline_us=2 * S, recurrence_limit=0)
    s = Scene(policy=policy, spares=2).recover()
    s.tell(m.WorkerGone(s.state.crew.serving[2]))
    (closed,) = s.records("incident.close")
    assert closed["body"]["unfinished_us"] == dict.fromkeys(
        ("diagnose_us", "isolate_us", "recover_us", "verify_us"), 0
    )
    assert closed["detect_us"] == 0
    (escalated,) = s.records("escalate")
    assert escalated["body"]["last_good_step"] == 10  # verified by the recovery before
    assert s.said(m.Escalate)[0].last_good_step == 10
    assert not closed.keys() & closed["body"]["unfinished_us"].keys()
    assert closed["body"]["blast_radius"] == 4


def test_the_attempts_of_one_incident_are_bounded():
    policy = simple_policy(timeout_us=10 * S, attempts_max=3)
    s = Scene(policy=policy).isolate()
    states = [slot(step, has_predecessor=False) for step in range(20)]
    for _ in range(3):
        s.catalogue(*states).restored(0, is_intact=False).park("w0", "w1", "w4", "w3")
    assert s.phase is LoopPhase.ESCALATED


# --- silent corruption ----------------------------------------------------------------------------


def divergence(*culprits: int, step: int = 10):
    return failed(
        Symptom.REPLICA_DIVERGENCE, *culprits, question=Question.CORRECTNESS, first_divergent_step=step
    )  # fmt: skip


def test_a_divergent_replica_leaves_and_the_run_goes_back_below_the_first_divergent_step():
    s = Scene().tell(divergence(2))
    assert (s.phase, s.said(m.Kill)) == (LoopPhase.ISOLATING, [m.Kill(("w2",))])
    s.tell(m.WorkerGone("w2")).park("w0", "w1", "w3").catalogue()
    assert [(t["body"]["step"], t["body"]["state"]) for t in s.records("state.trust")] == [
        (10, "tainted")
    ]
    assert s.state.trust.trust_of(slot(10)) is Trust.TAINTED
    assert s.said(m.Assign)[0].plan.target_step == 9
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    (closed,) = s.records("incident.close")
    assert (closed["class_"], closed["first_divergent_step"], closed["body"]["lost_steps"]) == (
        "sdc",
        10,
        1,
    )


def test_a_number_that_is_not_finite_with_no_culprit_kills_nobody_and_rolls_everybody_back():
    s = Scene().tell(
        failed(Symptom.NONFINITE, question=Question.CORRECTNESS, first_divergent_step=9)
    )
    assert (s.said(m.Kill), s.said(m.Revoke)) == ([], [m.Revoke(1, WORKERS)])
    s.park(*WORKERS).catalogue()
    (assign,) = s.said(m.Assign)
    assert (assign.workers, assign.plan.target_step) == (WORKERS, 8)


def test_a_divergence_heard_of_while_a_plan_waits_for_a_spare_changes_the_plan():
    s = Scene(spares=0).isolate().catalogue().tell(divergence(step=10), m.SpareReady("n1"))
    assert s.said(m.Assign)[0].plan.target_step == 9


def test_a_divergence_heard_of_during_the_replay_stops_it():
    s = Scene().isolate().catalogue().restored(0, 1, 2, 3).tell(divergence(step=10))
    assert s.phase is LoopPhase.ISOLATING
    s.replayed(0, 1, 2, 3)
    assert s.said(m.Resume) == []


def test_states_of_an_abandoned_history_are_not_restored():
    s = Scene().tell(divergence()).park(*WORKERS).catalogue()
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)  # goes on from 9 in generation 2
    s.tell(m.Progress(10, 2)).isolate(rank=1)
    s.catalogue(
        slot(11, generation=1), slot(10, generation=1), slot(9, generation=1), checkpoint(4)
    )
    assert s.said(m.Assign)[0].plan.target_step == 9


def test_noise_is_said_and_does_not_drop_a_state():
    s = Scene().isolate().catalogue().restored(0, 1, 2, 3)
    s.replayed(0, 1, 2).replayed(3, outcome=m.ReplayOutcome.WITHIN_TOLERANCE)
    assert s.said(m.Resume) == [m.Resume(2, 10)]
    assert s.records("verify")[0]["verification"]["result"] == "within_tolerance"


def test_the_age_of_the_restored_state_is_in_the_close():
    states = [slot(10, published_us=99 * S), slot(9)]
    s = Scene().tell(failed(Symptom.PROCESS_EXIT, 2, onset_us=100 * S)).park("w0", "w1", "w3")
    s.catalogue(*states).restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert s.records("incident.close")[0]["checkpoint_age_us"] == 1 * S


# --- the same failure again -----------------------------------------------------------------------


def repeat(s, number: int) -> None:
    generation = s.state.generation
    s.tell(failed(Symptom.EXCEPTION, 2, key="ValueError"), m.Tick(), after_us=S // 5)
    s.tell(*[m.SpareReady(f"n{number}-{i}") for i in range(5)])
    s.tell(*[m.WorkerGone(w) for w in s.state.crew.serving_with(Standing.DOOMED)])
    s.park(*s.state.crew.serving_with(Standing.ACTIVE))
    if s.phase is LoopPhase.RESTORING:
        s.catalogue(*usual_states(generation=generation)).restored(0, 1, 2, 3).replayed(0, 1, 2, 3)


def test_a_failure_that_comes_back_widens_the_domain_and_then_calls_a_person():
    s = Scene()
    killed = []
    for number in range(4):
        before = len([a for a in s.actions if isinstance(a, m.Kill)])
        repeat(s, number)
        kills = [a for a in s.actions if isinstance(a, m.Kill)][before:]
        killed.append(sum(len(a.workers) for a in kills))
    assert killed == [1, 4, 4, 0]
    paths = [fields["body"]["path"] for fields in s.records("incident.close", ever=True)]
    assert paths == ["soft", "hard", "hard", "soft"]
    assert s.phase is LoopPhase.ESCALATED
    assert "came back 3 times" in next(a for a in s.actions if isinstance(a, m.Escalate)).reason


def test_another_failure_does_not_widen_anything():
    s = Scene().recover(2).tell(m.SpareReady("n1"))
    s.tell(failed(Symptom.EXCEPTION, 2, key="ValueError"), m.Tick(), after_us=S // 5)
    assert s.said(m.Kill) == [m.Kill(("w4",))]


def test_a_failure_that_comes_back_late_is_a_new_one():
    s = Scene(policy=simple_policy(timeout_us=10 * S, recurrence_window_us=60 * S))
    repeat(s, 0)
    s.tell(m.Tick(), after_us=61 * S)
    s.tell(failed(Symptom.EXCEPTION, 2, key="ValueError"), m.Tick(), after_us=S // 5)
    assert len(s.said(m.Kill)[0].workers) == 1


# --- stopping and the rest ------------------------------------------------------------------------


def test_a_stop_opens_no_incident_any_more():
    s = Scene().tell(m.StopRequested("SIGTERM"), m.StopRequested("SIGTERM"), m.WorkerGone("w1"))
    assert s.phase is LoopPhase.RUNNING
    assert [a.kind for a in s.last if isinstance(a, m.Record)] == ["annotation"]


def test_a_stop_during_a_recovery_lets_it_finish():
    s = Scene().isolate().tell(m.StopRequested("SIGTERM")).catalogue()
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert s.phase is LoopPhase.RUNNING


def test_after_an_escalation_nothing_happens_any_more():
    s = Scene().isolate().catalogue(slot(10, digest=""))
    assert s.phase is LoopPhase.ESCALATED
    s.tell(
        m.SpareReady("n9"), m.WorkerGone("w0"), failed(Symptom.HANG, 1), m.Tick(), after_us=99 * S
    )
    assert s.last == ()


def test_the_input_state_is_never_changed():
    s = Scene()
    before, text = s.state, repr(s.state)
    s.recover()
    assert repr(before) == text


def test_one_worker_per_rank_is_needed_to_begin():
    with pytest.raises(ValueError, match="needs 3"):
        loop.initial_state(3, None, ["a", "b"], 0, now_us=0)
    with pytest.raises(ValueError, match="one worker per rank"):
        loop.initial_state(2, None, ["a", "a"], 0, now_us=0)


# --- found by mutation: each of these lines could be taken out before ------------------------------


def test_another_copy_of_a_failed_state_is_not_tried_in_the_same_incident():
    s = Scene().isolate().catalogue().restored(1, is_intact=False, bad_step=9)
    s.park("w0", "w1", "w4", "w3")
    s.catalogue(slot(10, generation=None), slot(9, generation=None), slot(7))
    assert s.said(m.Assign)[0].plan.target_step == 7


def test_the_limit_of_a_restore_begins_when_every_rank_has_a_worker():
    s = Scene(spares=0).isolate().catalogue()
    s.tell(m.SpareReady("n1"), after_us=9 * S).tell(m.Tick(), after_us=9 * S)
    assert s.phase is LoopPhase.RESTORING


def test_a_late_bad_answer_changes_a_plan_that_waits_for_a_spare():
    s = Scene().isolate().catalogue().restored(0, 1, 2, 3).tell(m.WorkerGone("w3"))
    s.park("w0", "w1", "w4").catalogue()
    late = m.Replayed(rank=0, generation=2, step=10, outcome=m.ReplayOutcome.DIFFERENT)
    s.tell(late, m.SpareReady("n1"))
    assert s.said(m.Assign)[0].plan.target_step == 9


@pytest.mark.parametrize("steps", [(10, 9), (9, 10)])
def test_of_two_divergent_steps_the_older_one_counts(steps):
    s = Scene().tell(*[divergence(step=step) for step in steps])
    s.park(*WORKERS).catalogue()
    assert s.said(m.Assign)[0].plan.target_step == 8


def test_steps_that_were_given_up_are_not_lost_twice():
    s = Scene().tell(divergence()).park(*WORKERS).catalogue()
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert s.records("incident.close")[0]["body"]["lost_steps"] == 1
    s.recover(2, slot(9), slot(8))
    assert s.records("incident.close")[0]["body"]["lost_steps"] == 0


def test_an_unkillable_word_about_a_process_that_was_not_killed_changes_nothing():
    s = Scene()
    before = s.state
    s.tell(m.WorkerUnkillable("w0"))
    assert (s.state, s.last) == (before, ())


def test_progress_of_an_older_generation_does_not_count():
    s = Scene().recover().tell(m.Progress(99, 1))
    assert s.state.published_step == 10
    assert s.tell(m.Progress(11, 2)).state.published_step == 11
