"""SIGTERM ends a process that waits for ever once nothing moves, and not while a step may still come."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import os, signal, sys, threading
from pathlib import Path
from lastgood.training.attach.hopeless import end_where_no_step_comes
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (folder / "asked").touch())
if "taken" in sys.argv:
    other = os.pipe()[1]
    os.set_blocking(other, False)
    signal.set_wakeup_fd(other)
print(end_where_no_step_comes((folder / "broken").exists), flush=True)
if "fork" in sys.argv:
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        os.write(told, b"1")  # a signal before this would be lost in the fork
        while not (folder / "asked").exists():
            threading.Event().wait(0.01)
        os._exit(0)
    os.read(heard, 1)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    print("ended", flush=True)
threading.Event().wait()
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", JOB, str(folder), *words], stdout=subprocess.PIPE, text=True
    )


def test_a_process_that_waits_for_ever_ends_of_sigterm_once_an_incident_is_open(tmp_path):
    job = start(tmp_path)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "True\n"
        job.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(0.2)
        (tmp_path / "broken").touch()
        assert job.wait(50) == -signal.SIGTERM
    finally:
        job.kill()
        job.communicate()


def test_a_signal_for_a_forked_child_is_none_for_its_parent(tmp_path):
    """Such as a loader process that is ended at the end of an epoch; and an open incident alone ends nothing."""
    job = start(tmp_path, "fork")
    try:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == ["True\n", "ended\n"]
        (tmp_path / "broken").touch()
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(0.2)
    finally:
        job.kill()
        job.communicate()


def test_where_somebody_else_hears_of_signals_nothing_changes(tmp_path):
    job = start(tmp_path, "taken")
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "False\n"
    finally:
        job.kill()
        job.communicate()
