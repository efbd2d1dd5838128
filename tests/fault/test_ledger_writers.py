"""Many processes make and write one ledger at the same moment, and each gets its event in."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lastgood.ledger.store import read_store
from lastgood.ledger.verify import verify_ledger

pytestmark = pytest.mark.fault

ROUND_COUNT = 60
WRITER_COUNT = 8

# Forks the writers of a round behind one closed pipe and lets them all go at once by closing it.
SCRIPT = """
import os, sys
from lastgood.ledger.event import Event
from lastgood.ledger.store import open_store

folder, round_count, writer_count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(round_count):
    read_end, write_end = os.pipe()
    children = []
    for writer in range(writer_count):
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            try:
                with open_store(f"{folder}/{number}.db") as store:
                    store.append([Event(kind="record", id=f"writer-{writer}")])
            except BaseException as error:
                print(f"round {number}, writer {writer}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    os.close(read_end)
    os.close(write_end)
    for child in children:
        os.waitpid(child, 0)
"""


def test_processes_that_make_one_ledger_at_the_same_moment_all_get_in():
    """In memory, so that the moment is as narrow as it gets: every round is a new file."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        arguments = [folder, str(ROUND_COUNT), str(WRITER_COUNT)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        for number in range(ROUND_COUNT):
            path = Path(folder) / f"{number}.db"
            assert verify_ledger(path).ok
            with read_store(path) as store:
                assert {event.id for event in store.events()} == {
                    f"writer-{writer}" for writer in range(WRITER_COUNT)
                }
