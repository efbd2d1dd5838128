"""Loader processes that outlive an epoch: one dies in the first epoch, another one outlives its rank in the second."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.faults.live_run import LiveRun
from lastgood.faults.surroundings import loader_of
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store
from lastgood.training.drills.plain import run_plain
from lastgood.training.drills.play import SCRIPT
from lastgood.training.resuming.leftovers import find_leftovers
from lastgood.training.resuming.life import read_life
from lastgood.training.rundir import default_root
from tests.fault.training_drill import lives, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(300)]
RANKS, STEPS, EPOCH = 2, 200, 64
LOADER = ("--workers", "1", "--persistent-workers")


class Story:
    """A run in a process of its own with two ranks, a spare and a loader process each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_id = folder, f"test-{folder.name}-{os.getpid()}"
        self.root = default_root(self.run_id)
        self.live = LiveRun(self.root)
        command = [
            sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(RANKS), "--spares", "1",
            "--run-id", self.run_id, "--ledger", folder / "ledger.db",
            SCRIPT, "--steps", str(STEPS), "--pace-ms", "40", "--out", folder, *LOADER,
        ]  # fmt: skip
        with (folder / "terminal.txt").open("wb") as out:
            self.process = subprocess.Popen([str(part) for part in command], stderr=out)
        self.pids: dict[str, int] = {}

    def events(self):
        with read_store(self.folder / "ledger.db") as store:
            return list(store.events())

    def wait(self, condition) -> None:
        def is_so():
            assert self.process.poll() is None, (self.folder / "terminal.txt").read_text()
            return condition()

        wait_until(is_so)

    def wait_for_step(self, step: int) -> None:
        self.wait(
            lambda: (
                (sign := read_life(self.root / "life")) is not None and sign.assessed_step >= step
            )
        )

    def wait_until_recovered(self, count: int) -> None:
        """Such a number of incidents are closed, and a spare is parked again."""
        self.wait(lambda: sum(e.kind == "incident.close" for e in self.events()) >= count)
        self.wait(lambda: (state := self.live.state()) is not None and state.spares_parked >= 1)

    def play(self) -> None:
        self.wait_for_step(10)
        os.kill(loader_of(0, self.live), signal.SIGKILL)
        self.wait_until_recovered(1)
        self.pids["kept"] = loader_of(1, self.live)
        self.wait_for_step(EPOCH + 6)
        self.pids["still"] = loader_of(1, self.live)
        os.kill(self.pids["still"], signal.SIGSTOP)
        os.kill(self.live.state().ranks[1].pid, signal.SIGKILL)
        self.code = self.process.wait(timeout=120)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    told = Story(tmp_path_factory.mktemp("persistent"))
    try:
        told.play()
    finally:
        if told.process.poll() is None:
            told.process.kill()
            told.process.wait()
    return told


def test_the_dead_one_is_an_error_of_its_rank_and_the_spare_has_a_loader_of_its_own(story):
    (first, *_) = [i for i in fold_incidents(story.events()) if not i.is_planned]
    assert (first.ranks, first.outcome, first.lost_steps) == ((0,), "recovered", 0)
    assert (first.symptom, first.verification.result) == ("exception", "equal")
    traces = [e.body.get("message", "") for e in story.events() if e.kind == "observation"]
    assert any("DataLoader worker" in trace for trace in traces)
    told = next(e.body for e in story.events() if e.kind == "incident.open")
    # Where the main thread of the rank was when torch told it is not for a test to know.
    assert re.match(r"rank 0 raised \w+ (in|for a process of) its loader, (for|in) step ", told["evidence"][0])  # fmt: skip
    assert told["signature"].endswith(" in the loader")


def test_that_its_draws_may_differ_is_said_once_by_all_ranks(story):
    told = [e.body["text"] for e in story.events() if e.kind == "annotation" and "text" in e.body]
    assert len([text for text in told if "persistent_workers" in text]) == 1
    assert (story.folder / "terminal.txt").read_text().count("has no state_dict") == 1


def test_the_others_keep_theirs_from_epoch_to_epoch(story):
    assert story.pids["kept"] == story.pids["still"]


def test_the_one_that_outlives_its_rank_is_ended_and_said(story):
    (_, second) = [i for i in fold_incidents(story.events()) if not i.is_planned]
    assert (second.ranks, second.symptom, second.lost_steps) == ((1,), "process_exit", 0)
    assert (second.outcome, second.verification.result) == ("recovered", "equal")
    assert not lives(story.pids["still"])
    ended = [p for e in story.events() if e.kind == "annotation" for p in e.body.get("processes", ())]  # fmt: skip
    assert str(story.pids["still"]) in {p.split()[0] for p in ended}


def test_the_run_ends_with_the_weights_of_an_undisturbed_one(story, tmp_path):
    """The twin has the same loader: one that persists draws a seed once, and one that does not draws it every epoch."""
    assert story.code == 0
    results = [tmp_path / f"weights-rank{rank}.json" for rank in range(RANKS)]
    run_plain(
        SCRIPT,
        ["--plain", "--steps", str(STEPS), "--out", str(tmp_path), *LOADER],
        ranks=RANKS, results=results, limit_us=120_000_000,
    )  # fmt: skip
    found = [json.loads(path.read_text()) for path in (*results, *story.folder.glob("weights-*"))]
    assert len(found) == 2 * RANKS
    assert {weights["weights_sha256"] for weights in found} == {found[0]["weights_sha256"]}
    assert find_leftovers(story.root) == []
