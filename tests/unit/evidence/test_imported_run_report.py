"""`lastgood report` on logs of runs: which run, as of when, and no rate of failures from a log that holds none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.goodput.seven_cases import CASES

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "import"


@pytest.fixture
def logs(tmp_path) -> Path:
    for case in CASES:
        text = "\n".join(case.lines()) + "\n"
        (tmp_path / f"{case.name}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def sections(result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["sections"]


def test_a_log_of_steps_gives_its_run_and_no_count_of_failures(cli, logs):
    (run,) = sections(cli("report", logs / "B.jsonl", "--json"))
    assert run["title"] == "A run read from logs"
    assert run["headline"]["sentence"].startswith("29.4 % of 56.7 min")
    tables = {table["name"]: table for part in run["parts"] for table in part["tables"]}
    (row,) = tables["files"]["rows"]
    assert row[:2] == ["B.jsonl", "goodput"]
    assert [cell["value"] for cell in row[3:]] == [103, 103, 0, 0]


def test_of_several_runs_the_newest_is_reported_and_the_others_by_name(cli, logs):
    other = (logs / "C.jsonl").read_text(encoding="utf-8").replace('"pretrain"', '"other"')
    both = logs / "both.jsonl"
    both.write_text((logs / "A.jsonl").read_text(encoding="utf-8") + other, encoding="utf-8")
    ledger = ("--ledger", logs / "two.db")
    assert cli("import", both, *ledger).exit_code == 0
    (newest,) = sections(cli("report", *ledger, "--json"))
    (named,) = sections(cli("report", *ledger, "--run", "pretrain", "--json"))
    assert newest["headline"]["sentence"].startswith("28.6 %")
    assert named["headline"]["sentence"].startswith("100.0 %")
    # The file covers more time than the run lasted; its rows are shown all the same.
    assert named["parts"][-1]["tables"][0]["rows"][0][0] == "both.jsonl"


def test_beside_a_log_that_can_tell_of_failures_the_fleet_is_reported_too(cli, logs):
    shutil.copy(SAMPLES / "kern.log", logs / "kern.log")
    ledger = ("--ledger", logs / "mixed.db")
    assert cli("import", logs / "B.jsonl", logs / "kern.log", "--year", "2026", *ledger).exit_code == 0  # fmt: skip
    found = sections(cli("report", *ledger, "--run", "pretrain", "--json"))
    assert [section["name"] for section in found] == ["run", "fleet"]


def test_a_bundle_of_an_imported_run_recomputes(cli, logs):
    ledger = ("--ledger", logs / "b.db")
    assert cli("import", logs / "E.jsonl", *ledger).exit_code == 0
    assert cli("bundle", logs / "b.db", "-o", logs / "bundle").exit_code == 0
    result = cli("recompute", logs / "bundle", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["is_equal"] is True


def test_rates_of_a_log_of_steps_are_refused_with_the_next_command(cli, logs):
    assert cli("import", logs / "B.jsonl", "--ledger", logs / "b.db").exit_code == 0
    result = cli("rates", "--ledger", logs / "b.db")
    assert result.exit_code == 3
    assert "which holds none by its nature: found goodput" in result.stderr
    assert f"lastgood report --ledger {logs / 'b.db'}" in result.stderr
