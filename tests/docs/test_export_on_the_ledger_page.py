"""docs/ledger.md: the export, the query and the rules on the page run, and name what is there."""

import re
from pathlib import Path

import pytest

from lastgood.ledger.grouping import parse_rule
from lastgood.ledger.store import open_store
from tests.unit.ledger.cases import clock_at, some_event

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Parquet for analysis")[1].split("\n## ")[0]
RULES = re.findall(r"^\| `--group (\S+)` \|", PAGE, re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "LEDGER", clock=clock_at()) as store:
        store.import_events(
            [
                some_event(
                    number,
                    kind="observation",
                    class_="fail_stop",
                    domain=[{"kind": "host", "id": f"h{number % 2}"}],
                )
                for number in range(5)
            ]
        )
    return tmp_path


def test_the_commands_run_in_their_order(cli, folder):
    pytest.importorskip("pyarrow", reason="the extra analysis is not installed")
    (block,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    for line in block.splitlines():
        result = cli(*line.split()[1:])
        assert result.exit_code == 0, result.stderr
    assert (folder / "months" / "manifest.json").exists()


def test_the_query_runs(cli, folder):
    duckdb = pytest.importorskip("duckdb", reason="the extra analysis is not installed")
    pytest.importorskip("pyarrow", reason="the extra analysis is not installed")
    assert cli("export", "LEDGER", "-o", "months").exit_code == 0
    (query,) = re.findall(r"```sql\n(.*?)```", SECTION, re.DOTALL)
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall() == [("h0", 3), ("h1", 2)]


def test_every_rule_on_the_page_is_one():
    assert len(RULES) >= 4
    for rule in RULES:
        assert parse_rule(rule)
