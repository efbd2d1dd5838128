"""The ways out that nobody likes: a notice before the first step, in a recovery, two of them, a terminal that is gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.cli.live import LineView
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.limits import Limits
from lastgood.training.options import RunOptions
from lastgood.training.resuming.leftovers import find_leftovers
from lastgood.training.rundir import RunDir, default_root
from lastgood.training.states.checkpoints import list_checkpoints
from lastgood.training.supervising.session import run_training
from lastgood.training.supervising.supervisor import noticed_signals
from tests.fault.training_drill import JOB, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
REQUEUE, INTERRUPTED = 75, 130

LONG_STEP = """
import time, torch, lastgood
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(2, 4)] * 100)
for batch in run.batches():
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
        if step.number == 4:
            time.sleep(120)
"""


def events_of(folder: Path):
    with open_store(folder / "ledger.db", create=False) as store:
        return list(store.events())


def start(folder: Path, run_id: str, script: Path, *arguments: str) -> subprocess.Popen:
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--quiet", "--nproc-per-node", "1", "--spares", "0",
        "--run-id", run_id, "--ledger", folder / "ledger.db", script, *arguments,
    ]  # fmt: skip
    return subprocess.Popen([str(part) for part in command])


def test_a_notice_before_the_first_step_ends_the_run_at_once_and_leaves_nothing(tmp_path):
    run_id = f"test-{tmp_path.name}-{os.getpid()}"
    root = default_root(run_id)
    child = start(tmp_path, run_id, JOB, "--steps", "5", "--out", str(tmp_path))
    wait_until(lambda: RunDir(root).sessions.exists() or child.poll() is not None)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == REQUEUE
    assert not root.exists()
    assert find_leftovers(root) == []
    ends = [e.body["exit_code"] for e in events_of(tmp_path) if e.kind == "run.end"]
    assert ends == [REQUEUE]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_is_a_notice_unless_nohup_said_otherwise(ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        assert (signal.SIGHUP in noticed_signals()) is not ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_gone_is_no_reason_to_stop(monkeypatch, tmp_path):
    class Gone:
        def write(self, _text):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    view = LineView(tmp_path / "ledger.db")
    view.say("something")
    view.say("something else")


@pytest.mark.nightly
def test_a_second_interrupt_does_not_wait_for_the_step(tmp_path):
    script = tmp_path / "long.py"
    script.write_text(LONG_STEP)
    run_id = f"test-{tmp_path.name}-{os.getpid()}"
    root = default_root(run_id)
    child = start(tmp_path, run_id, script)

    def is_in_the_long_step():
        state = root / "progress.bin"
        return child.poll() is not None or (
            state.exists() and int.from_bytes(state.read_bytes()[:8], "little", signed=True) == 3
        )

    wait_until(is_in_the_long_step)
    child.send_signal(signal.SIGINT)
    wait_until(lambda: any(e.kind == "planned.begin" for e in events_of(tmp_path)), limit_s=30)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=8) == INTERRUPTED
    assert not root.exists()
    assert find_leftovers(root) == []


class NoticeInRecovery:
    """Kills a rank behind a step, and sends the notice once the recovery is in a phase."""

    def __init__(self, phase: LoopPhase) -> None:
        self._phase = phase
        self.has_killed = self.has_noticed = False

    def __call__(self, supervisor) -> None:
        if not self.has_killed and supervisor.page.assessed_step >= 8:
            self.has_killed = True
            os.kill(supervisor.workers[supervisor.serving[1]].pid, signal.SIGKILL)
        elif self.has_killed and not self.has_noticed and supervisor.state.phase is self._phase:
            self.has_noticed = True
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.nightly
@pytest.mark.parametrize("phase", [LoopPhase.RESTORING, LoopPhase.VERIFYING])
def test_a_notice_in_the_middle_of_a_recovery_keeps_the_newest_assessed_state(tmp_path, phase):
    notice = NoticeInRecovery(phase)
    options = RunOptions(
        script=JOB, arguments=("--steps", "400", "--pace-ms", "30", "--out", str(tmp_path)), ranks=2, spares=1,
        run_id=f"test-{tmp_path.name}", ledger=tmp_path / "ledger.db", log_dir=tmp_path / "logs",
        checkpoint_dir=tmp_path / "checkpoints", limits=Limits(step_floor_us=2_000_000, warmup_floor_us=60_000_000),
    )  # fmt: skip
    assert run_training(options, on_turn=notice).exit_code == REQUEUE
    assert notice.has_noticed
    events = events_of(tmp_path)
    (found,) = [i for i in fold_incidents(events) if not i.is_planned]
    assert found.ranks == (1,)
    (kept, *_) = list_checkpoints(tmp_path / "checkpoints", world=2)
    last = max(e.body["last"] for e in events if e.kind == "step")
    assert last - 1 <= kept.step <= last


KILLED_BEHIND_ITS_LOOP = """
import os, signal, torch, torch.distributed as dist, lastgood
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(2, 4)] * 9)
for batch in run.batches(steps=6):
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
if run.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


@pytest.mark.nightly
def test_a_rank_that_is_killed_behind_the_last_step_is_named_and_its_code_is_the_runs(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(KILLED_BEHIND_ITS_LOOP)
    options = RunOptions(
        script=script, arguments=(), ranks=2, spares=0, run_id=f"test-{tmp_path.name}",
        ledger=tmp_path / "ledger.db", log_dir=tmp_path / "logs",
    )  # fmt: skip
    assert run_training(options).exit_code == 128 + signal.SIGKILL
    events = events_of(tmp_path)
    (incident,) = fold_incidents(events)
    assert (incident.ranks, incident.outcome) == ((1,), "ended")
    assert [e.body["exit_code"] for e in events if e.kind == "run.end"] == [128 + signal.SIGKILL]
