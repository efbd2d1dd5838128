"""A worker's priority is that of all its threads: a spare that serves must not hear its supervisor late."""

import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from lastgood.training.processes import WorkerProcess
from lastgood.training.slot import StatusSlot

TWO_THREADS = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


ASK = (
    "import os; from lastgood.training.processes import can_take_niceness_back as can; print(can())"
)
LOWERS = """
import os
os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1)
"""
AS_NOBODY = "os.setresuid(65534, 65534, 65534);"


def ask(code: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=50
    ).stdout.split()


def test_whether_a_spare_may_be_niced_is_what_the_kernel_does():
    tried = subprocess.run([sys.executable, "-c", LOWERS], capture_output=True, check=False)
    assert ask(ASK) == [str(tried.returncode == 0)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("steps", [0, 19])
def test_a_user_who_could_not_take_it_back_nices_no_spare(steps):
    first, second = ASK.rsplit("; ", 1)
    assert ask(f"{first}; os.nice({steps}); {AS_NOBODY} {second}") == ["False"]


def test_asking_leaves_the_niceness_as_it_was():
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert ask(f"{ASK}; print(os.getpriority(os.PRIO_PROCESS, 0))")[1] == str(own)


@pytest.fixture
def dying(tmp_path):
    """A worker that the kernel takes apart for as long as the test lasts: its process is dead, and nobody says so."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(7)"]) as other:
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        worker = WorkerProcess.__new__(WorkerProcess)
        worker.pid, worker.process = other.pid, SimpleNamespace(poll=lambda: None)
        worker.slot = StatusSlot(tmp_path / "w0", create=True)
        worker._has_let_go = worker._has_ended = False
        worker._early_code = None
        worker._life = MagicMock()
        yield worker


def test_an_end_that_was_noticed_is_known_before_the_process_is_gone(dying):
    assert dying.exit_code is None
    dying.hear_early_notice()
    assert dying.exit_code == 7
    assert not dying.is_gone


def test_a_process_that_holds_what_a_successor_may_need_has_ended_when_it_is_gone(dying):
    dying.slot.note_exclusive(True)
    dying.hear_early_notice()
    assert dying.exit_code is None
    dying.process.poll = lambda: 7
    dying.hear_end()
    assert dying.exit_code == 7
    assert dying.is_gone


def test_a_code_that_was_said_once_is_not_taken_back(dying):
    dying.hear_early_notice()
    assert dying.exit_code == 7
    dying.pid = os.getpid()  # as if its number had been given away
    assert dying.exit_code == 7
    dying.process.poll = lambda: 0  # as subprocess says where nobody may wait for children
    dying.hear_end()
    assert dying.exit_code == 7


def test_the_kernel_is_asked_only_about_a_process_whose_end_was_heard(dying):
    asked = []
    dying.process.poll = lambda: asked.append(dying) or 7
    assert dying.exit_code is None
    assert not asked
    dying.hear_end()
    assert dying.exit_code == 7
    assert asked


def test_every_thread_of_a_worker_gets_the_priority():
    with subprocess.Popen(
        [sys.executable, "-c", TWO_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            worker = WorkerProcess.__new__(WorkerProcess)
            worker.pid = other.pid
            wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
            worker.set_niceness(wanted)
            threads = [int(name) for name in os.listdir(f"/proc/{other.pid}/task")]
            assert len(threads) == 2
            assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {wanted}
        finally:
            other.kill()


def test_what_is_noted_of_a_worker_stands_in_its_own_log(tmp_path):
    worker = WorkerProcess.__new__(WorkerProcess)
    with (tmp_path / "w1.log").open("ab") as worker._log:
        worker.note("rank 1 made no progress")
    assert (tmp_path / "w1.log").read_text() == "lastgood: rank 1 made no progress\n"
    worker._log = None
    worker.note("nobody would read it")
