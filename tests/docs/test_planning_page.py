"""docs/planning.md: every command in it runs and ends as the page says."""

import re
import shutil
from pathlib import Path

import pytest

from lastgood.budget.scenario import QUANTITIES
from lastgood.budget.scenario_file import parse_scenario
from tests.unit.evidence.test_plan_records import drilled, growing

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_ends_as_it_says(line, place, cli):
    command, _, note = line.partition("#")
    if "fleet.db" in line:
        growing().write(place / "fleet.db")
    if "drill.db" in line:
        drilled(body={"mode": "demo"}).write(place / "drill.db")
    name, *arguments = command.split()
    assert name == "lastgood"
    result = cli(*arguments)
    expected = int(note.split()[1]) if note else 0
    assert (result.exit_code, result.stderr if expected == 0 else "") == (
        expected,
        _progress(result),
    )
    if expected:
        assert result.stderr.startswith("lastgood: LG-")
        assert "Traceback" not in result.stderr


def _progress(result) -> str:
    """A command that writes files names them on stderr; nothing else may be there."""
    written = [line for line in result.stderr.splitlines() if re.match(r"(page|chart): ", line)]
    return "".join(f"{line}\n" for line in written) if result.exit_code == 0 else ""


def test_the_page_shows_every_plan_command_and_every_input():
    assert {line.split()[1] for line in COMMANDS} == {"plan", "what-if", "project", "reproduce"}
    table = PAGE.partition("## Inputs")[2].partition("### From a ledger")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert set(QUANTITIES) <= named


def test_the_scenario_of_the_page_is_one():
    (written,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_scenario(written.encode(), source="page").has("mtti", "checkpoint_cost")
    assert "| key under `spec:` |" in PAGE


def test_the_page_names_what_cannot_be_shown_and_what_is_refused():
    for words in ("What neither formulas nor Monte Carlo can show", "those of CPUs", "exit code 3"):
        assert words in PAGE
