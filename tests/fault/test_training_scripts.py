"""What a script may and may not do: refusals with the fix, its own exit code, no faults invented."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.store import open_store
from lastgood.training.resuming.life import read_life
from lastgood.training.rundir import default_root
from tests.fault.training_drill import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]


def run_script(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess:
    script = folder / "script.py"
    script.write_text(text)
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", "1", "--spares", "0", "--ledger",
        str(folder / "ledger.db"), *options, str(script),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


START_LATER = "\nimport lastgood\nlastgood.start()\n"
"""Behind what a test is about: without the call a script is only observed."""


@pytest.mark.parametrize(
    ("line", "needle"),
    [
        ("import os; os.environ['RANK']", "run.rank"),
        pytest.param(
            "import os; os.environ.get('LOCAL_RANK')", "run.rank", marks=pytest.mark.nightly
        ),
        ("import torch.distributed as d; d.init_process_group('gloo')", "delete the call"),
    ],
)
def test_what_needs_a_rank_is_refused_before_start_with_the_fix(tmp_path, line, needle):
    done = run_script(tmp_path, line + START_LATER)
    assert done.returncode == 3
    assert needle in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_a_script_that_fails_before_start_keeps_its_code_and_is_no_incident(tmp_path):
    done = run_script(tmp_path, "import sys; sys.exit(7)" + START_LATER)
    assert done.returncode == 7
    with open_store(tmp_path / "ledger.db", create=False) as store:
        assert "incident.open" not in [event.kind for event in store.events()]


def test_a_script_that_never_comes_to_its_start_is_told_so(tmp_path):
    done = run_script(tmp_path, "print('hello')\nif False:" + START_LATER.replace("\n", "\n    "))
    assert done.returncode == 2
    assert "lastgood.start" in done.stderr


def test_start_outside_of_lastgood_run_is_refused_with_the_command(tmp_path):
    text = (
        "import torch, lastgood\n"
        "m = torch.nn.Linear(2, 2)\n"
        "lastgood.start(model=m, optimizer=torch.optim.SGD(m.parameters()), loader=lambda r, w: [])\n"
    )
    script = tmp_path / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode != 0
    assert "lastgood run --nproc-per-node" in done.stderr


ONE_RANK = """
import torch, lastgood
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.ones(2, 4)] * 3)
seen = []
for epoch in run.epochs(2):
    for batch in run.batches():
        with run.step() as step:
            optimizer.zero_grad()
            step.loss = run.model(batch).square().mean()
            step.loss.backward()
            optimizer.step()
        if step.is_accepted:
            seen.append(step.number)
    with run.section("eval", limit="1min"):
        pass
print("seen", seen, "done", run.steps_done, flush=True)
raise SystemExit(5)
"""


def test_epochs_sections_and_the_scripts_own_exit_code_with_one_rank(tmp_path):
    done = run_script(tmp_path, ONE_RANK)
    assert "seen [1, 2, 3, 4, 5, 6] done 6" in done.stdout
    assert done.returncode == 5
    with open_store(tmp_path / "ledger.db", create=False) as store:
        sections = [e.body["name"] for e in store.events() if e.kind == "section.begin"]
    assert sections == ["eval", "eval", "the script behind its loop"]


@pytest.mark.parametrize("flag", ["--nnodes=2", "--rdzv-endpoint=host:29400", "--node-rank=1"])
def test_flags_for_several_hosts_are_refused_with_what_to_use_instead(tmp_path, flag):
    done = run_script(tmp_path, "", flag)
    assert done.returncode == 3
    assert flag.split("=")[0] in done.stderr
    assert "needs" in done.stderr


LOOP = """
import torch, torch.distributed as dist, lastgood
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: {batches})
for batch in run.batches(epochs=1):
    {before}
    with run.step() as step:
        optimizer.zero_grad()
        step.loss = run.model(batch).square().mean()
        step.loss.backward()
        optimizer.step()
{after}
"""


def loop_of(*, batches="[torch.ones(2, 4)] * 6", before="pass", after=""):
    return LOOP.format(batches=batches, before=before, after=after)


@pytest.mark.nightly
def test_a_loader_without_a_batch_is_said_once(tmp_path):
    done = run_script(tmp_path, loop_of(batches="[]"))
    assert done.returncode == 2
    assert done.stderr.count("the loader gave no batch") == 1
    assert "script.py:" in done.stderr


@pytest.mark.nightly
def test_a_batch_without_a_step_is_refused_with_the_line(tmp_path):
    done = run_script(tmp_path, loop_of(before="continue"))
    assert done.returncode == 3
    assert "a batch was taken without a step" in done.stderr
    assert "script.py:" in done.stderr


def test_ranks_with_different_numbers_of_batches_are_told_which_and_where(tmp_path):
    text = loop_of(batches="dist.barrier() or [torch.ones(2, 4)] * (4 + 3 * rank)")
    done = run_script(tmp_path, text, "--nproc-per-node", "2")
    assert done.returncode == 2
    assert done.stderr.count("the loader function called a collective") == 1
    assert (
        "rank 0: the ranks have different numbers of batches: found no batch after step 4"
        in done.stderr
    )


@pytest.mark.nightly
def test_a_single_rank_has_a_process_group_as_under_torchrun(tmp_path):
    after = "seen = torch.ones(1)\ndist.all_reduce(seen)\nprint('sum', seen.item(), dist.get_world_size())"
    done = run_script(tmp_path, loop_of(after=after))
    assert done.returncode == 0
    assert "sum 1.0 1" in done.stdout


def test_ranks_that_leave_in_the_same_step_end_the_run_with_their_code_and_no_incident(tmp_path):
    text = loop_of(before="if run.steps_done == 3: raise SystemExit(7)")
    done = run_script(tmp_path, text, "--nproc-per-node", "2")
    assert done.returncode == 7
    with open_store(tmp_path / "ledger.db", create=False) as store:
        assert "incident.open" not in [event.kind for event in store.events()]


def test_a_syntax_error_is_said_once_with_its_line_before_anything_is_started(tmp_path):
    done = run_script(tmp_path, loop_of(before="y = ("), "--nproc-per-node", "2")
    assert done.returncode == 2
    assert (
        "script.py:7: the script is no Python that can be run: found '(' was never closed"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.nightly
def test_an_error_before_start_is_said_once_with_the_frames_of_the_script_alone(tmp_path):
    text = "def build():\n    raise KeyError('lr')\n" + "build()\n" + loop_of()
    done = run_script(tmp_path, text, "--nproc-per-node", "2")
    assert done.returncode == 1
    assert done.stderr.count("KeyError: 'lr'") == 1
    assert "in build" in done.stderr
    assert "runpy" not in done.stderr
    assert "worker.py" not in done.stderr


@pytest.mark.nightly
def test_an_error_behind_the_loop_keeps_its_code_its_log_and_what_runs_at_exit(tmp_path):
    after = "import atexit\natexit.register(print, 'at exit', flush=True)\nraise KeyError('report')"
    done = run_script(tmp_path, loop_of(after=after), "--log-dir", str(tmp_path / "logs"))
    assert done.returncode == 1
    log = (tmp_path / "logs" / "w0.log").read_text()
    assert "KeyError: 'report'" in log
    assert "at exit" in log
    assert "runpy" not in log
    with open_store(tmp_path / "ledger.db", create=False) as store:
        assert "incident.open" not in [event.kind for event in store.events()]


@pytest.mark.nightly  # on a busy machine the ranks raise further apart than the half second that is waited
def test_an_error_of_every_rank_in_start_is_said_once_and_ends_the_run(tmp_path):
    text = loop_of(batches="{}['no such file']")
    done = run_script(tmp_path, text, "--nproc-per-node", "2")
    assert done.returncode == 70
    assert "every rank raised the same error before the first step" in done.stderr
    assert "KeyError in its loader function: 'no such file'" in done.stderr
    assert "a bug of the script, not of a host" in done.stderr


@pytest.mark.nightly
def test_a_section_without_a_with_block_or_a_name_is_refused(tmp_path):
    done = run_script(tmp_path, loop_of(after="run.section(print)"))
    assert done.returncode == 2
    assert 'write: with run.section("eval", limit="10min")' in done.stderr


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        (("--hang-after", "0s"), "--hang-after"),
        (("--run-id", "../../x"), "--run-id"),
        (("--checkpoint-dir", "/proc/no"), "--checkpoint-dir"),
        (("--bogus",), "No such option"),
        (("--nproc-per-node", "0"), "--nproc-per-node"),
        (("--checkpoint-every", "1min"), "--checkpoint-dir checkpoints"),
    ],
)
def test_what_a_person_types_wrong_is_bad_input(tmp_path, options, needle):
    done = run_script(tmp_path, "", *options)
    assert done.returncode == 2
    assert needle in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_everything_and_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        loop_of(batches="[torch.ones(2, 4)] * 100000", before="__import__('time').sleep(0.05)")
    )
    run_id = f"ctrl-c-{os.getpid()}"
    root = default_root(run_id)
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--run-id", run_id, "--spares", "0",
        "--ledger", str(tmp_path / "ledger.db"), str(script),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            # Not read from the ledger: for a moment its file is there and holds nothing.
            wait_until(
                lambda: (sign := read_life(root / "life")) is not None and sign.assessed_step > 0
            )
            started.send_signal(signal.SIGINT)
            _, said = started.communicate(timeout=60)
        finally:
            started.kill()
    assert started.returncode == 130
    assert "SIGINT: stopping behind the present step" in said
    assert not root.exists()
