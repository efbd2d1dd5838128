"""The pages about drills and claims: every command runs, every word of an answer and of an expectation is explained."""

import re
import shlex
from pathlib import Path

import pytest

from lastgood.cli.main import main
from lastgood.evidence.claim_records import Answer, ClaimName
from lastgood.training.drills.catalogue import all_drills
from lastgood.training.drills.drill import Outcome
from tests.unit.evidence.claim_cases import TEN, write_side

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRILLS = (DOCS / "drills.md").read_text(encoding="utf-8")
EVIDENCE = (DOCS / "evidence.md").read_text(encoding="utf-8")


def commands(text, verb):
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"lastgood {verb}")]


COMPARES = commands(EVIDENCE, "compare")
PLAYS = commands(DRILLS, "drill")


def test_there_are_commands_to_run():
    assert len(COMPARES) == 3
    assert len(PLAYS) == 4


@pytest.mark.parametrize("command", COMPARES, ids=" ".join)
def test_every_comparison_of_the_page_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_side(tmp_path / "before.db", "a", TEN)
    write_side(tmp_path / "after.db", "b", [v / 4 for v in TEN], recovery_s=0.1)
    assert main(command) in {0, 1}
    assert capsys.readouterr().out


def test_the_list_of_drills_is_the_catalogue(capsys):
    assert main(PLAYS[0]) == 0
    out = capsys.readouterr().out
    assert all(f"  {drill.name} " in out for drill in all_drills())


@pytest.mark.parametrize("command", PLAYS[1:], ids=" ".join)
def test_every_drill_that_the_page_plays_exists(command, tmp_path, capsys):
    """Without its folder; the plays themselves are in tests/fault/test_drills.py."""
    chosen = command[: command.index("-o")]
    if "--contract" in chosen:
        (tmp_path / "contract.yaml").write_text("x")
        chosen[chosen.index("--contract") + 1] = str(tmp_path / "contract.yaml")
    assert main([*chosen, "--list"]) == 0
    assert capsys.readouterr().out


def test_the_page_explains_every_answer_and_every_claim():
    for answer in Answer:
        assert f"| {answer} |" in EVIDENCE
    for claim in ClaimName:
        assert f"| `{claim}` |" in EVIDENCE


def test_the_page_names_every_outcome():
    row = next(line for line in DRILLS.splitlines() if line.startswith("| outcome |"))
    assert all(outcome.value in row for outcome in Outcome)
