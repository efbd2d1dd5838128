"""A preempted run snapshots and asks to be requeued; the next one resumes from a checkpoint that holds, or an older one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.store import open_store
from lastgood.training.drills.plain import run_plain
from lastgood.training.states.checkpoints import list_checkpoints
from tests.fault.training_drill import JOB, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
RANKS, STEPS = 2, 150
REQUEUE = 75


def start(folder: Path, run_id: str, *, steps: int = STEPS) -> subprocess.Popen:
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--quiet", "--nproc-per-node", str(RANKS), "--spares", "0",
        "--run-id", run_id, "--ledger", folder / "ledger.db", "--checkpoint-dir", folder / "checkpoints",
        "--checkpoint-every", "1s", JOB, "--steps", str(steps), "--pace-ms", "40", "--out", folder,
    ]  # fmt: skip
    return subprocess.Popen([str(part) for part in command])


def events_of(folder: Path, run_id: str):
    with open_store(folder / "ledger.db", create=False) as store:
        return list(store.events(run=run_id))


def damage(checkpoint: Path) -> None:
    """Change one byte in the middle of the largest file."""
    largest = max(checkpoint.glob("*"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Preempt a run after two checkpoints, damage the newest, run again to the end, and run the twin."""
    folder = tmp_path_factory.mktemp("preempted")
    first = start(folder, "first")
    wait_until(
        lambda: (
            len(list_checkpoints(folder / "checkpoints", world=RANKS)) >= 1
            or first.poll() is not None
        )
    )
    first.send_signal(signal.SIGTERM)
    code = first.wait(timeout=60)
    kept = list_checkpoints(folder / "checkpoints", world=RANKS)
    damage(kept[0].path)
    second = start(folder, "second")
    second_code = second.wait(timeout=120)
    plain = folder / "twin"
    plain.mkdir()
    run_plain(
        JOB,
        ["--plain", "--steps", str(STEPS), "--out", str(plain)],
        ranks=RANKS,
        results=[plain / f"weights-rank{rank}.json" for rank in range(RANKS)],
        limit_us=100_000_000,
    )
    return {
        "folder": folder,
        "code": code,
        "kept": kept,
        "second_code": second_code,
        "plain": plain,
    }


def test_a_notice_ends_the_run_with_the_code_that_asks_for_a_requeue(story):
    assert story["code"] == REQUEUE


def test_the_notice_is_a_planned_event_and_no_incident(story):
    kinds = [event.kind for event in events_of(story["folder"], "first")]
    assert "planned.begin" in kinds
    assert "incident.open" not in kinds


def test_a_checkpoint_of_the_last_step_is_written_before_the_end(story):
    steps = [e.body["last"] for e in events_of(story["folder"], "first") if e.kind == "step"]
    assert story["kept"][0].step == steps[-1]


def test_the_damaged_checkpoint_is_passed_over_and_said(story):
    suspect = [
        e.body
        for e in events_of(story["folder"], "second")
        if e.kind == "state.trust" and e.body["state"] == "suspect"
    ]
    assert [body["step"] for body in suspect] == [story["kept"][0].step]


def test_the_next_older_one_is_verified_by_running_a_step_twice(story):
    (verified,) = [e for e in events_of(story["folder"], "second") if e.kind == "verify"]
    assert verified.body["step"] == story["kept"][1].step
    assert verified.verification.result == "equal"


def test_the_resumed_run_ends_with_the_bits_of_an_undisturbed_one(story):
    assert story["second_code"] == 0
    digests = {
        json.loads(path.read_text())["weights_sha256"]
        for folder in (story["folder"], story["plain"])
        for path in folder.glob("weights-*.json")
    }
    assert len(digests) == 1


def test_some_checkpoint_was_verified_while_the_run_went_on(story):
    verified = [
        e.body["step"] for e in events_of(story["folder"], "first")
        if e.kind == "state.trust" and e.body["state"] == "verified" and e.body["tier"] == "checkpoint"
    ]  # fmt: skip
    assert verified
