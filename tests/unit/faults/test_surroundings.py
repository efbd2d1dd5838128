"""Faults beside the ranks hit whom they name, and nobody else."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys

import pytest

from lastgood.base.clock import SystemClock
from lastgood.faults.live_run import LiveRun
from lastgood.faults.process import NotInjected
from lastgood.faults.spec import BESIDE, Fault, FaultKind, Target, When, find_problems
from lastgood.faults.surroundings import helper_of, inject_beside, supervisor_of

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.fixture
def victim():
    command = [sys.executable, "-c", SLEEP, "lastgood.training.rank.checkpoint"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        child.stdout.readline()  # the kernel shows its arguments only now
        yield child
        child.kill()


def name_supervisor(folder, pid):
    (folder / "life").write_bytes(struct.pack("<7q", 0, 0, 0, 0, 0, 0, pid).ljust(4096, b"\0"))


def fault(kind, **options):
    return Fault(id="f", kind=kind, target=Target(rank=0), when=When(step=1), **options)


def hit(folder, kind, **options):
    return inject_beside(fault(kind, **options), run=LiveRun(folder), clock=SystemClock())


def test_the_supervisor_is_whom_the_page_names(folder, victim):
    name_supervisor(folder, victim.pid)
    assert supervisor_of(folder) == victim.pid
    hit(folder, FaultKind.KILL_SUPERVISOR)
    assert victim.wait(timeout=5) == -signal.SIGKILL


def test_a_ctrl_c_is_one_interrupt_of_the_supervisor(folder, victim):
    name_supervisor(folder, victim.pid)
    hit(folder, FaultKind.INTERRUPT)
    assert victim.wait(timeout=5) in {1, -signal.SIGINT, 130}


def test_a_stopped_supervisor_goes_on_afterwards(folder, victim):
    name_supervisor(folder, victim.pid)
    made = hit(folder, FaultKind.STOP_SUPERVISOR, duration_us=50_000)
    assert SystemClock().monotonic_us() - made.monotonic_us >= 50_000
    with open(f"/proc/{victim.pid}/stat") as stat:
        assert stat.read().rpartition(")")[2].split()[0] != "T"


def test_the_helper_is_the_newest_session_that_is_one(folder, victim):
    (folder / "sessions").write_text(f"1\n{victim.pid}\n{os.getpid()}\n")
    assert helper_of(folder) == victim.pid
    hit(folder, FaultKind.KILL_HELPER)
    assert victim.wait(timeout=5) == -signal.SIGKILL


def test_a_full_disk_ends_with_its_time(folder, tmp_path):
    """The process appends for ever and counts what the kernel refused."""
    code = (
        "import sys, time\n"
        "out = open(sys.argv[1], 'ab', buffering=0)\n"
        "out.write(bytes(20_000)); print('begun', flush=True); refused = 0\n"
        "while True:\n"
        "    try: out.write(bytes(100))\n"
        "    except OSError as error: refused = error.errno\n"
        "    else:\n"
        "        if refused: print(refused, flush=True); break\n"
        "    time.sleep(0.005)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "data"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "begun\n"
        name_supervisor(folder, child.pid)
        hit(folder, FaultKind.FULL_LEDGER, duration_us=100_000)
        assert child.stdout.readline() == "27\n"  # EFBIG


def test_full_memory_gives_ranks_and_spares_nothing_more_than_a_snapshot_has(folder, victim):
    (folder / "slots" / "0").mkdir(parents=True)
    (folder / "slots" / "0" / "state.0").write_bytes(bytes(5_000))
    state = {"generation": 1, "phase": "running", "ranks": {}}
    state["spares"] = [{"worker": "w4", "pid": victim.pid}]
    (folder / "state.json").write_text(json.dumps(state))
    assert hit(folder, FaultKind.FULL_MEMORY).detail == {"bytes_max": 5_000}
    assert resource.prlimit(victim.pid, resource.RLIMIT_FSIZE) == (5_000, 5_000)


@pytest.mark.parametrize("kind", sorted(BESIDE))
def test_whoever_is_not_there_is_not_hit(folder, kind, monkeypatch):
    monkeypatch.setattr("lastgood.faults.surroundings._STORE_WAIT_US", 1_000)
    with pytest.raises(NotInjected):
        hit(folder, kind, duration_us=1)


def test_the_injector_and_its_ancestors_are_never_hit(folder):
    for pid in (os.getpid(), os.getppid(), 1):
        name_supervisor(folder, pid)
        for kind in (FaultKind.KILL_SUPERVISOR, FaultKind.FULL_LEDGER):
            with pytest.raises(NotInjected):
                hit(folder, kind, duration_us=1)


def test_the_meeting_file_of_the_present_generation_vanishes(folder, monkeypatch):
    monkeypatch.setattr("lastgood.faults.surroundings._STORE_WAIT_US", 20_000)
    (folder / "state.json").write_text('{"generation": 2, "phase": "verifying", "ranks": {}}')
    (folder / "store").mkdir()
    for generation in (1, 2):
        (folder / "store" / f"gen{generation}").write_text("addresses")
    hit(folder, FaultKind.REMOVE_STORE)
    assert [path.name for path in (folder / "store").iterdir()] == ["gen1"]


@pytest.mark.parametrize("kind", ["stop_supervisor", "full_ledger", "full_checkpoints"])
def test_what_lasts_a_while_says_how_long(kind):
    problems = find_problems(fault(FaultKind(kind)), where="tape:2")
    assert [p.what for p in problems] == ["duration_us"]
    assert find_problems(fault(FaultKind(kind), duration_us=5), where="tape:2") == []
