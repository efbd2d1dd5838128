"""Cases in which the easy way is closed: steps that do not repeat, a bug that always comes back, a death in a recovery."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.limits import Limits
from lastgood.training.options import RunOptions
from lastgood.training.supervising.session import run_training
from tests.fault.training_drill import JOB

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
DO_NOT_REQUEUE = 93

NOISY = """
import os, struct, sys, time, torch, lastgood
torch.manual_seed(2)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = list(torch.randn(64, 8, 16, generator=torch.Generator().manual_seed(5)))
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: batches)
for batch in run.batches(steps=40):
    with run.step() as step:
        optimizer.zero_grad()
        # A sum whose order nobody controls, as an atomic addition on a device: another last bit each time.
        noise = struct.unpack("<I", os.urandom(4))[0] / 2**32 * 1e-5
        step.loss = run.model(batch).square().mean() * (1 + noise)
        step.loss.backward()
        optimizer.step()
    time.sleep(0.03)
"""

ALWAYS_RAISES = """
import torch, lastgood
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(2, 4)] * 100)
for batch in run.batches():
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
        if step.number == 5:
            raise KeyError("a bug in the training script")
"""


def options_for(
    folder: Path, script: Path, *arguments: str, spares: int = 1, contract: Path | None = None
):
    return RunOptions(
        script=script, arguments=arguments, ranks=2, spares=spares, run_id=f"test-{folder.name}-{os.getpid()}", ledger=folder / "ledger.db",
        contract=contract, log_dir=folder / "logs", limits=Limits(step_floor_us=1_000_000, warmup_floor_us=60_000_000),
    )  # fmt: skip


def events_of(folder: Path):
    with open_store(folder / "ledger.db", create=False) as store:
        return list(store.events())


class KillOnce:
    """Kills a rank the first time that the loop is in a phase behind a step."""

    def __init__(self, rank: int, *, phase: LoopPhase, step: int = 0) -> None:
        self._rank, self._phase, self._step = rank, phase, step
        self.has_fired = False

    def __call__(self, supervisor) -> None:
        if (
            self.has_fired
            or supervisor.state.phase is not self._phase
            or supervisor.page.assessed_step < self._step
        ):
            return
        self.has_fired = True
        os.kill(supervisor.workers[supervisor.serving[self._rank]].pid, signal.SIGKILL)


def test_steps_that_do_not_repeat_are_verified_within_the_measured_noise(tmp_path):
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    kill = KillOnce(1, phase=LoopPhase.RUNNING, step=8)
    assert run_training(options_for(tmp_path, script), on_turn=kill).exit_code == 0
    events = events_of(tmp_path)
    probes = [e.body["is_bitwise"] for e in events if "is_bitwise" in e.body]
    assert False in probes
    (incident,) = fold_incidents(events)
    assert incident.ranks == (1,)
    assert incident.outcome == "recovered"
    assert incident.lost_steps == 0
    assert incident.verification.result == "within_tolerance"
    assert "state.trust" not in [e.kind for e in events if e.body.get("state") == "suspect"]


@pytest.mark.nightly
def test_a_bug_that_always_comes_back_ends_the_run_and_calls_the_owner(tmp_path):
    script, notice, contract = (
        tmp_path / "bug.py",
        tmp_path / "notice.json",
        tmp_path / "contract.yaml",
    )
    script.write_text(ALWAYS_RAISES)
    command = f"[{json.dumps(sys.executable)}, -c, \"import sys; open('{notice}', 'w').write(sys.stdin.read())\"]"
    from lastgood.contract.starter import starter_text

    text = starter_text()
    assert "notify:" not in text.replace("# notify:", ""), (
        "the starter has a notify: adapt this test"
    )
    contract.write_text(
        text.replace("  recovery:\n", f"  recovery:\n    notify: {{command: {command}}}\n", 1)
    )
    result = run_training(options_for(tmp_path, script, contract=contract))
    assert result.exit_code == DO_NOT_REQUEUE
    told = json.loads(notice.read_text())
    assert "every rank raised KeyError in the same step" in told["reason"]
    assert "exception/KeyError" in told["reason"]
    incidents = fold_incidents(events_of(tmp_path))
    assert {i.symptom for i in incidents} == {"exception"}
    assert [i.outcome for i in incidents][-1] == "escalated"


@pytest.mark.nightly
@pytest.mark.parametrize("phase", [LoopPhase.RESTORING, LoopPhase.VERIFYING])
def test_a_death_inside_a_recovery_is_recovered_in_the_same_incident(tmp_path, phase):
    first = KillOnce(1, phase=LoopPhase.RUNNING, step=8)
    second = KillOnce(0, phase=phase)

    def both(supervisor) -> None:
        first(supervisor)
        if first.has_fired:
            second(supervisor)

    options = options_for(
        tmp_path, JOB, "--steps", "40", "--pace-ms", "40", "--out", str(tmp_path), spares=2
    )
    assert run_training(options, on_turn=both).exit_code == 0
    assert second.has_fired
    (incident,) = fold_incidents(events_of(tmp_path))
    assert incident.outcome == "recovered"
    assert set(incident.ranks) == {0, 1}
    weights = {json.loads(p.read_text())["weights_sha256"] for p in tmp_path.glob("weights-*.json")}
    assert len(weights) == 1
