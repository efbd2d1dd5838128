"""docs/observe.md and docs/attach.md: every command on them runs, and what they say of options and names is so.

The commands that start torch run in the nightly profile; tests/fault runs the same modes in CI on a real job.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.cli.run_mode import ACT_HANG_AFTER
from lastgood.training.observe.case import NOBODY_FACTOR

ROOT = Path(__file__).resolve().parents[2]
OBSERVE = (ROOT / "docs" / "observe.md").read_text(encoding="utf-8")
ATTACH = (ROOT / "docs" / "attach.md").read_text(encoding="utf-8")
STUBS = ROOT / "tests" / "fault" / "stubs"
FAULT = ROOT / "tests" / "fault"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("lastgood: ", "  "))]


def shell(folder: Path, line: str, **extra: str) -> subprocess.CompletedProcess[str]:
    state = folder / "queue"
    (state / "work" / "state").mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ, **extra, "PATH": f"{STUBS}:{Path(sys.executable).parent}:{os.environ['PATH']}", "STUB_STATE": str(state),
        "LASTGOOD_LEDGER": str(folder / "ledger.db"), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return subprocess.run(
        line, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=140, check=False
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the commands find: a script, the examples, and the spool of an earlier job."""
    text = (FAULT / "plain_job.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("default=100_000", "default=5"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(ROOT / "tests" / "samples" / "import" / "spool", tmp_path / "lastgood-spool")
    return tmp_path


def test_the_commands_of_the_pages_are_these():
    assert {line.split()[0] for line in commands(OBSERVE)} == {"lastgood"}
    found = {shlex.split(line)[0] for line in commands(ATTACH)}
    assert found == {"lastgood", "sbatch", "kubectl", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"}


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", [c for c in commands(OBSERVE) if c.startswith("lastgood run")])
def test_a_run_of_the_page_trains_to_its_end(folder, line):
    done = shell(folder, line)
    assert done.returncode == 0, done.stderr
    assert "rank 1 of restart 0 is done" in done.stdout
    again = shell(folder, "lastgood report --json")
    assert again.returncode == 0, again.stderr


def test_the_spools_of_the_page_become_a_ledger_and_a_report(folder):
    lines = [line for line in commands(ATTACH) if line.startswith("lastgood")]
    assert len(lines) == 2
    for line in lines:
        done = shell(folder, line)
        assert done.returncode == 0, done.stderr
    assert "hang" in done.stdout


def test_the_sbatch_of_the_page_starts_the_script_on_two_hosts(folder):
    (line,) = [line for line in commands(ATTACH) if line.startswith("sbatch")]
    (folder / "train.py").write_text("import os\nprint('task', os.environ['SLURM_PROCID'])\n")
    done = shell(folder, line)
    assert done.returncode == 0, done.stderr
    assert {"task 0", "task 1"} <= set(done.stdout.splitlines())


def test_the_kubectl_of_the_page_reads_the_job(folder):
    (line,) = [line for line in commands(ATTACH) if line.startswith("kubectl")]
    (folder / "queue" / "work").mkdir(parents=True)
    job = folder / "examples" / "kubernetes" / "job.yaml"
    job.write_text(job.read_text().replace('["lastgood", "run",', '["true", "run",'))
    assert shell(folder, line).returncode == 0


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_torchrun_of_the_page_is_not_warned_about_and_the_same_without_the_opt_out_is(folder):
    (line,) = [line for line in commands(ATTACH) if "torchrun" in line]
    script = 'import lastgood\nlastgood.attach()\nprint("attached")\n'
    (folder / "train.py").write_text(script)
    with_it = shell(folder, line)
    assert with_it.returncode == 0, with_it.stderr
    assert "keeps one store" not in with_it.stderr
    without = shell(folder, line.partition(" ")[2])
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in without.stderr


def test_the_page_names_every_argument_of_attach():
    from lastgood.training.rank.attach import attach

    table = set(
        re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", ATTACH, re.MULTILINE)))
    )
    assert table == set(inspect.signature(attach).parameters)


def test_the_numbers_of_the_observe_page_are_those_of_the_code():
    assert ACT_HANG_AFTER == "10min"
    assert "`--hang-after` is 10 min here" in OBSERVE
    assert NOBODY_FACTOR == 20
    assert "only after twenty limits" in OBSERVE
