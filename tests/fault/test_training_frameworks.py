"""Lightning and the Hugging Face Trainer as real jobs of two ranks: killed, asked to stop, and compared with a whole one.

Nightly, and skipped with a reason where the frameworks are not installed.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from tests.fault.training_drill import assert_ledger_holds, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(900)]

HAS_LIGHTNING = any(importlib.util.find_spec(n) for n in ("lightning", "pytorch_lightning"))
HAS_TRANSFORMERS = all(importlib.util.find_spec(n) for n in ("transformers", "accelerate"))
KILL_STEP, INTERVAL = 14, 4

jobs = pytest.mark.parametrize(
    ("job", "endless"),
    [
        pytest.param(
            "lightning_job.py",
            ("--epochs", "100000"),
            marks=pytest.mark.skipif(not HAS_LIGHTNING, reason="pip install -e '.[frameworks]'"),
        ),
        pytest.param(
            "huggingface_job.py",
            ("--steps", "100000", "--pace-ms", "20"),
            marks=pytest.mark.skipif(not HAS_TRANSFORMERS, reason="pip install -e '.[frameworks]'"),
        ),
    ],
)


def start(folder: Path, job: str, *arguments: str) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--mode", "act", "--nproc-per-node", "2",
        "--run-id", f"frameworks-{folder.name}-{os.getpid()}", "--ledger", str(folder / "ledger.db"),
        "--log-dir", str(folder / "logs"), str(Path(__file__).with_name(job)), "--out", str(folder), *arguments,
    ]  # fmt: skip
    return subprocess.Popen(command)


def results(folder: Path) -> list[dict]:
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(2)]


@jobs
def test_a_killed_rank_restarts_all_and_the_weights_are_those_of_a_whole_run(
    tmp_path, job, endless
):
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    kill = ("--kill-rank", "1", "--kill-step", str(KILL_STEP))
    assert start(broken, job, *kill).wait(timeout=280) == 0
    assert start(whole, job).wait(timeout=280) == 0
    assert (broken / "killed").exists()
    assert results(broken) == results(whole)
    with open_store(broken / "ledger.db", create=False) as store:
        events = list(store.events())
    (incident,) = fold_incidents(events)
    assert (incident.symptom, incident.ranks) == ("process_exit", (1,))
    (closed,) = [e.body for e in events if e.kind == "incident.close"]
    assert closed["resumed_step"] == KILL_STEP // INTERVAL * INTERVAL + 1
    losses = [e.body["loss"] for e in events if e.kind == "step" and "loss" in e.body]
    assert losses, "no loss reached the ledger"
    assert_ledger_holds(broken / "ledger.db")


@jobs
def test_a_job_that_is_asked_to_stop_ends_with_75_behind_a_sealed_checkpoint(
    tmp_path, job, endless
):
    started = start(tmp_path, job, *endless)
    wait_until(lambda: list(tmp_path.glob("checkpoints/**/*lastgood.json")))
    started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=200) == 75
    from lastgood.training.frameworks import newest_that_holds

    found = newest_that_holds(tmp_path / "checkpoints")
    assert found is not None
    with open_store(tmp_path / "ledger.db", create=False) as store:
        last = max(e.body["last"] for e in store.events() if e.kind == "step")
    assert found.step == last
    assert_ledger_holds(tmp_path / "ledger.db")
