"""A script that is run by something else ends as a plain one does: what it wrote into open files is there."""

import subprocess
import sys

import pytest

from lastgood.training.teardown import torn_down

RUNNER = """
import runpy, sys
from pathlib import Path
from lastgood.training.teardown import Leaving, flush_files
def main():
    leaving = Leaving(Path("w0"))
    try:
        _names = runpy.run_path(sys.argv[1], run_name="__main__")
        leaving.script_ended(0)
    finally:
        flush_files()
main()
"""
OPENED = """
import csv, gzip, threading, time
def function_that_refers_to_all_names(): pass
kept = open("kept", "w")
csv.writer(kept).writerow([1, 2])
raw = open("raw", "wb")
raw.write(b"ab")
"""
ENDS = {
    "its last line": "",
    "sys.exit": "import sys; sys.exit(3)",
    "an error": "raise ValueError('no')",
    "a thread": "threading.Thread(target=lambda: (time.sleep(0.1), kept.write('late'))).start()",
    "an exit handler": "import atexit; atexit.register(lambda: kept.write('late'))",
}

INTERRUPTED = """
import io, os, signal
class Pressed(io.IOBase):
    left = 2
    def flush(self):
        if Pressed.left:
            Pressed.left -= 1
            os.kill(os.getpid(), signal.SIGINT)
kept = Pressed()
"""
BUSY_HANDLER = """
import atexit, os, signal, time
def upload():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
atexit.register(upload)
"""
OWN_HANDLER = """
import signal
signal.signal(signal.SIGINT, lambda *_: print("own", flush=True))
"""


@pytest.mark.parametrize("end", ENDS)
def test_files_that_were_never_closed_hold_what_was_written(tmp_path, end):
    (tmp_path / "script.py").write_text(OPENED + ENDS[end])
    subprocess.run([sys.executable, "-c", RUNNER, "script.py"], cwd=tmp_path, capture_output=True)  # noqa: PLW1510
    late = "late" if end in ("a thread", "an exit handler") else ""
    assert (tmp_path / "kept").read_text() == "1,2\n" + late
    assert (tmp_path / "raw").read_bytes() == b"ab"


def run_as_a_rank_does(folder, script):
    """By `python -m`, as a supervisor starts it."""
    (folder / "runner.py").write_text(RUNNER)
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "runner", "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)  # noqa: PLW1510


def test_a_ctrl_c_behind_the_script_breaks_off_nothing_that_is_done_for_it(tmp_path):
    ended = run_as_a_rank_does(tmp_path, INTERRUPTED)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "w0.teardown").read_text() == "0"


def test_an_exit_handler_of_the_script_is_interrupted_as_ever(tmp_path):
    ended = run_as_a_rank_does(tmp_path, BUSY_HANDLER)
    assert "KeyboardInterrupt" in ended.stderr
    assert "upload" in ended.stderr


def test_a_handler_of_the_scripts_own_stays(tmp_path):
    ended = run_as_a_rank_does(tmp_path, OWN_HANDLER + INTERRUPTED)
    assert (ended.returncode, ended.stdout) == (0, "own\nown\n")


def test_what_a_rank_was_leaving_with_is_not_said_to_count_where_it_does_not():
    told = torn_down(0, "r0a1", ended=-2, counts_as=0, is_counted=False)["text"]
    assert told.endswith("the job's code is what a launcher sees, 130, and not the exit code 0 that it was leaving with")  # fmt: skip
    counted = torn_down(0, "r0a1", ended=-2, counts_as=0)["text"]
    assert counted.endswith("no incident, it counts with the exit code 0 that it was leaving with")
