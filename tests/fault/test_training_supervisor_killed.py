"""The supervisor itself is killed: the next start of the run goes on from shared memory, and the ledger shows the gap."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.ledger.walltime import WallState, partition
from lastgood.training.drills.plain import run_plain
from lastgood.training.resuming.leftovers import find_leftovers
from lastgood.training.resuming.life import read_life
from lastgood.training.rundir import default_root
from tests.fault.training_drill import JOB, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
RANKS, STEPS, KILL_STEP = 2, 140, 20
SLOWLY_MS = 200
"""At this pace it takes 24 s from the step behind which the supervisor is killed to the last one."""


def start(folder: Path, run_id: str, *options: str, pace_ms: int) -> subprocess.Popen:
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(RANKS), "--spares", "1",
        "--run-id", run_id, "--ledger", folder / "ledger.db", *options,
        JOB, "--steps", str(STEPS), "--pace-ms", str(pace_ms), "--out", folder,
    ]  # fmt: skip
    with (folder / "terminal.txt").open("ab") as out:
        return subprocess.Popen([str(part) for part in command], stderr=out)


def events_of(folder: Path, run_id: str):
    with open_store(folder / "ledger.db", create=False) as store:
        return list(store.events(run=run_id))


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Kill a supervisor in the middle, start the run again under its id, and run the twin."""
    folder = tmp_path_factory.mktemp("supervisor")
    run_id = f"test-{folder.name}-{os.getpid()}"
    root = default_root(run_id)
    first = start(folder, run_id, "--snapshots", "striped", pace_ms=SLOWLY_MS)
    wait_until(
        lambda: (
            ((sign := read_life(root / "life")) is not None and sign.assessed_step >= KILL_STEP)
            or first.poll() is not None
        )
    )
    first.send_signal(signal.SIGKILL)
    first.wait()
    sign = read_life(root / "life")
    second = start(folder, run_id, "--snapshots", "striped", pace_ms=0)
    try:
        code = second.wait(timeout=150)
    finally:
        if second.poll() is None:
            second.kill()
            second.wait()
            shutil.rmtree(root, ignore_errors=True)
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
        "folder": folder, "run": run_id, "root": root, "code": code, "sign": sign, "plain": plain,
        "events": events_of(folder, run_id), "left": find_leftovers(root),
        "terminal": (folder / "terminal.txt").read_text(),
    }  # fmt: skip


def test_the_run_ends_with_the_bits_of_an_undisturbed_one(story):
    assert story["code"] == 0, story["terminal"]
    digests = {
        json.loads(path.read_text())["weights_sha256"]
        for folder in (story["folder"], story["plain"])
        for path in folder.glob("weights-*.json")
    }
    assert len(digests) == 1


def test_it_goes_on_after_the_newest_assessed_state_in_shared_memory(story):
    (restored,) = [e for e in story["events"] if e.kind == "restore"]
    assert restored.body == {"step": story["sign"].assessed_step, "tier": "slot", "intact": True}
    (verified,) = [e for e in story["events"] if e.kind == "verify"]
    assert verified.verification.result == "equal"
    assert verified.verification.test.startswith("replay step")
    assert "resuming from state" in story["terminal"]


def test_the_interruption_is_one_incident_with_its_times_and_nothing_lost(story):
    (incident,) = fold_incidents(story["events"])
    assert (incident.class_, incident.symptom, incident.ranks) == ("fail_stop", "process_exit", ())
    assert incident.outcome == "recovered"
    assert incident.lost_steps == 0
    assert incident.onset_us == story["sign"].turn_wall_us
    times = [
        incident.onset_us, incident.detected_us, incident.diagnosed_us, incident.isolated_us,
        incident.restored_us, incident.verified_us, incident.closed_us,
    ]  # fmt: skip
    assert None not in times
    assert times == sorted(times)
    assert incident.lost_device_us >= RANKS * (incident.closed_us - incident.onset_us) * 0.99


def test_attempts_are_counted_on_and_the_first_start_is_closed_as_interrupted(story):
    starts = [e for e in story["events"] if e.kind == "run.start"]
    assert [e.attempt for e in starts] == [1, 2]
    assert "resumes" not in starts[0].body
    assert starts[1].body["resumes"] == {
        "attempt": 1,
        "was": "interrupted",
        "state_in_memory": story["sign"].assessed_step,
    }
    ends = [e for e in story["events"] if e.kind == "run.end"]
    assert [e.body.get("result") for e in ends] == ["interrupted", None]
    assert ends[0].t_occurred_us == story["sign"].turn_wall_us
    assert [e.attempt for e in story["events"] if e.kind == "attempt.start"] == [1, 2]


def test_every_step_is_on_record_once_and_the_gap_is_time_that_nobody_knew_of(story):
    steps = [
        number
        for e in story["events"]
        if e.kind == "step"
        for number in range(e.body["first"], e.body["last"] + 1)
    ]
    assert steps == list(range(1, STEPS + 1))
    last_us = max(e.t_recorded_us for e in story["events"])
    time = partition(story["events"], run=story["run"], as_of_us=last_us)
    assert time.accepted_steps == STEPS
    assert time.totals_us[WallState.LOST] == 0
    starts = [e for e in story["events"] if e.kind == "run.start"]
    gap_us = starts[1].t_occurred_us - story["sign"].turn_wall_us
    assert time.totals_us[WallState.DOWN_DETECT] >= gap_us
    assert time.totals_us[WallState.DOWN_SCHEDULE] == 0


def test_nothing_of_either_start_is_left(story):
    assert not story["root"].exists()
    assert story["left"] == []
    assert verify_ledger(story["folder"] / "ledger.db").ok
