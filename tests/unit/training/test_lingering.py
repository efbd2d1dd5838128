"""Ranks that do not end behind the end of their script, as real processes; the time that they take is made up."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from lastgood.signals.limits import Limits
from lastgood.training.lingering import GONE_US_MAX, LIMIT_US_MIN, Lingering, RankAtEnd
from lastgood.training.teardown import code_of_end, code_of_leaver

RANK = """
import atexit, multiprocessing.util, os, runpy, sys, threading, time
from pathlib import Path
from lastgood.training.teardown import Leaving
def stay(): time.sleep(600)
if STAYS == "python": atexit.register(stay)
leaving = Leaving(Path(sys.argv[1]))
if STAYS == "handler": atexit.register(stay)
if STAYS == "thread": threading.Thread(target=stay).start()
if STAYS == "process":
    child = multiprocessing.get_context("fork").Process(target=stay)
    child.start()
    Path(sys.argv[1] + ".child").write_text(str(child.pid))
if STAYS != "script": leaving.script_ended(3)
Path(sys.argv[1] + ".up").touch()
if STAYS == "script": stay()
"""
SECTION_US = 600_000_000


class Scene:
    """One rank, and whoever looks at it."""

    def __init__(self, folder, stays, *, may_end=True):
        self.path, self.stays = folder / "w0", stays
        self.told: list[tuple[str, dict]] = []
        self.now_us = 10**9
        self.late = Lingering(
            SimpleNamespace(record=lambda kind, **fields: self.told.append((kind, fields))),  # type: ignore[arg-type]
            limits=Limits(step_floor_us=2_000_000), stacks=folder, may_end=may_end,
        )  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK.replace("STAYS", repr(stays)), self.path]
        )

    def wait(self):
        """Until it is where it stays."""
        wait_until(self.path.with_suffix(".up").exists)
        if self.stays in {"python", "process"}:
            wait_until(lambda: code_of_leaver(self.path) == 3)

    def ranks(self):
        kill = self.process.kill if self.stays != "unkillable" else lambda: None
        return [RankAtEnd(1, "w0", self.process.pid, self.process.poll(), self.path, kill)]

    def pass_time(self, us):
        """Let so much time pass as the looks of a supervisor see it, and the dump that it begins come to its end."""
        until_us = self.now_us + us
        while self.now_us < until_us:
            self.now_us += 500_000
            self.late.look(self.ranks, self.now_us)
            wait_until(self.has_dumped)

    def has_dumped(self):
        if self.late._dump is not None:
            self.late.look(self.ranks, self.now_us)
        return self.late._dump is None


def wait_until(is_so, limit_s=30):
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def scene(tmp_path):
    made = []

    def make(stays, **options):
        made.append(Scene(tmp_path, stays, **options))
        made[0].wait()
        return made[0]

    yield make
    made[0].late.close()
    made[0].process.kill()
    made[0].process.wait()
    with_child = tmp_path / "w0.child"
    if with_child.exists():
        with suppress(ProcessLookupError):
            os.kill(int(with_child.read_text()), signal.SIGKILL)


def test_a_rank_of_which_only_python_is_left_is_named_with_its_stack_and_ended(scene):
    rank = scene("python")
    rank.pass_time(LIMIT_US_MIN - 2_000_000)
    assert rank.told == []
    rank.pass_time(4_000_000)
    ((kind, told),) = rank.told
    assert (kind, told["ranks"]) == ("annotation", (1,))
    assert told["body"]["text"].startswith(
        "behind the end of its script rank 1 (w0) has not ended for 30 s: Python takes itself apart"
    )
    assert any(
        "stay" in frame for group in told["body"]["stack_groups"] for frame in group["stack"]
    )
    assert rank.process.wait(20) == -signal.SIGKILL
    assert code_of_end(rank.process.returncode, rank.path) == 3, "the script's own code counts"


def test_in_observe_mode_it_is_named_once_and_lives(scene):
    rank = scene("python", may_end=False)
    rank.pass_time(3 * LIMIT_US_MIN)
    assert len(rank.told) == 1
    assert "ended now" not in rank.told[0][1]["body"]["text"]
    assert rank.process.poll() is None


@pytest.mark.parametrize("stays", ["handler", "thread", "process"])
def test_work_of_the_script_is_named_late_and_left_to_itself(scene, stays):
    rank = scene(stays)
    rank.pass_time(SECTION_US - 2_000_000)
    assert rank.told == []
    rank.pass_time(4_000_000)
    ((_, told),) = rank.told
    assert "may be at work, so it is left to itself" in told["body"]["text"]
    assert rank.process.poll() is None


def test_one_whose_script_still_runs_is_nobodys_business_here(scene):
    rank = scene("script")
    rank.pass_time(2 * SECTION_US)
    assert rank.told == []


def test_a_pause_of_the_supervisor_is_not_counted(scene):
    rank = scene("python")
    rank.pass_time(1_000_000)
    rank.now_us += 10 * LIMIT_US_MIN
    rank.pass_time(1_000_000)
    assert rank.told == []


def test_one_that_the_kernel_keeps_is_not_waited_for(scene):
    rank = scene("python")
    rank.stays = "unkillable"
    rank.pass_time(LIMIT_US_MIN + 2_000_000)
    assert rank.late.given_up == set()
    rank.pass_time(GONE_US_MAX + 1_000_000)
    assert rank.late.given_up == {"w0"}
    assert [kind for kind, _ in rank.told] == ["annotation", "inventory"]
