"""docs/statistics.md: every command in it runs, every method of the code is on it, and its numbers are the code's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lastgood.budget.intervals import IntervalMethod
from lastgood.evidence.rates_answers import QUESTIONS
from tests.unit.evidence import made_fleet as made

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return made.troubled().write(tmp_path_factory.mktemp("page") / "fleet.db")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line, fleet, cli, tmp_path, monkeypatch):
    shutil.copy(fleet, tmp_path / "fleet.db")
    shutil.copy(ROOT / "tests" / "samples" / "import" / "kern.log", tmp_path / "kern.log")
    monkeypatch.chdir(tmp_path)
    name, *arguments = line.split()
    assert name == "lastgood"
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stdout


def test_every_method_of_an_interval_is_explained():
    table = PAGE.partition("## The interval of a rate")[2].partition("### Does")[0]
    rows = set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE))
    assert rows == {str(m) for m in IntervalMethod} - {"auto"}


METHODS = (
    "The interval of a rate",
    "How incidents are scattered",
    "Is it getting worse?",
    "Which repairs did not hold?",
    "Which nodes to pull?",
    "What failed together?",
    "How long did it take?",
    "Comparing",
)


@pytest.mark.parametrize("title", METHODS)
def test_every_method_says_when_it_lies(title):
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert re.search(r"\blies\b", section)
    assert re.search(r"assume|null|independent incidents give", section)


def test_the_page_names_the_five_questions():
    first = PAGE.splitlines()[2].lower()
    for words in ("how often", "getting worse", "which repairs did not hold", "which nodes to pull", "do we not know"):  # fmt: skip
        assert words in first
    assert len(QUESTIONS) == 5


def test_the_coverage_in_the_table_meets_what_the_tests_demand():
    """93 to 97 % for the interval and the bounds, at most 6 % (9 % at bursts of 5) for the trend."""
    table = PAGE.partition("### Does 95 % mean 95 %?")[2].partition("## How incidents")[0]
    rows = re.findall(r"^\| [a-z].*\|$", table, re.MULTILINE)[1:]
    assert len(rows) == 5
    for row in rows:
        cells = [float(c) for c in re.findall(r"([\d.]+) %", row)]
        headline, _, mcf, alarms, _ = cells
        assert 93 <= headline <= 97
        assert 93 <= mcf <= 97
        assert alarms <= (9 if "bursts of 5" in row else 6)
