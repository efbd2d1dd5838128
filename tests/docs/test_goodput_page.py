"""docs/goodput.md: every command in it runs, and its tables name what the code has."""

import json
import re
import shlex
from pathlib import Path

import pytest

from bench.goodput.seven_cases import CASES
from lastgood.ledger.walltime import STATES, WallTimeRules
from tests.unit.ledger.importers.test_goodput import end, lines, start, steps
from tests.unit.ledger.importers.test_two_logs_of_a_run import HEADER, JOBS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "goodput.md").read_text(encoding="utf-8")
BLOCKS = [
    [line.partition("#")[0].strip() for line in block.splitlines() if line.startswith("lastgood ")]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
]


@pytest.mark.parametrize("commands", [block for block in BLOCKS if block])
def test_the_commands_of_a_block_run_one_after_the_other(commands, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = next(case for case in CASES if case.name == "B")
    Path("entries.jsonl").write_text("\n".join(case.lines()) + "\n", encoding="utf-8")
    Path("sacct.psv").write_text(HEADER + JOBS, encoding="utf-8")
    log = [start(20), *steps(0, 46, 30), start(2440), *steps(45, 99, 2850), end(3400)]
    Path("job.jsonl").write_text(lines(log), encoding="utf-8")
    if commands[0].startswith("lastgood record"):  # about the run that the first block imported
        assert cli("import", "goodput", "entries.jsonl", "--ledger", "run.db").exit_code == 0
    for command in commands:
        result = cli(*shlex.split(command)[1:], "--json")
        assert result.exit_code == 0, result.stderr
        if command.startswith("lastgood report"):
            section = json.loads(result.stdout)["sections"][0]
            assert section["title"] == "A run read from logs"
            ettr = section["figures"][0]["figure"]["value"]
            assert round(ettr, 3) == (0.284 if "both" in command else 0.294)


def test_there_are_three_blocks_of_commands_and_the_one_that_makes_the_table():
    assert [len(block) for block in BLOCKS] == [3, 1, 3, 0]
    assert "python bench/goodput/seven_cases.py" in PAGE
    assert (ROOT / "bench" / "goodput" / "seven_cases.py").exists()


def test_the_states_on_the_page_are_states():
    words = set(re.findall(r"`([a-z]+(?:\.[a-z]+)?)`", PAGE))
    states = {str(state) for state in STATES}
    assert {w for w in words if w.startswith(("down.", "checkpoint."))} <= states
    assert {"unknown", "warmup", "stall", "restore", "lost"} <= words & states


def test_the_numbers_of_the_rules_are_those_of_the_code():
    rules = WallTimeRules()
    assert f"from {rules.stall_factor:.0f} times the median and {rules.stall_us_min // 10**6} s on" in PAGE  # fmt: skip
    assert f"{rules.liveness_us // (60 * 10**6)} minutes after its last sign of life" in PAGE
    assert f"contradicts the order by more than {rules.skew_us_max // 10**6} s" in PAGE
