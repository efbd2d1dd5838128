"""A supervisor that does not turn: said once after a minute, ended after half an hour of looks."""

import os
import signal
import subprocess

import pytest

from lastgood.training.rank import vigil as module
from lastgood.training.rank.vigil import END_US, LOOK_US, SAY_US, Vigil
from lastgood.training.resuming.life import LifePage

SAY_LOOKS, END_LOOKS = SAY_US // LOOK_US, END_US // LOOK_US


@pytest.fixture
def page(tmp_path):
    made = LifePage(tmp_path / "life")
    made.turn(now_us=5, wall_us=5)
    yield made
    made.close()


@pytest.fixture
def killed(monkeypatch):
    found = []
    monkeypatch.setattr(module.os, "getppid", os.getpid)  # the page says who wrote it: this process
    monkeypatch.setattr(module.os, "kill", lambda *call: found.append(call))
    return found


def look(vigil, count):
    for _ in range(count):
        vigil.look()


def test_it_is_said_once_with_how_to_wake_it(tmp_path, page, killed, capsys):
    vigil = Vigil(tmp_path / "life")
    look(vigil, SAY_LOOKS)  # the first one only learns the turn
    assert capsys.readouterr().err == ""
    look(vigil, 1)
    said = capsys.readouterr().err
    assert f"kill -CONT {os.getpid()}" in said
    assert "has not turned for 1 min" in said
    look(vigil, SAY_LOOKS)
    assert capsys.readouterr().err == ""
    assert killed == []


def test_it_is_killed_after_its_time_and_not_one_look_before(tmp_path, page, killed):
    vigil = Vigil(tmp_path / "life")
    look(vigil, END_LOOKS)
    assert killed == []
    look(vigil, 1)
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_every_turn_begins_the_time_anew(tmp_path, page, killed, capsys):
    vigil = Vigil(tmp_path / "life")
    for turn in range(END_LOOKS):
        look(vigil, SAY_LOOKS - 1)
        page.turn(now_us=10 + turn, wall_us=10)
    assert (killed, capsys.readouterr().err) == ([], "")


def test_a_process_that_is_not_the_parent_is_never_killed(tmp_path, page, killed, monkeypatch):
    """The page may be older than a restart, and its number have been given to somebody else."""
    monkeypatch.setattr(module.os, "getppid", lambda: 1)
    look(Vigil(tmp_path / "life"), END_LOOKS + 5)
    assert killed == []


def test_a_stopped_process_really_ends_of_it():
    with subprocess.Popen(["sleep", "60"]) as other:
        other.send_signal(signal.SIGSTOP)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.os, "getppid", lambda: other.pid)
            Vigil(None)._end(other.pid)
        assert other.wait(20) == -signal.SIGKILL


def test_a_page_that_is_gone_is_no_silence(tmp_path, killed):
    look(Vigil(tmp_path / "nothing"), END_LOOKS + 5)
    assert killed == []
