"""examples/kubernetes/job.yaml: its fields are checked, and a stub of kubectl plays its policy over local processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lastgood.base.errors import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE
from lastgood.ledger.store import open_store
from lastgood.training.options import RunOptions

pytestmark = [pytest.mark.fault, pytest.mark.timeout(200)]
HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "kubernetes" / "job.yaml"


def manifest() -> dict:
    return yaml.safe_load(EXAMPLE.read_text())


def apply(folder: Path, file: Path = EXAMPLE, *, limit_s: float = 150) -> list[list]:
    """Run the Job; returns the code of each pod and what was decided about it."""
    (folder / "work" / "state").mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "PATH": f"{HERE / 'stubs'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STUB_STATE": str(folder),
    }
    subprocess.run(["kubectl", "apply", "-f", str(file)], env=env, check=False, timeout=limit_s)
    return json.loads((folder / "log").read_text())


def with_command(folder: Path, *command: str) -> Path:
    """The same Job with another command in its container."""
    job = manifest()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"], container["args"] = list(command), []
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def test_the_job_never_restarts_a_container_and_leaves_time_for_a_checkpoint():
    pod = manifest()["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    grace_us = pod["terminationGracePeriodSeconds"] * 1_000_000
    assert grace_us > RunOptions(script=Path("x"), run_id="x", ledger=Path("x")).preemption_grace_us


def test_the_rules_name_the_codes_of_lastgood_and_the_container_that_is_there():
    spec = manifest()["spec"]
    codes = {
        rule["action"]: rule["onExitCodes"]["values"]
        for rule in spec["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }
    assert codes == {"FailJob": [EXIT_DO_NOT_REQUEUE], "Ignore": [EXIT_REQUEUE]}


def test_every_volume_that_is_mounted_is_there():
    pod = manifest()["spec"]["template"]["spec"]
    mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ("exit 0", [[0, "Complete"]]),
        ("exit 93", [[93, "FailJob"]]),
        ("exit 1", [[1, "Count"]] * 4),
        ("kill -9 $$", [[137, "Count"]] * 4),
        ("test -e seen && exit 0; touch seen; exit 75", [[75, "Ignore"], [0, "Complete"]]),
        ("echo . >> n; test $(wc -l < n) -gt 5 && exit 0; exit 75", [[75, "Ignore"]] * 5 + [[0, "Complete"]]),
    ],
    ids=["done", "93", "error", "killed", "75", "75-does-not-count"],
)  # fmt: skip
def test_the_code_of_a_pod_decides_what_becomes_of_the_job(tmp_path, script, ends):
    assert apply(tmp_path, with_command(tmp_path, "sh", "-c", script)) == ends


@pytest.mark.nightly
def test_the_jobs_own_command_runs_the_script_and_passes_its_code_on(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    text = (HERE / "plain_job.py").read_text()
    (work / "train.py").write_text(
        text.replace(
            '"--steps", type=int, default=100_000', '"--steps", type=int, default=5'
        ).replace('"--exit-code", type=int, default=0', '"--exit-code", type=int, default=93')
    )
    assert apply(tmp_path, limit_s=150) == [[93, "FailJob"]]
    with open_store(work / "state" / "ledger.db", create=False) as store:
        events = list(store.events())
    assert [e.body["mode"] for e in events if e.kind == "run.start"] == ["act"]
    assert events[-1].body["exit_code"] == 93
    shutil.rmtree(work)
