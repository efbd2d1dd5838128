"""A rank that the kernel will not let go: its host is marked, a spare takes over, and nobody waits, not even at the end.

Uninterruptible sleep that survives SIGKILL cannot be had at will, but the freezer of control groups (version 1) does
exactly that to a process. Where there is none, the kernel's word about a stopped process is replaced, and the kill of
it left out: the same states in front of the same supervisor.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.limits import Limits
from lastgood.signals.reading import ProcessState
from lastgood.training.options import RunOptions
from lastgood.training.processes import WorkerProcess
from lastgood.training.supervising import effects
from lastgood.training.supervising.session import run_training
from lastgood.training.watching import observing
from tests.fault.training_drill import JOB, assert_ledger_holds, assert_recovered_in_order

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

FREEZER = Path("/sys/fs/cgroup/freezer")
HELD_STEP, LAST_STEP = 8, 60


class Freezer:
    """Real: the process sits in uninterruptible sleep, and SIGKILL does nothing before it is thawed."""

    def __init__(self, name: str) -> None:
        self._group = FREEZER / name
        self._group.mkdir()

    def hold(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")

    def release(self) -> None:
        if not self._group.exists():
            return
        (self._group / "freezer.state").write_text("THAWED")
        while (self._group / "cgroup.procs").read_text().strip():
            os.sched_yield()
        self._group.rmdir()


class Pretended:
    """A stopped process that is never really killed, and of which the kernel is made to say that it is held."""

    def __init__(self, monkeypatch) -> None:
        self._held: set[int] = set()
        self._patch = monkeypatch

    def hold(self, pid: int) -> None:
        self._held.add(pid)
        os.kill(pid, signal.SIGSTOP)
        real, kill = observing.sample_process, WorkerProcess.kill

        def sample(asked):
            found = real(asked)
            held = asked in self._held
            return found._replace(state=ProcessState.UNINTERRUPTIBLE) if held else found

        for module in (observing, effects):
            self._patch.setattr(module, "sample_process", sample)
        self._patch.setattr(
            WorkerProcess, "kill", lambda w: None if w.pid in self._held else kill(w)
        )

    def release(self) -> None:
        for pid in self._held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def can_freeze() -> bool:
    return os.access(FREEZER / "cgroup.procs", os.W_OK)


@pytest.fixture(params=["freezer", "pretended"])
def holder(request, monkeypatch, tmp_path):
    if request.param == "freezer":
        if not can_freeze():
            pytest.skip("no freezer of control groups that may be written")
        made = Freezer(f"lastgood-{tmp_path.name}")
    else:
        made = Pretended(monkeypatch)
    yield made
    made.release()  # also when the test failed


@pytest.mark.nightly
def test_an_unkillable_rank_marks_its_host_and_the_run_goes_on_and_ends(tmp_path, holder):
    held, kept = [], []

    def hold_once(supervisor) -> None:
        is_time = supervisor.page.assessed_step >= HELD_STEP
        if not held and is_time and supervisor.state.phase is LoopPhase.RUNNING:
            worker = supervisor.workers[supervisor.serving[1]]
            held.append(worker.pid)
            kept.append(worker.process)
            holder.hold(worker.pid)

    options = RunOptions(
        script=JOB, arguments=("--steps", str(LAST_STEP), "--pace-ms", "40", "--out", str(tmp_path)),
        ranks=2, spares=1, run_id=f"test-{tmp_path.name}-{os.getpid()}", ledger=tmp_path / "ledger.db",
        limits=Limits(step_floor_us=1_000_000, warmup_floor_us=60_000_000), log_dir=tmp_path / "logs",
    )  # fmt: skip
    assert run_training(options, on_turn=hold_once).exit_code == 0
    os.kill(held[0], 0)  # it is still there, and the run has ended without it
    with open_store(options.ledger, create=False) as store:
        events = list(store.events())
    (incident,) = fold_incidents(events)
    assert (incident.symptom, incident.ranks, incident.lost_steps) == ("hang", (1,), 0)
    assert_recovered_in_order(incident)
    (opened,) = [e for e in events if e.kind == "incident.open"]
    assert "process uninterruptible; held in the kernel" in opened.body["evidence"][0]
    (mark,) = [e for e in events if e.body.get("what") == "host.quarantine"]
    assert (mark.ranks, mark.body["host"], mark.incident) == (
        (1,),
        os.uname().nodename,
        incident.id,
    )
    (given_up,) = [e for e in events if e.body.get("state") == "unkillable"]
    assert given_up.body["pid"] == held[0]
    # One second in which the kernel might have let go, and then nobody waited any more.
    assert 1_000_000 <= incident.isolate_us < 20_000_000
    assert_ledger_holds(options.ledger)
    holder.release()
    assert kept[0].wait(10) == -signal.SIGKILL  # what was sent long ago arrives
