"""Everything around the ranks breaks, one thing after another, in one run: nothing of it touches training.

The supervisor is stopped, the checkpoint helper is stopped, killed in the middle of a write and given a full disk, the
ledger's disk is full for a while, a loader worker dies, another one outlives its rank, and the terminal is closed.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.drills.play import SCRIPT
from lastgood.training.resuming.leftovers import find_leftovers
from lastgood.training.resuming.life import read_life
from lastgood.training.rundir import RunDir, default_root
from lastgood.training.slot import StatusSlot
from tests.fault.training_drill import lives, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(300)]
RANKS, REQUEUE = 2, 75
PAUSE_US = 2_500_000
HANG_AFTER = "1s"


class Story:
    """A run in a process of its own, and the hands that break what surrounds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = f"test-{folder.name}-{os.getpid()}"
        self.run_dir = RunDir(default_root(self.run_id))
        self.ledger = folder / "ledger.db"
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(RANKS), "--spares", "2",
            "--run-id", self.run_id, "--ledger", self.ledger, "--hang-after", HANG_AFTER,
            "--checkpoint-dir", folder / "checkpoints", "--checkpoint-every", "400ms", "--log-dir", folder / "logs",
            SCRIPT, "--steps", "1000000", "--pace-ms", "30", "--workers", "1", "--out", folder,
        ]  # fmt: skip
        with (folder / "terminal.txt").open("wb") as out:
            self.supervisor = subprocess.Popen([str(part) for part in command], stderr=out)
        self.notes = {}

    @property
    def terminal(self) -> str:
        return (self.folder / "terminal.txt").read_text(errors="replace")

    def events(self, *kinds: str):
        with read_store(self.ledger) as store:
            return list(store.events(run=self.run_id, kinds=kinds or None))

    def wait(self, condition) -> None:
        def is_so():
            assert self.supervisor.poll() is None, self.terminal
            return condition()

        wait_until(is_so)

    def wait_for_more(self, kind: str, count: int = 1) -> None:
        """Until so many more events of the kind are on record."""
        before = len(self.events(kind))
        self.wait(lambda: len(self.events(kind)) >= before + count)

    def wait_for_failure(self, words: str) -> None:
        self.wait(lambda: any(words in e.body["reason"] for e in self.events("checkpoint.fail")))

    @property
    def assessed_step(self) -> int:
        return read_life(self.run_dir.life).assessed_step

    def helper(self) -> int:
        found = [e.pid for e in find_leftovers(self.run_dir.root) if "rank.checkpoint" in e.command]
        return max(found)

    def rank(self, rank: int):
        from lastgood.faults.live_run import LiveRun

        return LiveRun(self.run_dir.root).state().ranks[rank]

    def loader_of(self, pid: int) -> int:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[-1])

    # --- what is broken -------------------------------------------------------------------------

    def stop_supervisor(self) -> None:
        self.supervisor.send_signal(signal.SIGSTOP)
        clock = SystemClock()
        until_us = clock.monotonic_us() + PAUSE_US
        while clock.monotonic_us() < until_us:
            clock.sleep_us(100_000)
        at = read_life(self.run_dir.life).assessed_step
        published = [
            StatusSlot(self.run_dir.status(self.rank(r).worker)).view().published_step
            for r in range(RANKS)
        ]
        self.notes["ahead"] = max(published) - at
        self.supervisor.send_signal(signal.SIGCONT)
        self.wait(lambda: self.assessed_step > at + 5)

    def stop_helper(self) -> None:
        os.kill(self.helper(), signal.SIGSTOP)
        self.wait_for_failure("was stopped")
        self.wait_for_more("checkpoint.commit")

    def kill_helper(self) -> None:
        """While the folder that it writes is there."""
        helper = self.helper()
        clock = SystemClock()
        until_us = clock.monotonic_us() + 30_000_000
        while not list((self.folder / "checkpoints").glob("*.partial")):
            assert clock.monotonic_us() < until_us
            clock.sleep_us(300)
        os.kill(helper, signal.SIGKILL)
        self.wait_for_failure("was killed by SIGKILL")
        self.wait_for_more("checkpoint.commit")

    def fill_disk_of_helper(self) -> None:
        helper = self.helper()
        before = resource.prlimit(helper, resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
        self.wait_for_failure("File too large")
        self.notes["kept"] = len(list((self.folder / "checkpoints").glob("step-*[0-9]")))
        resource.prlimit(helper, resource.RLIMIT_FSIZE, before)
        self.wait_for_more("checkpoint.commit")

    def fill_disk_of_ledger(self) -> None:
        pid = self.supervisor.pid
        largest = max(p.stat().st_size for p in self.folder.glob("ledger.db*"))
        before = resource.prlimit(
            pid, resource.RLIMIT_FSIZE, (largest // 2, resource.RLIM_INFINITY)
        )
        self.wait(lambda: "the ledger cannot be written" in self.terminal)
        at = self.assessed_step
        self.wait(lambda: self.assessed_step > at + 20)
        self.notes["durable"] = len(self.events())
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        self.wait(lambda: "the ledger is written again" in self.terminal)

    def kill_loader(self) -> None:
        os.kill(self.loader_of(self.rank(0).pid), signal.SIGKILL)
        self.wait_for_more("incident.close")

    def orphan_loader(self) -> None:
        rank = self.rank(1)
        self.notes["orphan"] = loader = self.loader_of(rank.pid)
        os.kill(loader, signal.SIGSTOP)
        os.kill(rank.pid, signal.SIGKILL)
        self.wait_for_more("incident.close")
        self.wait(lambda: not lives(loader))

    def close_terminal(self) -> None:
        self.supervisor.send_signal(signal.SIGHUP)
        self.notes["code"] = self.supervisor.wait(timeout=60)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    told = Story(tmp_path_factory.mktemp("storage"))
    try:
        told.wait(lambda: told.run_dir.life.exists() and told.events("checkpoint.commit"))
        for part in (
            told.stop_supervisor, told.stop_helper, told.kill_helper, told.fill_disk_of_helper,
            told.fill_disk_of_ledger, told.kill_loader, told.orphan_loader, told.close_terminal,
        ):  # fmt: skip
            part()
    finally:
        if told.supervisor.poll() is None:
            told.supervisor.kill()
            told.supervisor.wait()
            shutil.rmtree(told.run_dir.root, ignore_errors=True)
    return told


def test_a_stopped_supervisor_holds_the_ranks_at_the_gate_and_blames_nobody(story):
    assert 0 <= story.notes["ahead"] <= 2
    (pause,) = [e for e in story.events("annotation") if "pause_us" in e.body]
    assert pause.body["pause_us"] >= PAUSE_US - 200_000
    assert "hang" not in {e.symptom for e in story.events("incident.open")}
    assert "the supervisor did not turn" in story.terminal


def test_only_the_two_killed_processes_of_ranks_were_incidents(story):
    found = [i for i in fold_incidents(story.events()) if not i.is_planned]
    assert len(found) == 2, [(i.symptom, i.ranks, i.notes) for i in found]
    first, second = found
    assert (first.ranks, first.outcome, first.lost_steps) == ((0,), "recovered", 0)
    assert (second.ranks, second.outcome, second.lost_steps) == ((1,), "recovered", 0)
    assert first.symptom in {"exception", "process_exit"}
    assert (second.symptom, second.class_) == ("process_exit", "fail_stop")
    assert first.verification.result == second.verification.result == "equal"


def test_each_failure_of_the_helper_is_one_event_with_its_reason_and_the_next_checkpoint_is_written(
    story,
):
    kinds = [
        (e.kind, e.body.get("reason", ""))
        for e in story.events("checkpoint.fail", "checkpoint.commit")
    ]
    for words in ("was stopped for", "was killed by SIGKILL", "File too large"):
        at = [n for n, (_, reason) in enumerate(kinds) if words in reason]
        assert at, words
        assert "checkpoint.commit" in [kind for kind, _ in kinds[at[-1] + 1 :]]
    assert "checkpoint of step" in story.terminal
    assert story.notes["kept"] >= 1


def test_a_full_disk_under_the_ledger_is_said_and_every_event_is_there_afterwards(story):
    begun, ended = [e for e in story.events("annotation") if e.symptom == "storage_error"]
    assert begun.body["text"].startswith("the ledger cannot be written: ")
    assert ended.body["held_count"] >= 1
    assert ended.body["lasted_us"] > 0
    assert begun.t_recorded_us > begun.t_occurred_us + 200_000, "it waited, and keeps its own time"
    assert len(story.events()) > story.notes["durable"]
    numbers = [n for e in story.events("step") for n in range(e.body["first"], e.body["last"] + 1)]
    assert set(numbers) == set(range(1, max(numbers) + 1))
    assert verify_ledger(story.ledger).ok


def test_a_loader_worker_that_outlives_its_rank_is_ended_and_said(story):
    assert not lives(story.notes["orphan"])
    ended = [p for e in story.events("annotation") for p in e.body.get("processes", ())]
    assert str(story.notes["orphan"]) in {p.split()[0] for p in ended}


def test_a_closed_terminal_ends_the_run_in_order_and_nothing_is_left(story):
    assert story.notes["code"] == REQUEUE
    (begun,) = story.events("planned.begin")
    assert begun.body["reason"] == "SIGHUP"
    last = story.events("checkpoint.commit")[-1].body["step"]
    assert last == max(e.body["last"] for e in story.events("step"))
    assert find_leftovers(story.run_dir.root) == []
    assert not story.run_dir.root.exists()
