"""The live folder of a watched job: what an earlier start left in it is cleared or ended."""

import os
import subprocess
import sys

import pytest

from lastgood.training.observe.folder import take_over
from lastgood.training.options import RunOptions
from lastgood.training.resuming.leftovers import note_session
from lastgood.training.resuming.owned import owned_folder
from lastgood.training.rundir import RunDir

# A rank by its command line, with a loader worker that looks like it.
RANK = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def options(tmp_path):
    return RunOptions(
        script=tmp_path / "train.py", ranks=2, run_id="r", ledger=tmp_path / "l.db", root=tmp_path / "run",
    )  # fmt: skip


@pytest.fixture
def begin_rank(options):
    """Start a process that looks like a rank of that folder."""
    started = []

    def begin(worker):
        environment = {
            **os.environ,
            "LASTGOOD_RUN_DIR": str(options.root),
            "LASTGOOD_WORKER": worker,
        }
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK, "lastgood.training.rank.observed"],
            env=environment, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        started.append(rank)
        for _ in range(2):
            rank.stdout.readline()
        return rank

    yield begin
    for rank in started:
        os.killpg(rank.pid, 9)
        rank.wait()
        rank.stdout.close()


def leave_behind(options):
    left = RunDir.create(options.root, ranks=2)
    left.snapshot(0, 7).write_bytes(b"state")
    left.status("r0a1").write_bytes(b"page")
    return left


def test_what_an_earlier_start_left_is_cleared_and_the_folder_stays_owned(options):
    leave_behind(options).release()
    with owned_folder(options) as folder:
        take_over(folder)
        assert not folder.run_dir.status("r0a1").exists()
        assert folder.run_dir.snapshots(0) == []
        assert {"endings", "first"} <= set(os.listdir(options.root))
    assert not options.root.exists()


def test_a_rank_that_was_to_end_with_its_supervisor_is_ended(options, begin_rank):
    left = leave_behind(options)
    rank = begin_rank("r0a1")
    note_session(left, rank.pid)
    left.release()
    with owned_folder(options) as folder:
        take_over(folder)
    assert rank.wait(timeout=20) == -9
