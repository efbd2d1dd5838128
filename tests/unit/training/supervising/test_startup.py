"""The first generation with a made-up supervisor: an older checkpoint after a bad one, and no wait without a bound."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from lastgood.base.errors import RecoveryError, Refused
from lastgood.signals.reading import Assessment, Question, Raised, Symptom, Verdict
from lastgood.training import control
from lastgood.training.resuming.interrupted import Resumption
from lastgood.training.resuming.life import LastSign
from lastgood.training.rundir import RunDir
from lastgood.training.states.catalogue import seal_header
from lastgood.training.states.checkpoints import seal_mark
from lastgood.training.supervising.handover import SETTLE_US
from lastgood.training.supervising.startup import Startup

OK = Assessment(question=Question.LIVENESS, verdict=Verdict.OK)


class Watch:
    """The detector, which sees what the test wants it to see."""

    verdict = OK

    def begin_generation(self, generation, *, next_step):
        pass

    def assess_liveness(self, workers, raised, *, now_us):
        return self.verdict


class Supervisor:
    def __init__(self, folder, *, resumption=None):
        self.options = SimpleNamespace(checkpoint_dir=folder, ranks=2, launch_limit_us=1_000_000)
        self.recorder = SimpleNamespace(
            attempt=1, record=self.record, wall_us=lambda monotonic_us: monotonic_us
        )
        self.events, self.sent, self.raised, self.begun = [], [], {}, []
        self.serving = ("w0", "w1")
        self.resumption = resumption or Resumption()
        self.run_dir = RunDir(folder / "live")
        self.tolerance = None
        self.stripe_count = 1
        self.life = SimpleNamespace(tolerate=lambda _: None)
        self.time_us = 0
        self.workers = {
            name: SimpleNamespace(
                exit_code=None,
                started_us=700,
                channel=SimpleNamespace(send=lambda m, name=name: self.sent.append((name, m))),
                slot=SimpleNamespace(generation=0, view=lambda: SimpleNamespace(published_step=-1)),
            )
            for name in self.serving
        }

        self.watch = Watch()
        self.taken_over, self.told = [], []
        self.take_over_start, self.tell_loop = self.taken_over.append, self.told.append

    def hear_last_words(self):
        pass

    def record(self, kind, **fields):
        self.events.append((kind, fields))

    def now_us(self):
        return self.time_us

    def pids(self):
        return {"0": 100, "1": 101}

    def begin_loop(self, *, generation, step):
        self.begun.append((generation, step))

    def sent_of(self, kind):
        return [message for _, message in self.sent if isinstance(message, kind)]

    def trust(self):
        return [
            (f["body"]["step"], f["body"]["state"]) for k, f in self.events if k == "state.trust"
        ]


def checkpoint(folder, step, *, world=2):
    path = folder / f"step-{step:09d}"
    path.mkdir(parents=True)
    (path / ".metadata").write_bytes(b"")
    (path / "lastgood.json").write_text(
        seal_mark({"step": step, "digest": f"d{step}", "bytes": 1, "world": world})
    )


def restored(generation, rank, *, intact=True):
    return control.StateRestored(
        generation=generation, rank=rank, is_intact=intact, detail="flipped"
    )


def replayed(generation, rank, outcome="equal"):
    return control.StepReplayed(
        generation=generation, rank=rank, step=0, outcome=outcome, digest=""
    )


def park_all(startup, generation):
    for _ in range(2):
        startup.hear(control.Parked(generation=generation))


def test_a_fresh_run_begins_once_every_rank_has_published_state_0(tmp_path):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    assert [m.plan for m in supervisor.sent_of(control.Assignment)] == [None, None]
    assert not startup.advance()
    for worker in supervisor.workers.values():
        worker.slot = SimpleNamespace(generation=1, view=lambda: SimpleNamespace(published_step=0))
    assert startup.advance()
    assert supervisor.begun == [(1, 0)]


def test_the_newest_checkpoint_is_checked_by_all_ranks_before_any_of_them_goes_on(tmp_path):
    for step in (10, 20):
        checkpoint(tmp_path, step)
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    assert {20} == {m.plan.restore_step for m in supervisor.sent_of(control.Assignment)}
    startup.hear(restored(1, 0))
    assert not startup.advance()
    assert supervisor.sent_of(control.Proceed) == []
    startup.hear(restored(1, 1))
    startup.advance()
    startup.advance()
    assert len(supervisor.sent_of(control.Proceed)) == 2
    startup.hear(replayed(1, 0))
    assert not startup.advance()
    startup.hear(replayed(1, 1))
    assert startup.advance()
    assert (supervisor.begun, supervisor.trust()) == ([(1, 20)], [(20, "verified")])
    assert [m.step for m in supervisor.sent_of(control.Resumed)] == [20, 20]
    (verify,) = [f["verification"] for k, f in supervisor.events if k == "verify"]
    assert verify["result"] == "equal"


@pytest.mark.parametrize("way", ["bytes", "replay"])
def test_a_checkpoint_that_does_not_hold_gives_way_to_the_next_older_one(tmp_path, way):
    for step in (10, 20):
        checkpoint(tmp_path, step)
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    startup.hear(restored(1, 0))
    startup.hear(restored(1, 1, intact=way != "bytes"))
    if way == "replay":
        startup.hear(replayed(1, 1, "different"))
    assert not startup.advance()
    assert {1} == {m.generation for m in supervisor.sent_of(control.Revoked)}
    assert supervisor.trust() == [(20, "suspect")]
    startup.hear(control.Parked(generation=1))
    startup.advance()
    assert len(supervisor.sent_of(control.Assignment)) == 2
    startup.hear(control.Parked(generation=1))
    startup.advance()
    assert {(1, 20), (2, 10)} == {
        (m.generation, m.plan.restore_step) for m in supervisor.sent_of(control.Assignment)
    }
    startup.hear(restored(1, 0))  # a late word about the generation that was left changes nothing
    assert startup._restored == {}


def test_when_no_checkpoint_holds_the_run_does_not_quietly_start_over(tmp_path):
    checkpoint(tmp_path, 10)
    startup = Startup(Supervisor(tmp_path))
    startup.hear(restored(1, 0, intact=False))
    startup.advance()
    park_all(startup, 1)
    with pytest.raises(RecoveryError, match="no checkpoint holds"):
        startup.advance()


def test_checkpoints_of_another_world_are_refused_instead_of_starting_over_beside_them(tmp_path):
    checkpoint(tmp_path, 10, world=4)
    with pytest.raises(Refused, match=r"checkpoints of 4 ranks.*needs of 2.*--nproc-per-node 4"):
        Startup(Supervisor(tmp_path))


def test_a_checkpoint_of_another_world_is_not_tried_beside_one_that_fits(tmp_path):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20, world=4)
    supervisor = Supervisor(tmp_path)
    Startup(supervisor)
    assert {10} == {m.plan.restore_step for m in supervisor.sent_of(control.Assignment)}


def test_torn_checkpoints_are_named_and_the_next_older_whole_one_is_taken(tmp_path):
    for step in (5, 10, 20, 30, 40):
        checkpoint(tmp_path, step)
    (tmp_path / "step-000000040" / "lastgood.json").unlink()
    mark = tmp_path / "step-000000030" / "lastgood.json"
    mark.write_text(mark.read_text().replace('"d30"', '"d31"'))
    (tmp_path / "step-000000020" / ".metadata").unlink()
    (tmp_path / "step-000000005" / ".metadata").unlink()  # older than the one that is taken
    (tmp_path / "step-000000050.partial").mkdir()  # never had the name
    supervisor = Supervisor(tmp_path)
    Startup(supervisor)
    assert {10} == {m.plan.restore_step for m in supervisor.sent_of(control.Assignment)}
    assert supervisor.trust() == [(40, "suspect"), (30, "suspect"), (20, "suspect")]
    reasons = [f["body"]["reason"] for k, f in supervisor.events if k == "state.trust"]
    assert [text.partition(" is ")[0] for text in reasons] == [
        "lastgood.json",
        "lastgood.json",
        ".metadata",
    ]


def test_a_folder_with_nothing_but_torn_checkpoints_does_not_quietly_start_over(tmp_path):
    checkpoint(tmp_path, 10)
    (tmp_path / "step-000000010" / ".metadata").unlink()
    with pytest.raises(RecoveryError, match="no checkpoint holds"):
        Startup(Supervisor(tmp_path))


def slots(run_dir, step, *, generation=3, ranks=2):
    """The same published state in the snapshots of every rank."""
    fields = {
        "step": step, "generation": generation, "published_us": 100 + step, "bytes": 1, "digest": f"s{step}",
        "private_digest": "", "data_offset": 0, "blob_offset": 0, "blob_bytes": 0, "blob_digest": "",
        "stripe": 0, "stripes": 1, "stripe_digest": "",
    }  # fmt: skip
    for rank in range(ranks):
        path = run_dir.snapshot(rank, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(seal_header(fields))


def interrupted(*, assessed_step, tolerance=None):
    sign = LastSign(3, assessed_step, 1_000, 2_000, tolerance, 77, None)
    return Resumption(
        last_attempt=3, sign=sign, alive_us=2_000, last_step=assessed_step, incident="r/interruption-1"
    )  # fmt: skip


def test_a_run_whose_supervisor_was_killed_goes_on_from_its_newest_assessed_snapshot(tmp_path):
    """State 9 was published by all ranks and assessed by nobody: it never was part of the run."""
    supervisor = Supervisor(tmp_path, resumption=interrupted(assessed_step=8))
    for step in (7, 8, 9):
        slots(supervisor.run_dir, step)
    checkpoint(tmp_path, 8)
    startup = Startup(supervisor)
    (plan, other) = [m.plan for m in supervisor.sent_of(control.Assignment)]
    assert plan == other
    assert (plan.tier, plan.mode, plan.restore_step, plan.target_step, plan.digest) == (
        "slot", "predecessor", 7, 8, "s8",
    )  # fmt: skip
    assert {4} == {m.generation for m in supervisor.sent_of(control.Assignment)}
    for rank in range(2):
        startup.hear(restored(4, rank))
    startup.advance()
    for rank in range(2):
        startup.hear(replayed(4, rank))
    supervisor.time_us = 5_000
    assert startup.advance()
    assert supervisor.begun == [(4, 8)]
    joined = [f["t_occurred_us"] for k, f in supervisor.events if k == "exposure.join"]
    assert joined == [700, 700], "at risk since the processes of the ranks began"
    belong = [k for k, f in supervisor.events if f.get("incident") == "r/interruption-1"]
    assert belong == ["restore.begin", "restore", "verify", "state.trust", "incident.close"]
    (closed,) = [f for k, f in supervisor.events if k == "incident.close"]
    assert (closed["body"]["outcome"], closed["body"]["lost_steps"]) == ("recovered", 0)
    assert closed["lost_device_us"] == 2 * (5_000 - 2_000)
    assert closed["checkpoint_age_us"] == 1_000 - 108


def test_a_snapshot_whose_predecessor_is_broken_is_verified_by_running_its_next_step_twice(
    tmp_path,
):
    supervisor = Supervisor(tmp_path, resumption=interrupted(assessed_step=8))
    for step in (6, 7, 8):
        slots(supervisor.run_dir, step)
    startup = Startup(supervisor)
    startup.hear(
        control.StateRestored(generation=4, rank=0, is_intact=False, bad_step=7, detail="flipped")
    )
    startup.advance()
    park_all(startup, 4)
    startup.advance()
    plans = [m.plan for m in supervisor.sent_of(control.Assignment)][2:]
    assert {("repeat", 8, 8)} == {(p.mode, p.restore_step, p.target_step) for p in plans}
    startup.hear(restored(5, 0, intact=False))
    startup.advance()
    park_all(startup, 5)
    startup.advance()
    plans = [m.plan for m in supervisor.sent_of(control.Assignment)][4:]
    assert {(6, 6)} == {(p.restore_step, p.target_step) for p in plans}, "7 is known to be broken"


def test_an_interrupted_run_of_which_no_state_is_left_says_that_it_begins_again(tmp_path):
    lost = Resumption(last_attempt=3, alive_us=2_000, last_step=40, incident="r/interruption-1")
    supervisor = Supervisor(tmp_path, resumption=lost)
    startup = Startup(supervisor)
    for worker in supervisor.workers.values():
        worker.slot = SimpleNamespace(generation=4, view=lambda: SimpleNamespace(published_step=0))
    supervisor.time_us = 5_000
    assert startup.advance()
    assert supervisor.begun == [(4, 0)]
    (closed,) = [f for k, f in supervisor.events if k == "incident.close"]
    assert (closed["body"]["outcome"], closed["body"]["lost_steps"]) == ("restarted", 40)
    assert closed["lost_device_us"] == 2 * 3_000


def test_the_noise_that_an_earlier_start_measured_goes_on_to_hold(tmp_path):
    supervisor = Supervisor(tmp_path, resumption=interrupted(assessed_step=8))
    supervisor.tolerance = (0.5).hex()
    slots(supervisor.run_dir, 8)
    Startup(supervisor)
    assert {(0.5).hex()} == {m.tolerance for m in supervisor.sent_of(control.Assignment)}


def raised(*, is_group_error, type_name):
    return Raised(
        type_name=type_name, message="bad batch", is_group_error=is_group_error, step=1, t_us=0
    )


def verdict(symptom, *culprits, key=""):
    return Assessment(
        question=Question.LIVENESS,
        verdict=Verdict.FAILED,
        symptom=symptom,
        culprits=culprits,
        key=key,
    )


@pytest.mark.parametrize("symptom", [Symptom.PROCESS_EXIT, Symptom.HANG])
def test_a_rank_that_dies_or_hangs_before_the_first_step_is_left_to_the_loop(tmp_path, symptom):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    assert not startup.advance()
    supervisor.watch.verdict = verdict(symptom, 1)
    supervisor.time_us = 50_000
    assert startup.advance()
    assert supervisor.taken_over == [1]
    (told,) = supervisor.told
    assert (told.assessment.symptom, told.assessment.culprits) == (symptom, (1,))


def test_the_incident_of_an_interruption_ends_when_another_fault_takes_its_place(tmp_path):
    supervisor = Supervisor(tmp_path)
    supervisor.resumption = replace(supervisor.resumption, incident="r/interruption-1")
    startup = Startup(supervisor)
    supervisor.watch.verdict = verdict(Symptom.PROCESS_EXIT, 1)
    assert startup.advance()
    (closed,) = [f for kind, f in supervisor.events if kind == "incident.close"]
    assert (closed["incident"], closed["body"]["outcome"]) == ("r/interruption-1", "interrupted")


def test_an_error_of_one_rank_waits_for_the_others_and_is_then_left_to_the_loop(tmp_path):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    supervisor.raised[1] = raised(is_group_error=False, type_name="KeyError")
    supervisor.watch.verdict = verdict(Symptom.EXCEPTION, 1, key="KeyError")
    supervisor.time_us = SETTLE_US - 1
    assert not startup.advance()
    supervisor.time_us = SETTLE_US
    assert startup.advance()
    assert supervisor.taken_over == [1]


def test_an_error_that_every_rank_raises_before_the_first_step_ends_the_run_and_is_named(tmp_path):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    for rank in (0, 1):
        supervisor.raised[rank] = raised(is_group_error=False, type_name="KeyError")
    supervisor.watch.verdict = verdict(Symptom.EXCEPTION, 0, 1, key="KeyError")
    with pytest.raises(
        RecoveryError,
        match=r"every rank raised the same error .*KeyError: bad batch.*not of a host",
    ):
        startup.advance()
    assert supervisor.taken_over == []


def test_an_exception_while_ranks_leave_a_generation_is_only_its_echo(tmp_path):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    startup.hear(restored(1, 0, intact=False))
    startup.advance()
    supervisor.raised[1] = raised(is_group_error=True, type_name="DistNetworkError")
    supervisor.watch.verdict = verdict(Symptom.EXCEPTION, 1, key="DistNetworkError")
    startup.advance()
    assert supervisor.taken_over == []
    supervisor.watch.verdict = OK
    park_all(startup, 1)
    startup.advance()
    assert supervisor.raised == {}


def test_ranks_that_never_get_there_end_the_run_after_the_launch_limit(tmp_path):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    supervisor.time_us = 1_000_000
    assert not startup.advance()
    supervisor.time_us += 1
    with pytest.raises(RecoveryError, match="did not reach the first new step"):
        startup.advance()
