"""What the kernel says about a process tells stopped, spinning, sleeping and gone apart."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lastgood.signals.reading import ProcessState
from lastgood.training.watching.kernel import sample_process


@pytest.fixture
def child():
    started = []

    def start(*command):
        process = subprocess.Popen(command)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(pid, state, *, limit_s=2.0):
    until = time.monotonic() + limit_s
    while (found := sample_process(pid)).state is not state and time.monotonic() < until:
        time.sleep(0.005)
    return found


def test_a_stopped_child_is_stopped_and_uses_no_time(child):
    process = child("sleep", "30")
    os.kill(process.pid, signal.SIGSTOP)
    first = wait_for(process.pid, ProcessState.STOPPED)
    assert first.state is ProcessState.STOPPED
    time.sleep(0.05)
    assert first.cpu_us == sample_process(process.pid).cpu_us
    os.kill(process.pid, signal.SIGCONT)
    assert wait_for(process.pid, ProcessState.SLEEPING).state is ProcessState.SLEEPING


def test_a_spinning_child_runs_and_uses_time(child):
    process = child("sh", "-c", "while :; do :; done")
    until = time.monotonic() + 5
    while sample_process(process.pid).cpu_us < 50_000 and time.monotonic() < until:
        time.sleep(0.01)
    found = sample_process(process.pid)
    assert found.state is ProcessState.RUNNING
    assert found.cpu_us >= 50_000


def test_a_sleeping_child_sleeps(child):
    assert wait_for(child("sleep", "30").pid, ProcessState.SLEEPING).state is ProcessState.SLEEPING


def test_a_child_that_was_not_yet_collected_is_gone_and_so_is_one_that_was(child):
    process = child("true")
    assert wait_for(process.pid, ProcessState.GONE).state is ProcessState.GONE
    process.wait()
    assert sample_process(process.pid) == (ProcessState.GONE, 0, 0)


def test_a_name_with_blanks_and_parentheses_does_not_shift_the_fields(child, tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to(Path("/bin/sleep").resolve())
    process = child(str(program), "30")
    found = wait_for(process.pid, ProcessState.SLEEPING)
    assert (found.state, found.cpu_us < 1_000_000) == (ProcessState.SLEEPING, True)


def test_a_starved_child_waits_for_a_processor(child):
    """Two children on one processor: each has to wait for the other, and neither hangs."""
    processor = {min(os.sched_getaffinity(0))}
    pair = [child("sh", "-c", "while :; do :; done") for _ in range(2)]
    for process in pair:
        os.sched_setaffinity(process.pid, processor)
    if not Path(f"/proc/{pair[0].pid}/schedstat").exists():
        pytest.skip("this kernel keeps no run-queue times")
    until = time.monotonic() + 5
    while sample_process(pair[0].pid).runqueue_wait_us < 50_000 and time.monotonic() < until:
        time.sleep(0.01)
    assert sample_process(pair[0].pid).runqueue_wait_us >= 50_000
