"""Whoever is to end with its supervisor does, also when that one is gone before it could ask for it."""

import os
import subprocess
import sys

import pytest

from lastgood.training.starter import VARIABLE, has_starter, starter_note

# Starts a process and ends: what that one writes comes through the pipe that both have.
STARTS_AND_ENDS = """
import os, subprocess, sys
from lastgood.training.starter import starter_note
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, **starter_note()})
os.kill(os.getpid(), 9)
"""
ASKS_TOO_LATE = """
import os, time
from lastgood.training.starter import VARIABLE, end_with_starter
while os.getppid() == int(os.environ[VARIABLE]):
    time.sleep(0.01)
print("alone", flush=True)
end_with_starter()
print("outlived it", flush=True)
"""
ASKS_IN_TIME = """
import sys, time
from lastgood.training.starter import end_with_starter
end_with_starter()
print("asked", flush=True)
sys.stdin.read()
time.sleep(600)
"""


def test_a_process_that_lost_its_starter_before_it_asked_is_killed():
    command = [sys.executable, "-c", STARTS_AND_ENDS, ASKS_TOO_LATE]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=50)
    assert done.stdout == b"alone\n"


def test_a_process_whose_starter_lives_goes_on_until_that_one_ends():
    waits = STARTS_AND_ENDS.replace("os.kill", "sys.stdin.read(); os.kill")
    starter = subprocess.Popen(
        [sys.executable, "-c", waits, ASKS_IN_TIME], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdout.readline() == b"asked\n"
    starter.stdin.close()
    assert starter.stdout.read() == b"", "the pipe closes when both are gone"
    assert starter.wait() == -9
    starter.stdout.close()


def test_without_a_note_nobody_is_missed(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert has_starter()
    monkeypatch.setenv(VARIABLE, str(os.getppid()))
    assert has_starter()
    monkeypatch.setenv(VARIABLE, starter_note()[VARIABLE])
    assert not has_starter(), "no process is its own parent"


@pytest.mark.parametrize(
    ("module", "mode", "code"),
    [("worker", "", -9), ("checkpoint", "", -9), ("observed", "act", -9), ("observed", "observe", 5)],
)  # fmt: skip
def test_a_rank_looks_for_its_supervisor_before_it_imports_torch(tmp_path, module, mode, code):
    """The import takes seconds, in which a supervisor may end and its next start begin."""
    (tmp_path / "torch.py").write_text("import os\nos._exit(5)")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "LASTGOOD_MODE": mode,
        VARIABLE: "1" if os.getpid() != 1 else "2",  # not the process that starts it
    }
    command = [sys.executable, "-m", f"lastgood.training.rank.{module}", "train.py"]
    done = subprocess.run(command, env=environment, check=False, timeout=50)
    assert done.returncode == code
