"""Deaths at hard moments: no spare left, a start that fails, and errors that come back whatever is done."""

from dataclasses import replace

import pytest

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase, simple_policy
from lastgood.signals.reading import Symptom
from tests.unit.recovery.scene import WORKERS, S, Scene, failed

SETTLE_US = 150_000
INITIAL = m.Candidate(step=0, tier=m.Tier.INITIAL, digest="script", has_predecessor=False)


def policy(**bounds):
    return simple_policy(timeout_us=10 * S, soft_deadline_us=2 * S, **bounds)


def notes(scene, text):
    return [r for r in scene.records("annotation", ever=True) if r["body"]["text"] == text]


def escalations(scene):
    return [a for a in scene.actions if isinstance(a, m.Escalate)]


def raise_on(scene, *ranks, key="KeyError"):
    return scene.tell(failed(Symptom.EXCEPTION, *ranks, key=key))


def everywhere(scene):
    """One rank is seen to raise first, the others a little later, as on a real host."""
    raise_on(scene, 0)
    return raise_on(scene, 0, 1, 2, 3)


def recover_everywhere(scene):
    return (
        everywhere(scene)
        .park(*scene.state.crew.serving)
        .catalogue()
        .restored(0, 1, 2, 3)
        .replayed(0, 1, 2, 3)
    )


# --- what the loop itself does is nobody's fault ---


def test_a_rank_that_a_widened_recovery_killed_is_not_named_for_having_ended():
    s = Scene(spares=4).recover(2)
    s.tell(m.SpareReady("n0"), m.Progress(12, s.state.generation))
    s.tell(failed(Symptom.PROCESS_EXIT, 2))
    (killed,) = [a.workers for a in s.actions if isinstance(a, m.Kill)][-1:]
    innocent = s.state.crew.serving.index(killed[0])
    assert innocent != 2, "the domain was not widened"
    s.tell(failed(Symptom.PROCESS_EXIT, innocent, 2))
    assert notes(s, "another fault in the same incident") == []
    assert s.state.case.culprits == (2,)


# --- no spare left --------------------------------------------------------------------------------


def test_that_a_spare_is_waited_for_is_said_once_with_its_limit():
    s = Scene(spares=0).isolate().catalogue()
    (note,) = notes(s, "waiting for a spare")
    assert note["ranks"] == (2,)
    assert note["body"]["missing"] == note["body"]["launching"] == 1
    assert 9 * S < note["body"]["limit_us"] <= 10 * S
    s.tell(m.Tick(), m.Tick())
    assert len(notes(s, "waiting for a spare")) == 1
    s.tell(m.SpareReady("n0"))
    assert [a.workers for a in s.said(m.Assign)] == [("w0", "w1", "n0", "w3")]


def test_a_spare_that_does_not_come_in_time_escalates_with_the_owner_and_the_limit():
    s = Scene(spares=0).isolate().catalogue().tell(m.Tick(), after_us=11 * S)
    (call,) = escalations(s)
    assert (call.reason, call.owner) == (
        "no spare in time: 1 rank has no worker after 10 s",
        "operator",
    )
    assert [a for a in s.actions if isinstance(a, m.Assign)] == []


def test_two_deaths_with_one_spare_wait_for_the_second_and_serve_all_ranks():
    s = Scene().tell(m.WorkerGone("w1"), m.WorkerGone("w2")).park("w0", "w3").catalogue()
    assert s.said(m.Assign) == []
    (note,) = notes(s, "waiting for a spare")
    assert note["body"]["missing"] == 1
    s.tell(m.SpareReady("n0"))
    assert [a.workers for a in s.said(m.Assign)] == [("w0", "w4", "n0", "w3")]


def test_a_new_incident_tries_spares_again_after_too_many_had_died():
    s = Scene(spares=1)
    s.tell(m.SpareLost("w4"), *[m.SpareLost(f"n{n}") for n in range(9)])
    ordered = sum(a.count for a in s.actions if isinstance(a, m.RefillSpare))
    (note,) = [
        r
        for r in s.records("annotation", ever=True)
        if r["body"]["text"].startswith("no more spares are started: 5 in a row")
    ]
    assert "incident" not in note
    s.isolate().catalogue().tell(m.SpareReady("late"))
    assert sum(a.count for a in s.actions if isinstance(a, m.RefillSpare)) > ordered
    assert [a.workers for a in s.actions if isinstance(a, m.Assign)] == [("w0", "w1", "late", "w3")]


def test_a_parked_spare_that_dies_is_replaced_and_is_no_incident():
    s = Scene().tell(m.WorkerGone("w4"))
    assert [a.count for a in s.said(m.RefillSpare)] == [1]
    assert s.phase is LoopPhase.RUNNING
    assert "incident.open" not in s.kinds()


# --- the start ------------------------------------------------------------------------------------


class Start(Scene):
    """A run of which no state was published yet."""

    def __init__(self, *, spares=1, **bounds):
        super().__init__(spares=spares, policy=policy(**bounds))
        self.state = loop.initial_state(
            4, None, WORKERS, spares, run="r", host="h", now_us=self.now_us, policy=policy(**bounds)
        )
        self.tell(*[m.SpareReady(f"w{4 + n}") for n in range(spares)])

    def die(self, rank):
        serving = self.state.crew.serving
        self.tell(m.WorkerGone(serving[rank]))
        return self.park(*[w for r, w in enumerate(serving) if r != rank]).catalogue(INITIAL)


def test_a_death_in_the_start_begins_again_with_a_spare_and_loses_nothing():
    s = Start().die(1)
    (assign,) = s.said(m.Assign)
    assert assign.workers == ("w0", "w4", "w2", "w3")
    assert (assign.plan.tier, assign.plan.mode) == (m.Tier.INITIAL, m.VerifyMode.BEGIN)
    s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert s.said(m.Resume) == [m.Resume(2, 0)]
    (closed,) = s.records("incident.close")
    assert (closed["body"]["outcome"], closed["body"]["lost_steps"]) == ("recovered", 0)
    assert closed["verification"]["test"] == "begin again: state 0 has one digest on every rank"


def test_a_start_whose_states_differ_between_ranks_is_not_accepted():
    s = Start().die(1).restored(0, 1, 2, 3).replayed(0, 1, 2, 3, outcome=m.ReplayOutcome.DIFFERENT)
    s.park(*s.state.crew.serving).catalogue(INITIAL)
    assert [a for a in s.actions if isinstance(a, m.Resume)] == []
    assert s.phase is LoopPhase.ESCALATED


def test_a_start_that_never_succeeds_ends_after_three_attempts_with_words():
    s = Start(spares=9)
    for rank in (1, 2, 3, 0):
        s.die(rank)
    (call,) = escalations(s)
    assert call.reason == "the run did not get through its start in 3 attempts"


def test_a_silent_rank_in_the_start_is_replaced_and_the_start_is_tried_again():
    s = Start(spares=2).die(1).restored(0, 1, 2).tell(m.Tick(), after_us=11 * S)
    assert [a.workers for a in s.said(m.Kill)] == [("w3",)]
    s.park("w0", "w4", "w2").tell(m.WorkerGone("w3")).catalogue(INITIAL)
    assert [a.workers for a in s.said(m.Assign)] == [("w0", "w4", "w2", "w5")]


# --- errors that come back ------------------------------------------------------------------------


def test_an_exception_waits_a_moment_for_the_other_ranks_to_raise_it_too():
    s = raise_on(Scene(), 2)
    assert (s.phase, s.said(m.Kill)) == (LoopPhase.SUSPECT, [])
    s.tell(m.Tick(), after_us=SETTLE_US)
    assert [a.workers for a in s.said(m.Kill)] == [("w2",)]


def test_an_exception_of_a_single_rank_job_waits_for_nobody():
    s = Scene()
    s.state = loop.initial_state(1, None, ["w0"], 0, run="r", now_us=s.now_us, policy=policy())
    assert [a.workers for a in raise_on(s, 0).said(m.Kill)] == [("w0",)]


def test_an_error_that_every_rank_raises_blames_no_process_and_is_tried_once_more():
    s = recover_everywhere(Scene())
    assert [a for a in s.actions if isinstance(a, m.Kill)] == []
    assert len([a for a in s.actions if isinstance(a, m.Resume)]) == 1
    (note,) = [r for r in s.records("annotation", ever=True) if "every rank" in r["body"]["text"]]
    assert note["body"]["text"].endswith("in the same step: a bug of the script, not of a host")


def test_an_error_that_every_rank_raises_again_stops_the_run_at_once():
    s = everywhere(recover_everywhere(Scene()))
    (call,) = escalations(s)
    assert call.reason.startswith("every rank raised KeyError in the same step")
    assert call.reason.endswith("signature exception/KeyError; the last time: seen")
    (closed,) = s.records("incident.close")
    assert (closed["body"]["outcome"], closed["body"]["signature"]) == (
        "escalated",
        "exception/KeyError",
    )
    assert len([a for a in s.actions if isinstance(a, m.Assign)]) == 1


@pytest.mark.parametrize(("limit", "tries"), [(0, 0), (2, 2)])
def test_the_contract_says_how_often_such_an_error_is_tried(limit, tries):
    s = Scene(policy=policy(every_rank_limit=limit))
    for _ in range(tries):
        recover_everywhere(s)
        assert escalations(s) == []
    assert len(escalations(everywhere(s))) == 1


def test_different_errors_on_all_ranks_are_not_one_bug():
    s = raise_on(Scene(), 0, 1, 2)
    raise_on(s, 0, 1, 2, 3, key="KeyError,OSError").tell(m.Tick(), after_us=SETTLE_US)
    assert [a.workers for a in s.said(m.Kill)] == [WORKERS]


def test_a_killed_rank_among_raising_ones_is_not_a_bug_of_the_script():
    s = raise_on(Scene(), 0, 1, 2).tell(m.WorkerGone("w3")).tell(m.Tick(), after_us=SETTLE_US)
    assert [a.workers for a in s.said(m.Kill)] == [("w0", "w1", "w2")]


def test_an_error_that_moves_from_rank_to_rank_widens_and_then_stops_with_its_signature():
    s = Scene(spares=1)
    widths = []
    for number, rank in enumerate((0, 2, 1, 3)):
        raise_on(s, rank).tell(m.Tick(), after_us=SETTLE_US)
        if s.phase is LoopPhase.ESCALATED:
            break
        doomed = [w for a in s.said(m.Kill) for w in a.workers]
        widths.append(len(doomed))
        s.tell(*[m.SpareReady(f"n{number}{n}") for n in range(4)])
        s.tell(*[m.WorkerGone(w) for w in doomed])
        s.park(*[w for w in s.state.crew.serving if w not in doomed]).catalogue()
        s.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    assert widths == [1, 4, 4]
    (call,) = escalations(s)
    words = "the same failure came back 3 times: exception/KeyError; the last time: seen"
    assert call.reason == words


def test_an_error_in_every_replay_ends_after_the_limit_and_not_after_all_attempts():
    s = Scene(spares=1).isolate().catalogue().restored(0, 1, 2, 3)
    for number in range(9):
        raise_on(s, number % 4).tell(m.Tick(), after_us=SETTLE_US)
        if s.phase is LoopPhase.ESCALATED:
            break
        doomed = [w for a in s.said(m.Kill) for w in a.workers]
        s.tell(*[m.SpareReady(f"n{number}{n}") for n in range(4)])
        s.tell(*[m.WorkerGone(w) for w in doomed])
        s.park(*[w for w in s.state.crew.serving if w not in doomed]).catalogue()
        s.restored(0, 1, 2, 3)
    (call,) = escalations(s)
    words = "the same error came back in 3 recoveries: exception/KeyError; the last time: seen"
    assert call.reason == words
    assert len([a for a in s.actions if isinstance(a, m.Assign)]) == 3


def kills(scene):
    return [a.workers for a in scene.actions if isinstance(a, m.Kill)]


def replay_of_an_error(scene):
    """Every rank raised, all went back, and the state is being replayed."""
    return everywhere(scene).park(*scene.state.crew.serving).catalogue().restored(0, 1, 2, 3)


def test_an_error_of_every_rank_that_comes_back_in_its_replay_kills_nobody_and_stops_the_run():
    s = raise_on(replay_of_an_error(Scene()), 0)
    assert (s.phase, kills(s)) == (LoopPhase.VERIFYING, [])
    raise_on(s, 0, 1, 2, 3)
    (call,) = escalations(s)
    assert call.reason.startswith("every rank raised KeyError in the same step")
    assert call.reason.endswith("signature exception/KeyError; the last time: seen")
    assert call.transition == "verify"
    (closed,) = s.records("incident.close")
    assert closed["body"]["outcome"] == "escalated"
    assert closed["body"]["attempt_count"] == 1
    assert kills(s) == notes(s, "waiting for a spare") == []


@pytest.mark.parametrize("limit", [2, 3])
def test_the_contract_says_how_often_an_error_of_every_replay_is_tried(limit):
    s = replay_of_an_error(Scene(policy=policy(every_rank_limit=limit)))
    for number in range(1, limit):
        assert len([a for a in s.actions if isinstance(a, m.Assign)]) == number
        # They are seen to raise for as long as they have not left.
        raise_on(raise_on(raise_on(s, 1), 0, 1, 2, 3), 0, 1, 2, 3)
        assert s.phase is LoopPhase.ISOLATING
        s.park(*s.state.crew.serving).catalogue().restored(0, 1, 2, 3)
    assert escalations(s) == []
    raise_on(s, 0, 1, 2, 3)
    assert len(escalations(s)) == 1
    assert kills(s) == []


def test_an_error_of_every_replay_of_another_incident_is_tried_once_more_and_names_itself():
    s = Scene().isolate(2).catalogue().restored(0, 1, 2, 3)
    raise_on(raise_on(s, 0), 0, 1, 2, 3)
    assert (s.phase, kills(s)) == (LoopPhase.ISOLATING, [])
    s.park(*s.state.crew.serving).catalogue().restored(0, 1, 2, 3)
    raise_on(s, 0, 1, 2, 3)
    (call,) = escalations(s)
    assert call.reason.endswith("signature exception/KeyError; the last time: seen")
    assert kills(s) == []


def test_an_error_of_one_rank_in_its_replay_waits_and_then_takes_that_rank_only():
    s = raise_on(Scene().isolate(2).catalogue().restored(0, 1, 2, 3), 1)
    s.replayed(0, 2, 3).tell(m.Tick())
    assert (s.phase, kills(s)) == (LoopPhase.VERIFYING, [])
    s.tell(m.Tick(), after_us=SETTLE_US)
    assert (s.phase, kills(s)) == (LoopPhase.ISOLATING, [("w1",)])


def test_a_rank_that_raised_in_its_replay_and_says_that_it_is_equal_is_not_accepted():
    s = raise_on(Scene().isolate(2).catalogue().restored(0, 1, 2, 3), 1).replayed(0, 1, 2, 3)
    assert s.phase is LoopPhase.VERIFYING
    assert [a for a in s.actions if isinstance(a, m.Resume)] == []


def test_two_errors_in_one_replay_are_not_one_bug():
    s = raise_on(Scene().isolate(2).catalogue().restored(0, 1, 2, 3), 0, 1)
    raise_on(s, 0, 1, 2, 3, key="KeyError,OSError")
    assert kills(s) == [("w0", "w1", "w4", "w3")]


def test_a_rank_killed_beside_errors_in_the_replay_ends_the_attempt_at_once():
    s = raise_on(Scene().isolate(2).catalogue().restored(0, 1, 2, 3), 0, 1).tell(m.WorkerGone("w3"))
    assert (s.phase, kills(s)) == (LoopPhase.ISOLATING, [("w0", "w1")])


def test_a_rank_that_ends_of_its_own_error_in_the_replay_is_still_one_of_all():
    s = raise_on(replay_of_an_error(Scene()), 0).tell(m.WorkerGone("w0"))
    assert s.phase is LoopPhase.VERIFYING
    raise_on(s, 0, 1, 2, 3)
    assert len(escalations(s)) == 1
    assert kills(s) == []


# --- names ----------------------------------------------------------------------------------------


def test_incidents_of_a_second_start_go_on_counting():
    s = Scene()
    s.state = replace(s.state, case_count=7)
    (opened,) = s.isolate().records("incident.open", ever=True)
    assert opened["incident"] == "r/incident-8"


def test_an_error_of_every_rank_that_is_seen_once_more_kills_nobody():
    s = everywhere(Scene())
    for ranks in ((0, 1, 2, 3), (2,)):
        raise_on(s, *ranks)
    s.park(*WORKERS)
    raise_on(s, 0, 1, 2, 3)
    assert [a for a in s.actions if isinstance(a, m.Kill)] == []
    assert s.phase is LoopPhase.RESTORING


@pytest.mark.parametrize("moment", ["isolating", "waiting"])
def test_a_second_death_at_the_same_time_is_diagnosed_too_and_in_order(moment):
    s = Scene(spares=0).tell(m.WorkerGone("w1"))
    if moment == "waiting":
        s.park("w0", "w2", "w3").catalogue()
    s.tell(m.WorkerGone("w3")).park("w0", "w2").catalogue()
    s.tell(m.SpareReady("n0"), m.SpareReady("n1")).restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
    kinds = [k for k in s.kinds() if k in {"diagnose", "isolate", "restore.begin", "verify"}]
    assert s.records("diagnose", ever=True)[-1]["body"]["culprits"] == [1, 3]
    assert kinds.index("restore.begin") > len(kinds) - 1 - kinds[::-1].index("isolate")
    assert kinds[::-1].index("diagnose") > kinds[::-1].index("isolate")
    assert s.phase is LoopPhase.RUNNING
