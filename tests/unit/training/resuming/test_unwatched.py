"""Ranks of a killed observe start that still work: every later start names them, whatever its mode, and ends none."""

import dataclasses
import os
import subprocess
import sys

import pytest

from lastgood.cli.live import describe
from lastgood.ledger.store import read_store
from lastgood.training.observe import session as observing
from lastgood.training.observe.rank import Attempt, ObservedRank
from lastgood.training.observe.session import run_observed
from lastgood.training.options import RunOptions
from lastgood.training.resuming.unwatched import Unwatched, find_unwatched, unwatched_words
from lastgood.training.rundir import RunDir
from lastgood.training.supervising import session as supervising
from lastgood.training.supervising.session import run_training

RANK = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(120)"
"""A rank by its command line, with a loader worker that looks like it."""


@pytest.fixture
def options(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass")
    return RunOptions(
        script=script, ranks=2, run_id="new", ledger=tmp_path / "l.db", root=tmp_path / "new"
    )


@pytest.fixture
def begin_rank(options, monkeypatch):
    """Start a process that looks like rank 1 of an observed run, with the environment of a true one."""
    started = []
    popen = subprocess.Popen

    def begin(*, is_orphan, **changes):
        changed = dataclasses.replace(options, **changes)
        run = RunDir(changed.root)
        run.status("w").parent.mkdir(parents=True)

        def launch(command, *, env, **_):
            if is_orphan:  # no parent of it has this number
                env = {**env, "LASTGOOD_STARTER": "1"}
            child = popen(
                [sys.executable, "-c", RANK, *command[2:]],
                env=env, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            started.append(child)
            for _ in range(2):
                child.stdout.readline()
            return child

        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", launch)
            attempt = Attempt(number=1, port=1, restarts_max=0, is_acting=False)
            ObservedRank(1, attempt=attempt, options=changed, run=run).close()
        return started[-1]

    yield begin
    for child in started:
        os.killpg(child.pid, 9)
        child.wait()
        child.stdout.close()


@pytest.fixture
def no_supervisors(monkeypatch):
    class Stub:
        serving = ()

        def __init__(self, *_, **__):
            pass

        def run(self):
            return 0

    monkeypatch.setattr(supervising, "Supervisor", Stub)
    monkeypatch.setattr(observing, "ObserveSupervisor", Stub)


def found(options):
    return find_unwatched(options, root=options.root)


def test_a_rank_of_this_runs_folder_is_found_once_and_not_its_loader_workers(options, begin_rank):
    rank = begin_rank(is_orphan=False)
    assert found(options) == (Unwatched("new", 1, rank.pid),)


def test_a_rank_of_another_run_with_this_script_is_found_when_its_supervisor_is_gone(
    options, begin_rank, tmp_path
):
    rank = begin_rank(is_orphan=True, run_id="old", root=tmp_path / "old")
    begin_rank(is_orphan=False, run_id="watched", root=tmp_path / "watched")
    begin_rank(is_orphan=True, run_id="other", root=tmp_path / "o", script=tmp_path / "other.py")
    assert found(options) == (Unwatched("old", 1, rank.pid),)


@pytest.mark.usefixtures("no_supervisors")
@pytest.mark.parametrize("way", ["start", "act", "observe"])
@pytest.mark.parametrize("run_id", ["new", "old"])
def test_every_way_of_running_says_who_still_works_and_what_to_type(
    options, begin_rank, tmp_path, way, run_id
):
    rank = begin_rank(is_orphan=True, run_id=run_id, root=tmp_path / run_id)
    (options.root / "status").mkdir(parents=True, exist_ok=True)
    if way == "start":
        run_training(options)
    else:
        run_observed(options, is_acting=way == "act")
    with read_store(options.ledger) as store:
        (said,) = [describe(e) for e in store.events() if e.body.get("pids")]
    whose = "script (run old)" if run_id == "old" else "run (new)"
    assert said.startswith(f"an earlier start of this {whose} still works, unobserved, beside this")
    assert f"rank 1 (pid {rank.pid})" in said
    assert f"(kill {rank.pid})" in said
    assert rank.poll() is None


def test_each_run_has_a_line_of_its_own():
    ranks = (Unwatched("a", 0, 11), Unwatched("a", 1, 12), Unwatched("b", 0, 13))
    bodies = unwatched_words(ranks, run_id="b")
    assert [(b["run"], b["pids"], b["next"]) for b in bodies] == [
        ("a", [11, 12], "kill 11 12"), ("b", [13], "kill 13"),
    ]  # fmt: skip
    assert unwatched_words((), run_id="b") == []
