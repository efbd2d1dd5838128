"""The first generation with a made-up supervisor: an older checkpoint after a bad one, and no wait without a bound."""

from types import SimpleNamespace

import pytest

from lastgood.base.errors import RecoveryError
from lastgood.signals.reading import Raised
from lastgood.training import control
from lastgood.training.checkpoints import seal_mark
from lastgood.training.startup import Startup


class Supervisor:
    def __init__(self, folder):
        self.options = SimpleNamespace(checkpoint_dir=folder, ranks=2, launch_limit_us=1_000_000)
        self.recorder = SimpleNamespace(attempt=1, record=self.record)
        self.events, self.sent, self.raised, self.begun = [], [], {}, []
        self.serving = ("w0", "w1")
        self.time_us = 0
        self.workers = {
            name: SimpleNamespace(
                exit_code=None,
                channel=SimpleNamespace(send=lambda m, name=name: self.sent.append((name, m))),
                slot=SimpleNamespace(generation=0, view=lambda: SimpleNamespace(published_step=-1)),
            )
            for name in self.serving
        }

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


def test_a_checkpoint_of_another_world_is_not_tried(tmp_path):
    checkpoint(tmp_path, 10, world=4)
    supervisor = Supervisor(tmp_path)
    Startup(supervisor)
    assert [m.plan for m in supervisor.sent_of(control.Assignment)] == [None, None]


def raised(*, is_group_error, type_name):
    return Raised(
        type_name=type_name, message="bad batch", is_group_error=is_group_error, step=1, t_us=0
    )


def test_an_exception_before_the_first_step_ends_the_run_and_names_the_rank_that_began_it(tmp_path):
    checkpoint(tmp_path, 10)
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    supervisor.raised[0] = raised(is_group_error=True, type_name="DistNetworkError")
    supervisor.raised[1] = raised(is_group_error=False, type_name="KeyError")
    with pytest.raises(RecoveryError, match=r"rank 1: .*KeyError: bad batch"):
        startup.advance()


def test_an_exception_while_ranks_leave_a_generation_is_only_its_echo(tmp_path):
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    startup.hear(restored(1, 0, intact=False))
    startup.advance()
    supervisor.raised[1] = raised(is_group_error=True, type_name="DistNetworkError")
    startup.advance()
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


def test_a_rank_that_ends_before_the_first_step_is_named(tmp_path):
    supervisor = Supervisor(tmp_path)
    startup = Startup(supervisor)
    supervisor.workers["w1"].exit_code = -9
    with pytest.raises(RecoveryError, match=r"w1.*SIGKILL"):
        startup.advance()
