"""examples/slurm/train.sbatch: its lines are read, and it is run with stubs of sbatch, srun and scontrol on the path.

Two loopback addresses stand for two hosts, so one machine shows what several hosts do: one spool each.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lastgood.ledger.event import Event
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.spool_jobs import APART_US
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.training.observe.watcher import WAITS_FOR_HOST
from tests.fault.training_drill import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]
HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "slurm" / "train.sbatch"
JOB = HERE / "attached_job.py"
STEPS_AFTER = 40


class Queue:
    """One job in the stub's queue."""

    def __init__(self, folder: Path, *command: str, **extra: str) -> None:
        self.state = folder / "queue"
        self.state.mkdir()
        self.folder = folder
        self.log = (folder / "job.log").open("wb")
        env = {
            **os.environ, **extra, "PATH": f"{HERE / 'stubs'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STUB_STATE": str(self.state), "LASTGOOD_SPOOL": str(folder / "spool"),
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            ["sbatch", str(EXAMPLE), *command], cwd=folder, env=env, stdout=self.log, stderr=subprocess.STDOUT
        )  # fmt: skip

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        for pid in self.tasks().values():
            if self.process.poll() is None and Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def tasks(self) -> dict[str, int]:
        """Newest process of each node."""
        path = self.state / "tasks"
        lines = path.read_text().splitlines() if path.exists() else []
        return {line.split()[0]: int(line.split()[1]) for line in lines}

    @property
    def codes(self) -> list[int]:
        return [int(line) for line in (self.state / "codes").read_text().split()]

    @property
    def said(self) -> str:
        return (self.folder / "job.log").read_text()


def run(folder: Path, *command: str, **extra: str) -> Queue:
    with Queue(folder, *command, **extra) as queue:
        queue.process.wait(timeout=100)
    return queue


def test_the_lines_for_sbatch_ask_for_what_the_page_says(tmp_path):
    queue = run(tmp_path, "true")
    asked = json.loads((queue.state / "asked.json").read_text())
    assert asked["signal"] == "B:USR1@120"
    assert asked["ntasks-per-node"] == "1"
    assert asked["open-mode"] == "append"
    assert "requeue" in asked
    assert queue.codes == [0]


@pytest.mark.parametrize(("code", "starts"), [(0, 1), (93, 1), (1, 1), (75, 4), (137, 4)])
def test_the_code_decides_whether_the_job_is_requeued(tmp_path, code, starts):
    queue = run(tmp_path, "sh", "-c", f"exit {code}")
    assert queue.codes == [code] * starts


def test_requeues_are_bounded(tmp_path):
    queue = run(tmp_path, "sh", "-c", "exit 75", STUB_RESTARTS="20")
    assert queue.codes == [75]
    assert "not requeued, it was started again 20 times already" in queue.said


def test_a_host_in_the_exclude_list_gets_no_task_and_is_not_the_master(tmp_path):
    (tmp_path / "exclude.txt").write_text("127.0.0.2\n")
    queue = run(tmp_path, "sh", "-c", "echo master $MASTER_ADDR")
    assert list(queue.tasks()) == ["127.0.0.3", "127.0.0.4"]
    assert "master 127.0.0.3" in queue.said


class Seen:
    """A stop that ends by itself, a notice, a requeue, and the end: read from the spools of both hosts.

    The first attempt would train for ever, so however slow the machine is, it is still there when it is asked to stop.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spool = folder / "spool"
        command = (
            sys.executable, str(JOB), "--steps-after-resume", str(STEPS_AFTER), "--snapshot-every", "10",
            "--snapshot-dir", str(folder / "kept"),
        )  # fmt: skip
        with Queue(folder, *command, STUB_JOB_ID=str(free_job_id())) as queue:
            self._wait(queue, lambda: '"kind":"step"' in text_of(spool / "127.0.0.2"))
            second = queue.tasks()["127.0.0.3"]
            os.kill(second, signal.SIGSTOP)
            self._wait(queue, lambda: '"kind":"diagnose"' in text_of(spool / "127.0.0.3"))
            self._wait(queue, lambda: WAITS_FOR_HOST in text_of(spool / "127.0.0.2"))
            os.kill(second, signal.SIGCONT)
            self._wait(queue, lambda: '"kind":"incident.close"' in text_of(spool / "127.0.0.3"))
            os.kill(int((queue.state / "batch").read_text()), signal.SIGUSR1)
            queue.process.wait(timeout=120)
            self.codes, self.said = queue.codes, queue.said
        self.stopped = int(self.said.partition("stopped after step ")[2].split()[0])
        wait_until_unwatched(spool)
        self.ledger = folder / "ledger.db"
        self.first = import_files([spool], ledger=self.ledger, format="spool")
        self.second = import_files([spool], ledger=self.ledger, format="spool")
        with open_store(self.ledger, create=False) as store:
            self.events: list[Event] = list(store.events())

    def _wait(self, queue: Queue, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            assert queue.process.poll() is None, queue.said
            return condition()

        wait_until(is_so)


def wait_until_unwatched(spool: Path) -> None:
    """Until no process of the job is left, so that nobody writes into the spool any more."""
    wanted = f"LASTGOOD_SPOOL={spool}".encode()

    def writers() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if wanted in path.read_bytes().split(b"\0"):
                    found.append(path.parent.name)
        return found

    wait_until(lambda: not writers())


def free_job_id() -> int:
    """A job whose port, which the example makes of its number, nobody uses on the first host now."""
    for job in range(5000 + os.getpid(), 10_000_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.2", 20000 + job % 20000))
            return job
    raise AssertionError("no port is free")


def text_of(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.rglob("*.jsonl")))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("slurm"))


def test_a_notice_stops_both_hosts_behind_one_step_and_the_requeued_job_goes_on(seen):
    assert seen.codes == [75, 0]
    assert seen.said.count(f"stopped after step {seen.stopped}\n") == 2
    assert seen.said.count(f"begins after step {seen.stopped}\n") == 2


def test_the_host_whose_rank_stopped_names_it_and_the_other_host_only_waits(seen):
    incidents = [i for i in fold_incidents(seen.events) if not i.is_planned]
    assert [(i.symptom, i.ranks, i.outcome) for i in incidents] == [("hang", (1,), "resolved")]
    assert {d.id for d in incidents[0].domain if d.kind == "host"} == {"127.0.0.3"}
    waiting = [e for e in seen.events if "launches" in e.body]
    assert {e.body["text"] for e in waiting} == {"the ranks of this host wait for another host"}


def test_the_steps_of_the_job_are_told_once_and_in_order(seen):
    for attempt in (1, 101):
        steps = [e.body for e in seen.events if e.kind == "step" and e.attempt == attempt]
        numbers = [n for body in steps for n in range(body["first"], body["last"] + 1)]
        assert numbers == sorted(set(numbers))
    assert numbers[-1] == seen.stopped + STEPS_AFTER


def test_the_planned_stop_and_both_attempts_are_on_record(seen):
    ended = [e.body["exit_code"] for e in seen.events if e.kind == "run.end"]
    assert ended == [75, 0]
    assert [e.kind for e in seen.events if e.kind == "planned.begin"] == ["planned.begin"]
    assert {e.attempt for e in seen.events if e.kind == "attempt.start"} == {1, 101}


def test_the_import_notes_the_offset_of_the_second_clock(seen):
    offsets = [e.body["clock_offset"] for e in seen.events if "clock_offset" in e.body]
    assert {o["host"] for o in offsets} == {"127.0.0.3"}
    assert {o["against"] for o in offsets} == {"127.0.0.2"}
    assert all(abs(o["offset_us"]) < APART_US for o in offsets), "it is one machine with one clock"


def test_importing_twice_changes_nothing(seen):
    assert seen.first.total.events_new == len(seen.events)
    assert seen.second.total.events_new == 0
