"""The quickstart, done as its page says: observed without a change, then broken and recovered. Asserts outcomes only."""

import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.ledger.store import read_store

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "examples" / "quickstart"
LASTGOOD = Path(sys.executable).with_name("lastgood")
EPOCHS = "3"
DONE_S_MAX = 150

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def commands() -> list[str]:
    lines = "".join(blocks("")).splitlines()
    return [line for line in lines if line.startswith("lastgood ")]


OBSERVE, REPORT, ACT, HTML, VERIFY, INIT, EXPLAIN, DURABLE = commands()


def test_the_page_shows_the_plain_script_as_it_is():
    assert (SCRIPTS / "train_plain.py").read_text(encoding="utf-8") == blocks("python")[0]


def test_the_page_shows_the_difference_between_the_two_scripts():
    texts = [
        (SCRIPTS / name).read_text(encoding="utf-8").splitlines()
        for name in ("train_plain.py", "train.py")
    ]
    lines = [*difflib.unified_diff(*texts, lineterm="", n=0)][2:]
    expected = [
        line
        for line in lines
        if not line.startswith(("@@", '-"""', '+"""')) and line not in ("+", "-")
    ]
    assert expected == blocks("diff")[0].splitlines()
    assert "six new lines in place of twelve" in PAGE
    counts = {sign: sum(line.startswith(sign) for line in expected) for sign in "+-"}
    assert counts == {"+": 6, "-": 12}


# --- done for real ------------------------------------------------------------------------------------


class Desk:
    """A folder with the scripts and a ledger, and the words that were typed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, folder)
        self.environment = os.environ | {
            "LASTGOOD_LEDGER": str(folder / "ledger.db"),
            "EPOCHS": EPOCHS,
        }

    def start(self, command: str) -> subprocess.Popen:
        arguments = command.split()[1:]
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [LASTGOOD, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return (self.folder / "log.txt").read_text(encoding="utf-8")

    def type(self, command: str) -> str:
        arguments = command.split()[1:]
        done = subprocess.run(
            [LASTGOOD, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=DONE_S_MAX,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_for(self, words: str) -> re.Match:
        clock = SystemClock()
        until_us = clock.monotonic_us() + DONE_S_MAX * 1_000_000
        while (found := re.search(words, self.said())) is None:
            assert clock.monotonic_us() < until_us, self.said()
            clock.sleep_us(50_000)
        return found

    def wait_for_steps(self) -> None:
        """Return once the ledger holds steps, which it takes in chunks."""
        clock = SystemClock()
        until_us = clock.monotonic_us() + DONE_S_MAX * 1_000_000
        while not self.count_of("step"):
            assert clock.monotonic_us() < until_us, self.said()
            clock.sleep_us(100_000)

    def count_of(self, kind: str) -> int:
        with read_store(self.folder / "ledger.db") as store:
            return sum(event.kind == kind for event in store.events())

    def last_losses(self) -> list[str]:
        return sorted(re.findall(r"rank \d of 2: last loss [\d.]+", self.said()))


@pytest.fixture(scope="module")
def desks(tmp_path_factory):
    """The plain script observed, and meanwhile the changed one, whose rank 1 is killed in the middle of its steps."""
    folder = tmp_path_factory.mktemp("quickstart")
    plain, changed = Desk(folder / "plain"), Desk(folder / "changed")
    running = [plain.start(OBSERVE), changed.start(ACT)]
    try:
        pid = int(changed.wait_for(r"attempt 1: rank 0 pid \d+, rank 1 pid (\d+)")[1])
        changed.wait_for_steps()
        os.kill(pid, signal.SIGKILL)
        codes = [process.wait(DONE_S_MAX) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert codes == [0, 0], plain.said() + changed.said()
    return plain, changed


def test_the_plain_script_is_observed_without_a_change(desks):
    assert "observing train_plain.py: nothing is ended or restarted" in desks[0].said()
    assert len(desks[0].last_losses()) == 2
    assert "observe" in desks[0].type(REPORT)


def test_the_killed_rank_is_replaced_and_the_state_verified(desks):
    said = desks[1].said()
    assert "detected process_exit of rank 1" in said
    assert re.search(r"attempt 2: rank 0 pid \d+, rank 1 pid \d+", said)
    assert re.search(r"verified state \d+: equal", said)
    assert "0 steps lost" in said


def test_the_last_losses_are_those_of_the_undisturbed_script(desks):
    assert desks[0].last_losses() == desks[1].last_losses()


def test_the_report_names_the_incident_and_the_ledger_verifies(desks):
    desks[1].type(HTML)
    assert "process exit" in (desks[1].folder / "report.html").read_text(encoding="utf-8")
    assert "hash" in desks[1].type(VERIFY)


def test_a_run_with_checkpoints_and_a_contract_is_the_next_step(tmp_path):
    desk = Desk(tmp_path / "durable")
    desk.environment["EPOCHS"] = "1"
    desk.type(INIT)
    assert desk.type(EXPLAIN)
    process = desk.start(DURABLE)
    try:
        assert process.wait(DONE_S_MAX) == 0, desk.said()
    finally:
        process.kill()
        process.wait()
    again = desk.start(DURABLE)
    try:
        assert again.wait(DONE_S_MAX) == 0, "nothing was left to do: " + desk.said()
    finally:
        again.kill()
        again.wait()
    assert "resuming from checkpoint step-000000064" in desk.said()
    (mark,) = (desk.folder / "checkpoints").glob("step-*/lastgood.json")
    assert json.loads(mark.read_text())["step"] == 64
