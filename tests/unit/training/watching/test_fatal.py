"""Fatal errors of real processes: each has its file, what is there is read when it is whole, and nothing is lost."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from lastgood.training.watching.fatal import FatalErrors, hear_fatal_errors

DIES = """
import ctypes, os, sys
from pathlib import Path
from lastgood.training.watching.fatal import keep_fatal_errors
keep_fatal_errors(Path(sys.argv[1]), sys.argv[2])
def strike(): ctypes.string_at(0)
if sys.argv[3] == "segv": strike()
if sys.argv[3] == "abort": os.abort()
child = os.fork()
if not child: strike()
os.waitpid(child, 0)
"""


def die(folder, worker, how, **environment):
    """What a process leaves on its standard error."""
    return subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", DIES, folder, worker, how],
        env={**os.environ, **environment}, capture_output=True, text=True,
    ).stderr  # fmt: skip


@pytest.fixture
def scene(tmp_path):
    told = []
    recorder = SimpleNamespace(record=lambda kind, **fields: told.append((kind, fields)))
    supervisor = SimpleNamespace(
        fatal_errors=FatalErrors(tmp_path), recorder=recorder, serving=("w0", "w1")
    )
    hear_fatal_errors(supervisor)  # type: ignore[arg-type]
    return SimpleNamespace(folder=tmp_path, supervisor=supervisor, told=told)


def test_ranks_that_die_together_leave_the_terminal_alone_and_are_each_heard_of(scene):
    assert die(scene.folder, "w0", "segv") == ""
    assert die(scene.folder, "w1", "abort") == ""
    scene.supervisor.serving = ("w2", "w3")  # others have their ranks by the time that it is read
    hear_fatal_errors(scene.supervisor, is_last=True)
    heard = {fields["ranks"]: fields["body"] for _, fields in scene.told}
    assert {ranks: body["error"] for ranks, body in heard.items()} == {
        (0,): "Segmentation fault",
        (1,): "Aborted",
    }
    assert heard[(0,)]["trace"].splitlines()[1].endswith(" in strike")
    assert "Fatal Python error: Segmentation fault" in heard[(0,)]["text"]


def test_a_process_that_a_rank_forked_is_heard_of_while_the_rank_lives_on_and_once(scene):
    assert die(scene.folder, "w0", "fork") == ""
    hear_fatal_errors(scene.supervisor, is_last=True)
    hear_fatal_errors(scene.supervisor, is_last=True)
    assert [fields["body"]["worker"] for _, fields in scene.told] == ["w0"]


def test_what_is_still_being_written_is_read_when_it_is_whole(scene):
    path, errors = scene.folder / "w1.fatal.txt", FatalErrors(scene.folder)

    def look():
        errors._looked_us = 0
        return [found.error for found in errors.look()]

    path.write_text("Fatal Python error: Bus")
    assert look() == []
    with path.open("a") as out:
        out.write(" error\n")
    assert (look(), look(), look()) == ([], ["Bus error"], [])


@pytest.mark.parametrize("is_told_to", [True, False])
def test_where_there_is_no_file_or_python_was_told_to_write_them_they_go_where_they_went(
    tmp_path, is_told_to
):
    folder = tmp_path if is_told_to else tmp_path / "none"
    environment = {"PYTHONFAULTHANDLER": "1"} if is_told_to else {}
    assert "Fatal Python error: Segmentation fault" in die(folder, "w0", "segv", **environment)


def test_a_look_is_cheap(scene):
    """Five times a second at most: the ranks and their recovery are what the supervisor is there for."""
    scene.supervisor.fatal_errors.look()
    (scene.folder / "w0.fatal.txt").write_text("Fatal Python error: Aborted\n")
    scene.supervisor.fatal_errors._looked_us = time.monotonic_ns() // 1000 + 10**7
    assert [scene.supervisor.fatal_errors.look() for _ in range(3)] == [[], [], []]
