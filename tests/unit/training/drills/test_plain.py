"""The undisturbed twin: what its processes write stays off the terminal, and is kept."""

import pytest

from lastgood.base.errors import RecoveryError
from lastgood.training.drills.plain import run_plain

WRITES = """
import os, sys, pathlib
sys.stderr.write("Traceback of rank " + os.environ["RANK"] + "\\n")
sys.stderr.flush()
if sys.argv[1:]:
    pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
sys.exit(0 if sys.argv[1:] else 3)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "twin.py"
    path.write_text(WRITES)
    return path


def test_what_the_ranks_write_is_kept_in_a_file_and_not_shown(tmp_path, script, capfd):
    """A rank that is ended in its tear-down makes its peers raise, which alarms whoever reads it."""
    results = [tmp_path / "0", tmp_path / "1"]
    run_plain(script, [str(tmp_path)], ranks=2, results=results, limit_us=30_000_000)
    assert capfd.readouterr() == ("", "")
    kept = (tmp_path / "output.txt").read_text().splitlines()
    assert sorted(kept) == ["Traceback of rank 0", "Traceback of rank 1"]


def test_a_twin_that_fails_says_where_to_read_why(tmp_path, script):
    with pytest.raises(RecoveryError, match=r"exit codes .*3.*read what they wrote: .*output\.txt"):
        run_plain(script, [], ranks=1, results=[tmp_path / "0"], limit_us=30_000_000)
