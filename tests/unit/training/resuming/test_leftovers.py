"""Processes that outlive who answered for them: found by the run's mark and their session, never by a name."""

import os
import subprocess
import sys

import pytest

from lastgood.training.resuming.leftovers import (
    end_leftovers,
    find_leftovers,
    note_session,
    sessions_of,
)
from lastgood.training.rundir import RunDir

# A worker that has started a loader worker and a daemon in a session of its own, and then stops.
WORKER = """
import os, subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
loader = subprocess.Popen(sleep)
daemon = subprocess.Popen(sleep, start_new_session=True)
print(loader.pid, daemon.pid, flush=True)
os.kill(os.getpid(), 19)
"""


@pytest.fixture
def run(tmp_path):
    made = RunDir.create(tmp_path / "run", ranks=1)
    yield made
    for entry in find_leftovers(made.root):
        os.kill(entry.pid, 9)
    made.remove()


def start(run, *, worker="w0", root=None):
    environment = {
        **os.environ,
        "LASTGOOD_RUN_DIR": str(root or run.root),
        "LASTGOOD_WORKER": worker,
    }
    child = subprocess.Popen(
        [sys.executable, "-c", WORKER], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip
    loader, daemon = map(int, child.stdout.readline().split())
    return child, loader, daemon


def test_the_loader_workers_of_a_killed_worker_are_ended_and_nobody_else(run, tmp_path):
    child, loader, daemon = start(run)
    other, others_loader, _ = start(run, root=tmp_path / "another run")
    note_session(run, child.pid)
    note_session(run, other.pid)  # a number that the kernel gave away again
    child.kill()
    child.wait()
    assert {e.pid for e in find_leftovers(run.root)} == {loader, daemon}
    ended = end_leftovers(run.root, sessions=sessions_of(run))
    assert [(e.pid, e.worker) for e in ended] == [(loader, "w0")]
    assert {e.pid for e in find_leftovers(run.root)} == {daemon}
    assert others_loader in {e.pid for e in find_leftovers(tmp_path / "another run")}
    for entry in find_leftovers(tmp_path / "another run"):
        os.kill(entry.pid, 9)
    other.wait()
    child.stdout.close()
    other.stdout.close()


def test_a_worker_of_a_killed_supervisor_is_ended_though_it_is_stopped(run):
    child, loader, _ = start(run)
    note_session(run, child.pid)
    ended = end_leftovers(run.root, sessions=sessions_of(run))
    assert {e.pid for e in ended} == {child.pid, loader}
    assert child.wait(timeout=5) == -9
    child.stdout.close()


def test_a_folder_without_a_list_of_sessions_has_none(run):
    assert sessions_of(run) == frozenset()
    run.sessions.write_text("12\nnoise\n\n34")
    assert sessions_of(run) == {12, 34}
