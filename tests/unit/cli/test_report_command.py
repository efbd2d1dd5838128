"""`lastgood report` on a ledger, on an export, and on log files that go into a temporary ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastgood.cli.report_command import is_export, is_ledger
from tests.unit.evidence import made_fleet as made

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "import"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return made.troubled().write(tmp_path_factory.mktemp("report") / "fleet.db")


def trace(path: Path) -> Path:
    """Our own little trace in the form of the published one: four faults on two nodes in ten days."""
    rows = []
    for day, node in ((1.0, "a"), (3.0, "b"), (5.0, "a"), (9.0, "b")):
        fault = {"Level": "Hardware Failure", "Class": "GPU", "Desc": "made up"}
        for at, kind in ((day, "fault_start"), (day + 0.5, "fault_end")):
            rows.append({"node_id": node, "event_time": at, "event_type": kind, "fault_type": fault})  # fmt: skip
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_a_log_file_is_imported_for_the_moment_and_that_is_said(cli, tmp_path):
    file = trace(tmp_path / "trace.json")
    result = cli("report", file)
    assert result.exit_code == 0
    assert "imported into a temporary ledger: 8 rows read, 8 accepted" in result.stderr
    assert "trace.json: stepfun (detected)" in result.stderr
    assert "4 incidents on 2 nodes in 10 days" in " ".join(result.stdout.split())
    assert "temporary, from trace.json" in result.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) in (["state", "trace.json"], ["trace.json"])


def test_rows_that_were_rejected_are_named_though_nothing_could_be_counted(cli, tmp_path):
    file = tmp_path / "trace.json"
    rows = [{"node_id": "a", "event_time": "soon", "event_type": "fault_start",
             "fault_type": {"Level": "x", "Class": "y", "Desc": "z"}}]  # fmt: skip
    file.write_text(json.dumps(rows), encoding="utf-8")
    result = cli("report", file)
    assert "1 rejected" in result.stderr
    assert "rejected: event_time is no number of days (1, first at trace.json#1)" in result.stderr


def test_a_ledger_is_known_by_its_first_bytes_and_not_by_its_name(ledger, tmp_path):
    odd = tmp_path / "kern.log"
    odd.write_bytes(ledger.read_bytes())
    assert (is_ledger(odd), is_ledger(tmp_path / "none"), is_export(tmp_path)) == (True, False, False)  # fmt: skip
    other = tmp_path / "other.db"
    other.write_bytes(b"SQL?te format 3\x00" + bytes(200))
    assert not is_ledger(other)


def test_a_ledger_and_files_together_are_refused_with_the_next_command(cli, ledger, tmp_path):
    result = cli("report", ledger, trace(tmp_path / "t.json"))
    assert result.exit_code == 2
    assert "lastgood import FILE... --ledger LEDGER" in result.stderr
    assert cli("report", trace(tmp_path / "t.json"), "--ledger", ledger).exit_code == 2


def test_the_ledger_may_be_named_by_an_option(cli, ledger):
    assert cli("report", "--ledger", ledger, "--json").json["sections"][0]["name"] == "fleet"


def test_a_page_and_charts_are_written_where_they_were_asked_for(cli, ledger, tmp_path):
    page, folder = tmp_path / "page.html", tmp_path / "charts"
    result = cli("report", ledger, "--nodes", "40", "--html", page, "--charts", folder, "--chart-format", "pdf")  # fmt: skip
    assert result.exit_code == 0
    assert "charts: 6 in" in result.stderr
    assert (
        page.read_text(encoding="utf-8").count("<svg") == 12
    )  # each picture for a desk and for a phone
    assert all(p.read_bytes().startswith(b"%PDF") for p in folder.iterdir())
    assert len(list(folder.iterdir())) == 6


def test_an_export_gives_the_numbers_of_its_ledger(cli, ledger, tmp_path):
    pytest.importorskip("pyarrow")
    from lastgood.ledger.parquet_export import export_parquet

    export_parquet(ledger, tmp_path / "export")
    said = [
        cli("report", path, "--nodes", "40", "--json").json["sections"][0]
        for path in (ledger, tmp_path / "export")
    ]
    assert said[0]["answers"] == said[1]["answers"]
    assert said[0]["figures"] == said[1]["figures"]
    notes = [
        [
            note["text"]
            for part in one["parts"]
            if part["name"] == "data-quality"
            for note in part["notes"]
        ]
        for one in said
    ]
    assert [n for n in notes[1] if n not in notes[0]][-1].startswith("Read from an export")
    assert not [n for n in notes[0] if "export" in n]


def test_logs_with_one_run_show_it_and_logs_with_many_show_the_fleet(cli):
    one = cli("report", SAMPLES / "goodput.jsonl", "--json").json["sections"]
    assert [section["name"] for section in one] == ["run"]  # a log of steps gives no rate
    many = cli("report", SAMPLES / "sacct_requeue.psv", "--json").json["sections"]
    assert [section["name"] for section in many] == ["fleet"]


def test_the_report_names_the_command_that_gives_it_again(cli, ledger):
    words = (
        "--nodes", "40", "--group", "links+merge:1s@site", "--interval", "exact", "--since", "2023-11-20T00:00:00.000",
    )  # fmt: skip
    told = cli("report", ledger, *words, "--json").json
    command = told["reproduction"]["command"]
    assert command == f"lastgood report {ledger} {' '.join(words)}"
    again = cli(*command.split()[1:], "--json").json
    assert again["sections"] == told["sections"]


def test_another_mapping_table_gives_another_view_and_leaves_the_ledger_alone(cli, tmp_path):
    from lastgood.ledger.importers.mapping import load_mapping

    ledger = tmp_path / "l.db"
    assert cli("import", trace(tmp_path / "trace.json"), "--ledger", ledger).exit_code == 0
    before = ledger.read_bytes()
    code = "Hardware Failure/GPU/made up"
    table = {
        "mapping": "stepfun", "version": "9", "source": "a test",
        "rows": {code: {"class": "fail_slow", "cause": "host.power", "cause_status": "supported"}},
    }  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(table), encoding="utf-8")
    assert load_mapping("stepfun", tmp_path / "mine.json").version == "9"
    asked = ("rates", "--ledger", ledger, "--by", "cause", "--by", "class", "--json")
    mine = cli(*asked, "--mapping", f"stepfun={tmp_path / 'mine.json'}").json["rows"]
    assert {r["group"] for r in mine if r["by"] == "cause"} == {"host", "host.power"}
    assert {r["group"] for r in mine if r["by"] == "class"} == {"fail_slow"}
    assert {r["group"] for r in cli(*asked).json["rows"] if r["by"] == "class"} == {"unknown"}
    assert ledger.read_bytes() == before


def test_a_ledger_with_failures_and_no_run_counts_them_and_names_who_compares_them(
    cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "Nothing to report yet" in cli("report", cli_made(cli, "a.db")).stdout
    said = ("--node", "n1", "--reason", "x", "--ledger", "a.db")
    for name in ("fail_stop", "fail_stop", "sdc"):
        assert cli("record", "check", *said, "--class", name).exit_code == 0
    text = " ".join(cli("report", "a.db").stdout.split())
    assert "The ledger holds no run; 3 failures are recorded in it: 2 fail-stop, 1 SDC." in text
    assert "Count and compare them with: lastgood rates --ledger a.db" in text


def cli_made(cli, ledger):
    """A ledger with one record that is no failure."""
    assert cli("record", "check", "--node", "n", "--reason", "x", "--ledger", ledger).exit_code == 0
    return ledger


def test_the_command_under_more_works_from_where_it_was_typed(cli, tmp_path, monkeypatch):
    import shlex

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my logs"
    folder.mkdir()
    (folder / "goodput.jsonl").write_bytes((SAMPLES / "goodput.jsonl").read_bytes())
    told = cli("report", "my logs/goodput.jsonl", "--json").json
    command = shlex.split(told["reproduction"]["command"])
    assert command[:3] == ["lastgood", "report", "my logs/goodput.jsonl"]
    assert cli(*command[1:], "--json").json["sections"] == told["sections"]


def test_charts_of_a_report_without_anything_to_draw_are_said_not_to_be_there(cli, tmp_path):
    ledger = cli_made(cli, tmp_path / "a.db")
    result = cli("report", ledger, "--charts", tmp_path / "charts")
    assert result.exit_code == 0
    assert "charts: none; this report has nothing that can be drawn" in result.stderr
