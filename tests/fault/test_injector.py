"""The injector breaks real processes, files and memory, and never anybody else's.

Each test starts real children, writes the run directory that a supervisor would write, and lets the
injector play a tape as a process of its own.
"""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.figures import FigureKind
from lastgood.faults.inject import inject
from lastgood.faults.live_run import HEADER_BYTES, LiveRun, Member
from lastgood.faults.process import (
    Identities,
    NotInjected,
    process_state,
    start_ticks,
    victim,
)
from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape, write_tape

pytestmark = pytest.mark.fault
VALUES = 256
CHILD = f"""
import ctypes, json, os, sys, time
values = (ctypes.c_float * {VALUES})(*([0.0] * 200 + [1.5] * {VALUES - 200}))
listed = [{{"name": "weight", "address": ctypes.addressof(values), "bytes": ctypes.sizeof(values), "dtype": "torch.float32"}}]
with open(sys.argv[1] + ".new", "w") as file:
    json.dump({{"parameters": listed}}, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
for line in sys.stdin:
    print(json.dumps([float(value) for value in values]), flush=True)
"""


class FakeRun:
    """A run directory with real processes behind its ranks."""

    def __init__(self, path: Path, world: int = 2) -> None:
        self.path = path
        (path / "addresses").mkdir()
        self.children: list[subprocess.Popen] = []
        self.generation, self.phase, self.spares_parked = 1, "running", 1
        for rank in range(world):
            self.start(rank)
        self.ranks = {
            str(r): {"worker": f"w{r}", "pid": c.pid} for r, c in enumerate(self.children)
        }
        self.write_state()
        self.progress(*([0] * world))

    def start(self, number: int) -> subprocess.Popen:
        place = self.path / "addresses" / f"w{number}.json"
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        until(place.exists)
        return child

    def write_state(self) -> None:
        document = {"generation": self.generation, "phase": self.phase, "spares_parked": self.spares_parked,
                    "ranks": self.ranks, "slots_dir": "slots"}  # fmt: skip
        (self.path / "state.new").write_text(json.dumps(document))
        os.replace(self.path / "state.new", self.path / "state.json")

    def progress(self, *steps: int) -> None:
        (self.path / "progress.bin").write_bytes(struct.pack(f"<{len(steps)}q", *steps))

    def snapshot(self, rank: int, number: int, *, step: int, data: bytes) -> Path:
        place = self.path / "slots" / str(rank) / f"state.{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({"step": step, "bytes": len(data), "data_offset": HEADER_BYTES}) + "\n"
        place.write_bytes(head.encode().ljust(HEADER_BYTES) + data)
        return place

    def values(self, rank: int) -> list[float]:
        child = self.children[rank]
        child.stdin.write("\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    def play(self, *faults: Fault) -> subprocess.Popen:
        provenance = Provenance(kind=FigureKind.ASSUMED, source="a test")
        write_tape(Tape(faults=faults, seed=1, provenance=provenance), self.path / "tape.jsonl")
        command = [sys.executable, "-m", "lastgood.faults.injector", "--run-dir", str(self.path), "--tape",
                   str(self.path / "tape.jsonl"), "--log", str(self.path / "log.jsonl"), "--limit", "20s"]  # fmt: skip
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def log(self) -> list[dict]:
        place = self.path / "log.jsonl"
        lines = place.read_text().splitlines() if place.exists() else []
        return [json.loads(line) for line in lines[1:]]

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()


def until(is_so, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def run(tmp_path):
    fake = FakeRun(tmp_path)
    yield fake
    fake.close()


def finish(injector: subprocess.Popen) -> int:
    injector.communicate(timeout=30)
    return injector.returncode


def fault(
    kind: FaultKind, rank: int = 1, *, name: str = "f1", when: When | None = None, **options
) -> Fault:
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=when or When(step=0), **options)


def test_sigkill_waits_for_the_step_and_kills_the_process_of_that_rank_alone(run):
    before_us = SystemClock().wall_us()
    injector = run.play(fault(FaultKind.SIGKILL, when=When(step=5)))
    run.progress(9, 4)
    until((run.path / "log.jsonl").exists)
    time.sleep(0.1)
    assert run.children[1].poll() is None
    run.progress(9, 5)
    assert finish(injector) == 0
    assert run.children[1].wait(timeout=5) == -signal.SIGKILL
    assert run.children[0].poll() is None
    (record,) = run.log()
    assert (record["fault"], record["outcome"], record["rank"], record["worker"]) == (
        "f1",
        "fired",
        1,
        "w1",
    )
    assert (record["pid"], record["generation"], record["published_step"]) == (
        run.children[1].pid,
        1,
        5,
    )
    assert before_us <= record["wall_us"] <= SystemClock().wall_us()
    assert record["monotonic_us"] <= SystemClock().monotonic_us()


def test_sigstop_stops_the_process_and_leaves_it_stopped(run):
    assert finish(run.play(fault(FaultKind.SIGSTOP, rank=0))) == 0
    until(lambda: process_state(run.children[0].pid) == "T")
    assert process_state(run.children[1].pid) != "T"


def test_a_slow_process_is_stopped_for_its_share_and_runs_again_afterwards(run):
    pid = run.children[1].pid
    injector = run.play(fault(FaultKind.SLOW, duration_us=600_000, stopped_ratio=0.8))
    until(lambda: process_state(pid) == "T")
    assert finish(injector) == 0
    until(lambda: process_state(pid) == "S")
    assert len(run.values(1)) == VALUES


def test_flip_snapshot_changes_one_bit_of_the_newest_snapshot_of_that_rank(run):
    data = bytes(range(256)) * 8
    old = run.snapshot(1, 0, step=6, data=data)
    new = run.snapshot(1, 1, step=7, data=data)
    other = run.snapshot(0, 1, step=7, data=data)
    assert finish(run.play(fault(FaultKind.FLIP_SNAPSHOT, seed=3))) == 0
    assert old.read_bytes()[HEADER_BYTES:] == data == other.read_bytes()[HEADER_BYTES:]
    changed = new.read_bytes()
    assert changed[:HEADER_BYTES].rstrip().endswith(b"}")
    differ = [i for i in range(len(data)) if changed[HEADER_BYTES + i] != data[i]]
    (record,) = run.log()
    assert differ == [record["detail"]["offset"]]
    assert (changed[HEADER_BYTES + differ[0]] ^ data[differ[0]]).bit_count() == 1
    assert record["detail"]["snapshot_step"] == 7
    assert process_state(run.children[1].pid) != "T"


def test_truncate_snapshot_with_a_kill_leaves_a_cut_file_and_a_dead_rank(run):
    place = run.snapshot(1, 2, step=7, data=b"x" * 4000)
    assert finish(run.play(fault(FaultKind.TRUNCATE_SNAPSHOT, then_sigkill=True))) == 0
    assert HEADER_BYTES <= place.stat().st_size < HEADER_BYTES + 4000
    assert run.children[1].wait(timeout=5) == -signal.SIGKILL
    assert run.log()[0]["detail"]["then_sigkill"] is True


def test_flip_parameter_changes_one_value_in_the_memory_of_one_replica(run):
    clean = run.values(1)
    assert finish(run.play(fault(FaultKind.FLIP_PARAMETER, seed=5))) == 0
    dirty = run.values(1)
    differ = [i for i in range(VALUES) if clean[i] != dirty[i]]
    (record,) = run.log()
    assert differ == [record["detail"]["element"]]
    assert differ[0] >= 200  # zeros are passed over
    bits = [struct.unpack("<I", struct.pack("<f", v[differ[0]]))[0] for v in (clean, dirty)]
    assert bits[0] ^ bits[1] == 1 << record["detail"]["bit"] == 1 << 22
    assert run.values(0) == clean
    assert process_state(run.children[1].pid) != "T"


def second(**when) -> Fault:
    return fault(
        FaultKind.SIGKILL, rank=0, name="second", when=When(step=0, after_recovered=True, **when)
    )


def recover(run: FakeRun, **changes) -> None:
    """Write the next word of the supervisor, and look for long enough that a hasty injector would have fired."""
    for name, value in changes.items():
        setattr(run, name, value)
    run.write_state()
    time.sleep(0.05)


def test_the_second_fault_waits_until_the_run_has_recovered_and_a_spare_is_parked(run):
    injector = run.play(fault(FaultKind.SIGKILL, rank=1, name="first"), second())
    until(lambda: len(run.log()) == 1)
    spare = run.start(2)
    recover(run)  # the supervisor has not noticed yet: still running in the old generation
    assert run.children[0].poll() is None
    run.ranks["1"] = {"worker": "w2", "pid": spare.pid}
    recover(run, phase="restoring", generation=2)
    assert run.children[0].poll() is None
    recover(run, phase="running", spares_parked=0)
    assert run.children[0].poll() is None
    recover(run, spares_parked=1)
    assert finish(injector) == 0
    assert run.children[0].wait(timeout=5) == -signal.SIGKILL
    assert spare.poll() is None
    assert [record["fault"] for record in run.log()] == ["first", "second"]


def test_the_second_fault_lets_the_run_settle_for_the_steps_it_was_told(run):
    injector = run.play(fault(FaultKind.SIGKILL, rank=1, name="first"), second(settle_steps=2))
    until(lambda: len(run.log()) == 1)
    run.ranks.pop("1")
    recover(run, generation=2)
    run.progress(1, 1)
    recover(run)
    assert run.children[0].poll() is None
    run.progress(2, 2)
    assert finish(injector) == 0
    assert run.log()[1]["published_step"] == 2


def test_the_pid_of_the_moment_is_hit_and_not_the_one_of_the_start(run):
    injector = run.play(fault(FaultKind.SIGKILL, when=When(step=5)))
    until((run.path / "log.jsonl").exists)
    successor = run.start(2)
    run.ranks["1"] = {"worker": "w2", "pid": successor.pid}
    run.write_state()
    run.progress(5, 5)
    assert finish(injector) == 0
    assert successor.wait(timeout=5) == -signal.SIGKILL
    assert run.children[1].poll() is None


def test_a_run_that_ends_first_leaves_the_fault_unfired_and_says_so(run):
    injector = run.play(fault(FaultKind.SIGKILL, when=When(step=5)))
    run.phase = "finished"
    run.write_state()
    assert finish(injector) == 3
    assert [(r["outcome"], r["detail"]["reason"]) for r in run.log()] == [
        ("not_fired", "the run is over (finished)")
    ]
    assert run.children[1].poll() is None


def test_a_fault_of_the_step_is_left_to_the_step(run):
    assert finish(run.play(fault(FaultKind.EXCEPTION))) == 0
    assert [record["outcome"] for record in run.log()] == ["left_to_step"]
    assert run.children[1].poll() is None


def test_a_log_that_is_there_is_never_written_over(run):
    (run.path / "log.jsonl").write_text("mine\n")
    assert finish(run.play(fault(FaultKind.SIGKILL))) == 2
    assert (run.path / "log.jsonl").read_text() == "mine\n"
    assert run.children[1].poll() is None


def attempt(run: FakeRun, one: Fault, identities: Identities | None = None) -> str:
    with pytest.raises(NotInjected) as caught:
        inject(
            one, run=LiveRun(run.path), identities=identities or Identities(), clock=SystemClock()
        )
    return str(caught.value)


def test_a_pid_that_was_used_again_is_never_signalled(run):
    """A listed process has ended and its pid belongs to another: the start time tells them apart."""
    identities = Identities()
    pid = run.children[1].pid
    identities._start_ticks[("w1", pid)] = start_ticks(pid) - 1
    assert "is not the process that was listed" in attempt(
        run, fault(FaultKind.SIGKILL), identities
    )
    assert run.children[1].poll() is None


def test_a_pid_that_is_not_in_the_state_is_never_signalled(run):
    run.ranks.pop("1")
    run.write_state()
    assert "nobody serves rank 1" in attempt(run, fault(FaultKind.SIGKILL))
    assert run.children[1].poll() is None


@pytest.mark.parametrize(
    "pid", [0, 1, -1, os.getpid(), os.getppid()], ids=["group", "init", "all", "we", "parent"]
)
def test_init_groups_ourselves_and_our_parents_are_never_signalled(run, pid):
    """Asked of `victim` alone, which signals nobody: a broken check must not stop the test run."""
    run.ranks["1"] = {"worker": "w1", "pid": pid}
    run.write_state()
    with pytest.raises(NotInjected), victim(1, run=LiveRun(run.path), identities=Identities()):
        pass


def test_an_ended_process_is_reported_and_nothing_else_happens(run):
    identities = Identities()
    identities.note({1: Member(worker="w1", pid=run.children[1].pid)})
    run.children[1].kill()
    run.children[1].wait()
    attempt(run, fault(FaultKind.SIGKILL), identities)


def test_memory_that_is_not_writable_is_not_written(run):
    """/proc/PID/mem would write through a read-only mapping; the injector does not."""
    place = run.path / "addresses" / "w1.json"
    maps = Path(f"/proc/{run.children[1].pid}/maps").read_text().splitlines()
    address = int(next(line for line in maps if " r-xp " in line).partition("-")[0], 16)
    listed = [{"name": "code", "address": address, "bytes": 64, "dtype": "torch.float32"}]
    place.write_text(json.dumps({"parameters": listed}))
    assert "not writable memory" in attempt(run, fault(FaultKind.FLIP_PARAMETER))
    assert process_state(run.children[1].pid) != "T"


def test_a_tensor_that_is_not_listed_or_a_bit_outside_it_is_refused_and_the_rank_runs_on(run):
    assert "lists no parameter bias" in attempt(run, fault(FaultKind.FLIP_PARAMETER, tensor="bias"))
    assert "bit 32 is outside" in attempt(run, fault(FaultKind.FLIP_PARAMETER, bit=32))
    assert "no complete snapshot" in attempt(run, fault(FaultKind.FLIP_SNAPSHOT))
    assert process_state(run.children[1].pid) != "T"


def test_a_domain_is_refused_in_a_live_run(run):
    one = Fault(id="d", kind=FaultKind.SIGKILL, target=Target(domain="host:a"), when=When(step=0))
    assert "only a rank" in attempt(run, one)
