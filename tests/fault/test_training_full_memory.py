"""Shared memory of its own, that is small and filled in the middle of a run: what still works, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store
from lastgood.training.drills.play import SCRIPT
from lastgood.training.resuming.life import read_life
from lastgood.training.states.checkpoints import list_checkpoints
from tests.fault.training_drill import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(300)]
RANKS, REFUSED = 2, 3
FULL_AT, GROW_AT = 20, 120
MOUNT = "mount -t tmpfs -o size=16m none /dev/shm"


@pytest.fixture(scope="module", autouse=True)
def _may_mount():
    try_it = ["unshare", "-m", "sh", "-c", MOUNT]
    if os.getuid() != 0 or subprocess.run(try_it, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")


class Job:
    """`lastgood run` with a /dev/shm that nobody else sees."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(RANKS), "--spares", "1",
            "--run-id", "full", "--ledger", folder / "ledger.db", "--checkpoint-dir", folder / "checkpoints",
            "--checkpoint-every", "10min", SCRIPT, "--pace-ms", "40", "--out", folder, *arguments,
        ]  # fmt: skip
        inside = ["unshare", "-m", "sh", "-c", f'{MOUNT} && exec "$@"', "sh"]
        with (folder / "terminal.txt").open("wb") as out:
            self.process = subprocess.Popen([*inside, *map(str, command)], stderr=out)
        self.memory = Path(f"/proc/{self.process.pid}/root/dev/shm")

    @property
    def terminal(self) -> str:
        return (self.folder / "terminal.txt").read_text(errors="replace")

    def wait_for_step(self, step: int) -> None:
        def is_there():
            assert self.process.poll() is None, self.terminal
            sign = read_life(self.memory / "lastgood-full" / "life")
            return sign is not None and sign.assessed_step >= step

        wait_until(is_there)

    def fill(self) -> None:
        with suppress(OSError), (self.memory / "ballast").open("ab", buffering=0) as out:
            while True:
                out.write(bytes(4096))

    def fill_until(self, is_enough) -> None:
        """Take what is let go of as well: a rank that is gone leaves room for the next one."""
        while not is_enough() and self.process.poll() is None:
            self.fill()
            time.sleep(0.002)

    def kill_rank(self, rank: int) -> None:
        state = json.loads((self.memory / "lastgood-full" / "state.json").read_text())
        os.kill(state["ranks"][str(rank)]["pid"], signal.SIGKILL)

    def events(self):
        with read_store(self.folder / "ledger.db") as store:
            return list(store.events())


@pytest.fixture
def start(tmp_path):
    begun = []

    def begin(*arguments):
        begun.append(Job(tmp_path, *arguments))
        return begun[0]

    yield begin
    for job in begun:
        job.process.kill()
        job.process.wait()


def test_a_rank_that_dies_while_it_is_full_is_replaced_and_loses_nothing(start):
    """The spare is there, the snapshots have their size, and the room of the next meeting was taken before."""
    job = start("--steps", "150")
    job.wait_for_step(FULL_AT)
    job.fill()
    job.kill_rank(1)
    job.fill_until(lambda: "a spare cannot be started" in job.terminal)
    assert job.process.wait(timeout=120) == 0, job.terminal
    (incident,) = fold_incidents(job.events())
    assert (incident.ranks, incident.outcome, incident.lost_steps) == ((1,), "recovered", 0)
    assert incident.verification.result == "equal"
    assert "a spare cannot be started: No space left on device" in job.terminal


def test_a_state_that_grows_while_it_is_full_ends_the_run_with_a_checkpoint_of_all_that_was_assessed(start):  # fmt: skip
    job = start("--steps", "400", "--grow-at", str(GROW_AT))
    job.wait_for_step(FULL_AT)
    job.fill()
    assert job.process.wait(timeout=120) == REFUSED, job.terminal
    assert "there is no room for a snapshot: found [Errno 28]" in job.terminal
    assert fold_incidents(job.events()) == []
    steps = [e.body["last"] for e in job.events() if e.kind == "step"]
    (kept,) = list_checkpoints(job.folder / "checkpoints", world=RANKS)
    assert kept.step == max(steps) == GROW_AT - 1
    (end,) = [e.body["exit_code"] for e in job.events() if e.kind == "run.end"]
    assert end == REFUSED
