"""The example in the style of torchtitan, killed from outside: restarted from its own checkpoint, same weights."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from tests.fault.training_drill import assert_ledger_holds, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "torchtitan_style" / "train.py"
STEPS, INTERVAL, KILL_STEP = 120, 20, 45


class Started:
    """The example under `lastgood run` with two ranks."""

    def __init__(self, folder: Path, mode: str) -> None:
        folder.mkdir()
        self.ledger, self._said, self._log = folder / "l.db", folder / "said", folder / "rank0.log"
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--mode", mode, "--nproc-per-node", "2",
            "--run-id", f"titan-{mode}-{os.getpid()}", "--ledger", str(self.ledger), "--log-dir", str(folder),
            str(SCRIPT), "--folder", str(folder / "out"), "--steps", str(STEPS),
            "--checkpoint-interval", str(INTERVAL),
        ]  # fmt: skip
        with self._said.open("w") as said:
            self.process = subprocess.Popen(command, stderr=said, stdout=said)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def pid_of_rank(self, rank: int) -> int:
        found = re.search(rf"rank {rank} pid (\d+)", self._said.read_text())
        assert found is not None
        return int(found[1])

    def finish(self) -> str:
        """Wait for its end; returns the digest of its weights."""
        assert self.process.wait(timeout=150) == 0, self._said.read_text() + self.log
        (weights,) = re.findall(rf"done: step {STEPS} weights (\w+)", self.log)
        return weights


def test_a_killed_rank_restarts_all_from_the_newest_checkpoint_that_holds(tmp_path):
    broken = Started(tmp_path / "broken", "act")
    wait_until(lambda: f"step {KILL_STEP} " in broken.log)
    os.kill(broken.pid_of_rank(1), signal.SIGKILL)
    weights = broken.finish()
    with open_store(broken.ledger, create=False) as store:
        (incident,) = fold_incidents(list(store.events()))
    assert (incident.symptom, incident.ranks) == ("process_exit", (1,))
    (resumed,) = re.findall(r"starts behind step ([1-9]\d*)", broken.log)
    assert int(resumed) >= KILL_STEP // INTERVAL * INTERVAL
    assert int(resumed) % INTERVAL == 0
    assert_ledger_holds(broken.ledger)
    assert weights == Started(tmp_path / "whole", "observe").finish()
