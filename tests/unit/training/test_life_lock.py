"""The end of a process is heard when its main thread lets go of its lock, before the process is gone."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from lastgood.training.life_lock import LifeLock, code_of_ending, hold_life_lock
from lastgood.training.slot import StatusSlot
from tests.fault.training_drill import wait_until

LIMIT_S = 40
RANK = """
import ctypes, os, signal, sys, threading
from pathlib import Path
from lastgood.training.life_lock import hold_life_lock
if sys.argv[2] == "hold":
    assert hold_life_lock(Path(sys.argv[1]))
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
touched = bytearray(64_000_000)
print("up", flush=True)
exec(sys.stdin.readline())
"""
ENDS = {
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGSEGV": ("ctypes.string_at(0)", -signal.SIGSEGV),
    "abort": ("os.abort()", -signal.SIGABRT),
    "_exit": ("os._exit(3)", 3),
    "_exit of another thread": (
        "threading.Thread(target=os._exit, args=(5,)).start(); threading.Event().wait()",
        5,
    ),
    "sys.exit": ("sys.exit(4)", 4),
    "an error": ("raise ValueError", 1),
}


class Rank:
    """A small process that holds its lock, or does not, and does what it is told."""

    def __init__(self, folder, *, holds: bool = True):
        self.page = page = folder / "w1"
        self.slot = StatusSlot(page, create=True)
        self.lock = LifeLock(page)
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(page), "hold" if holds else "never"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"
        self.lock.watch()
        self.pidfd = os.pidfd_open(self.process.pid)

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def is_noticed(self, limit_s: float) -> bool:
        return bool(select.select(self.lock.notices, [], [], limit_s)[0])

    def has_ended(self, limit_s: float) -> bool:
        return bool(select.select([self.pidfd], [], [], limit_s)[0])


@pytest.fixture
def start(tmp_path):
    started: list[Rank] = []

    def make(**how) -> Rank:
        started.append(Rank(tmp_path, **how))
        return started[-1]

    yield make
    for rank in started:
        rank.process.kill()
        rank.process.communicate()
        os.close(rank.pidfd)
        rank.lock.close()
    wait_until(
        lambda: not any(t.name == "life-lock" for t in threading.enumerate()), limit_s=LIMIT_S
    )


@pytest.mark.parametrize("kind", ENDS)
def test_every_end_is_heard_and_the_exit_code_comes_with_the_process(start, kind):
    line, code = ENDS[kind]
    rank = start()
    rank.do(line)
    assert rank.is_noticed(LIMIT_S)
    assert rank.process.wait(LIMIT_S) == code


@pytest.mark.parametrize("kind", ENDS)
def test_the_code_of_an_end_is_known_once_no_thread_has_memory(start, kind):
    line, code = ENDS[kind]
    rank = start()
    assert code_of_ending(rank.process.pid) is None
    rank.do(line)
    assert rank.is_noticed(LIMIT_S)
    while not rank.has_ended(0):
        assert code_of_ending(rank.process.pid) in {None, code}
    assert code_of_ending(rank.process.pid) == code, "nobody has asked for it yet"


def test_a_process_that_ends_well_is_waited_for(start):
    """Its code is what the kernel also says to those who may not know it."""
    rank = start()
    rank.do("sys.exit(0)")
    assert rank.has_ended(LIMIT_S)
    assert code_of_ending(rank.process.pid) is None


@pytest.mark.parametrize(
    "line",
    [
        "os.execv(sys.executable, [sys.executable, '-c', 'import sys; sys.stdin.read()'])",
        "ctypes.CDLL(None).pthread_exit(None)",
    ],
    ids=["another program", "the main thread alone"],
)
def test_a_process_that_let_go_and_lives_has_no_code(start, line):
    rank = start()
    rank.do(line)
    assert rank.is_noticed(LIMIT_S)
    assert code_of_ending(rank.process.pid) is None
    assert rank.process.poll() is None


def test_a_process_that_is_gone_has_none_either(start):
    rank = start()
    rank.process.kill()
    rank.process.wait(LIMIT_S)
    assert code_of_ending(rank.process.pid) is None


def test_a_notice_is_given_until_it_is_heard(start):
    rank = start()
    (notice,) = rank.lock.notices
    rank.process.kill()
    rank.process.wait(LIMIT_S)
    assert rank.is_noticed(LIMIT_S)
    assert rank.lock.notices == (notice,), "also to a supervisor that was busy meanwhile"
    rank.lock.close()
    assert rank.lock.notices == ()
    rank.lock.watch()
    assert rank.lock.notices == ()


def test_a_stopped_process_holds_its_lock(start):
    rank = start()
    rank.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, rank.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert not rank.is_noticed(0.2)


def test_a_worker_without_the_lock_is_seen_by_its_descriptor_as_ever(start):
    rank = start(holds=False)
    assert rank.lock.notices == ()
    rank.process.kill()
    assert rank.has_ended(LIMIT_S)


def test_where_there_is_no_robust_lock_nobody_holds_or_waits(tmp_path, monkeypatch):
    page = tmp_path / "w1"
    StatusSlot(page, create=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    lock = LifeLock(page)
    lock.watch()
    assert not hold_life_lock(page)
    assert lock.notices == ()


def test_the_lock_leaves_what_the_rank_writes_alone(start):
    rank = start()
    assert rank.slot.view().published_step == -1
    assert [rank.slot.report_of(step) for step in range(16)] == [None] * 16
    assert not hold_life_lock(rank.page), "a page has one holder"
