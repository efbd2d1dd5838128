"""The stacks of a process that cannot answer in Python still name the function that it is in."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lastgood.training.watching import stacks
from lastgood.training.watching.stacks import StackDump, path_by_signal

STUCK = """
import faulthandler, sys
from lastgood.faults.spec import FaultKind
from lastgood.faults.stuck import get_stuck
from lastgood.training.watching.stacks import STACK_SIGNAL
out = open(sys.argv[2], "w")
faulthandler.register(STACK_SIGNAL, file=out, all_threads=True)
print("ready", flush=True)
get_stuck(FaultKind(sys.argv[1]))
"""


@pytest.fixture
def stuck(tmp_path):
    started = []

    def start(kind):
        process = subprocess.Popen(
            [sys.executable, "-c", STUCK, kind, str(path_by_signal(tmp_path, "w1"))],
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1)  # until it is really stuck
        channel = SimpleNamespace(send=lambda message: None)
        pidfd = os.pidfd_open(process.pid)
        return SimpleNamespace(name="w1", pid=process.pid, pidfd=pidfd, channel=channel)

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def dump(worker, folder) -> str:
    taken = StackDump(worker, folder)
    until = time.monotonic() + 10
    while not taken.is_done() and time.monotonic() < until:
        time.sleep(0.01)
    os.close(worker.pidfd)
    path = taken.finish()
    return Path(path).read_text() if path else ""


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("spin", "hold_interpreter_lock"),
        ("spin_thread", "hold_interpreter_lock"),
        ("deadlock", "take_lock_twice"),
    ],
)
@pytest.mark.parametrize("has_py_spy", [True, False])
def test_the_stacks_of_a_stuck_process_name_the_function(
    stuck, tmp_path, monkeypatch, kind, function, has_py_spy
):
    if not has_py_spy:
        monkeypatch.setattr(stacks, "find_py_spy", lambda: None)
    elif stacks.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    assert function in dump(stuck(kind), tmp_path)


def test_a_process_in_uninterruptible_sleep_is_read_from_outside(stuck, tmp_path):
    if stacks.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    assert "wait_in_the_kernel" in dump(stuck("kernel_wait"), tmp_path)


def test_a_process_that_has_ended_has_no_stacks(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "find_py_spy", lambda: None)
    process = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(process.pid)
    process.wait()
    channel = SimpleNamespace(send=lambda message: None)
    worker = SimpleNamespace(name="w1", pid=process.pid, pidfd=pidfd, channel=channel)
    assert dump(worker, tmp_path) == ""
