"""A worker's priority is that of all its threads: a spare that serves must not hear its supervisor late."""

import os
import subprocess
import sys

from lastgood.training.processes import WorkerProcess

TWO_THREADS = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


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
