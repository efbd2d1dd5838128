"""What only one process may have counts; what everybody may open at once does not. Asked in a process of its own."""

import subprocess
import sys

import pytest

CASES = {
    "null, random and terminals": (
        "kept = [open(path, 'rb') for path in ('/dev/null', '/dev/urandom', '/dev/zero')], os.openpty()",
        False,
    ),
    "another character device": (
        "kept = open('/dev/null'); os.major = lambda device: 195",
        True,
    ),
    "a port that is listened on": ("kept = socket.create_server(('127.0.0.1', 0))", True),
    "a port of the group": (
        "kept = socket.create_server(('127.0.0.1', 0)); but = {os.fstat(kept.fileno()).st_ino}",
        False,
    ),
    "the second group of a rank": (
        (
            "from pathlib import Path; from lastgood.training.rank.group import Group; group = Group()\n"
            "for number in (1, 2):\n"
            "    group.leave(); group.join(generation=number, rank=0, world=1, store=Path(str(number)))\n"
            "assert holds_exclusive(), 'gloo listens for the other ranks'; but = group.sockets"
        ),
        False,
    ),
    "a connection": (
        "a = socket.create_server(('', 0)); b = socket.create_connection(a.getsockname()); c = a.accept(); a.close()",
        False,
    ),
    "a file": ("kept = open('file', 'w')", False),
    "a file with flock": ("kept = open('file', 'w'); fcntl.flock(kept, fcntl.LOCK_EX)", True),
    "a file with fcntl": ("kept = open('file', 'w'); fcntl.lockf(kept, fcntl.LOCK_EX)", True),
    "a lock that was let go": (
        "kept = open('file', 'w'); fcntl.flock(kept, fcntl.LOCK_EX); fcntl.flock(kept, fcntl.LOCK_UN)",
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_one_process_may_have_counts(tmp_path, case):
    line, expected = CASES[case]
    code = (
        "import fcntl, os, socket\n"
        "from lastgood.training.rank.exclusive import holds_exclusive\n"
        f"but = ()\n{line}\nprint(holds_exclusive(but=but))"
    )
    asked = [sys.executable, "-c", code]
    found = subprocess.run(
        asked, check=True, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert found.stdout.split() == [str(expected)]
