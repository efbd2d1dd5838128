"""A script that is run by something else ends as a plain one does: what it wrote into open files is there."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("end", ENDS)
def test_files_that_were_never_closed_hold_what_was_written(tmp_path, end):
    (tmp_path / "script.py").write_text(OPENED + ENDS[end])
    subprocess.run([sys.executable, "-c", RUNNER, "script.py"], cwd=tmp_path, capture_output=True)  # noqa: PLW1510
    late = "late" if end in ("a thread", "an exit handler") else ""
    assert (tmp_path / "kept").read_text() == "1,2\n" + late
    assert (tmp_path / "raw").read_bytes() == b"ab"
