"""The example in the style of torchtitan, with a rank killed: restarted from its own checkpoint, same weights."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from tests.fault.training_drill import assert_ledger_holds

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "torchtitan_style" / "train.py"
STEPS, INTERVAL, KILL_STEP = 120, 20, 45


KILLED = '''
import os, runpy, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook

def kill(*_, done=[0]):
    done[0] += 1
    if done[0] == {step} and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

class Abort:
    """Ends the process while Python takes itself apart, as one of gloo's threads does that is late."""

    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, signal.SIGABRT)

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    sys.modules["torn"] = type(sys)("torn")
    sys.modules["torn"].down = Abort()
register_optimizer_step_post_hook(kill)
sys.path.insert(0, {folder!r})
runpy.run_path({script!r}, run_name="__main__")
'''
"""The example as it is, but for a kill in the middle of one step (from outside it might come behind the last step), and
an abort of the same rank behind the end of the second attempt."""


class Started:
    """The example under `lastgood run` with two ranks."""

    def __init__(self, folder: Path, *, script: Path = SCRIPT) -> None:
        folder.mkdir(exist_ok=True)
        self.ledger, self._said, self._log = folder / "l.db", folder / "said", folder / "rank0.log"
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--mode", "act", "--nproc-per-node", "2",
            "--run-id", f"titan-{folder.name}-{os.getpid()}", "--ledger", str(self.ledger), "--log-dir", str(folder),
            str(script), "--folder", str(folder / "out"), "--steps", str(STEPS),
            "--checkpoint-interval", str(INTERVAL),
        ]  # fmt: skip
        with self._said.open("w") as said:
            self.process = subprocess.Popen(command, stderr=said, stdout=said)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def finish(self) -> str:
        """Wait for its end; returns the digest of its weights."""
        assert self.process.wait(timeout=250) == 0, self._said.read_text() + self.log
        (weights,) = re.findall(rf"done: step {STEPS} weights (\w+)", self.log)
        return weights


def test_a_killed_rank_restarts_all_from_the_newest_checkpoint_that_holds(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(step=KILL_STEP, folder=str(SCRIPT.parent), script=str(SCRIPT)))
    broken = Started(tmp_path / "broken", script=script)
    weights = broken.finish()
    with open_store(broken.ledger, create=False) as store:
        (incident,) = fold_incidents(list(store.events()))
    assert (incident.symptom, incident.ranks) == ("process_exit", (1,))
    (resumed,) = re.findall(r"starts behind step ([1-9]\d*)", broken.log)
    assert int(resumed) >= KILL_STEP // INTERVAL * INTERVAL
    assert int(resumed) % INTERVAL == 0
    assert incident.lost_steps == KILL_STEP - 1 - int(resumed)
    assert_ledger_holds(broken.ledger)
    assert weights == Started(tmp_path / "whole").finish()
