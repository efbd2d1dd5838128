"""The three commands: what goes to stdout and stderr, and with which exit code."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from lastgood.contract.starter import starter_text
from lastgood.evidence import archive
from lastgood.ledger.store import open_store
from tests.unit.evidence import sample_run

SAMPLES = Path(__file__).parents[2] / "samples" / "import"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with open_store(path) as store:
        store.append(sample_run.five_faults())
    return path


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "two.db"
    with open_store(path) as store:
        store.append(sample_run.undisturbed(last_step=5))
        store.append(sample_run.five_faults(last_step=340))
    return path


def test_report_prints_and_writes_nothing(cli, ledger):
    before = sorted(ledger.parent.iterdir())
    result = cli("report", ledger)
    assert result.exit_code == 0
    assert "All 5 injected faults were detected" in result.stdout
    assert result.stderr == ""
    assert sorted(ledger.parent.iterdir()) == before


def test_report_fits_80_columns(cli, ledger):
    assert max(len(line.rstrip()) for line in cli("report", ledger).stdout.splitlines()) <= 80


def test_report_speaks_json(cli, ledger):
    told = cli("report", ledger, "--json").json
    assert told["subject"] == sample_run.RUN
    assert told["sections"][0]["headline"]["state"] == "unknown"
    assert told["reproduction"]["command"] == f"lastgood report {ledger} --run {sample_run.RUN}"


def test_report_writes_the_page_where_it_is_told(cli, ledger, tmp_path):
    result = cli("report", ledger, "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert result.stderr == f"page: {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir() if p.suffix] == ["page.html"]


def test_report_takes_the_ledger_from_the_environment(cli, ledger, monkeypatch):
    monkeypatch.setenv("LASTGOOD_LEDGER", str(ledger))
    assert cli("report", "--json").json["subject"] == sample_run.RUN


def test_report_takes_the_newest_run_or_the_named_one(cli, two_runs):
    assert cli("report", two_runs, "--json").json["subject"] == sample_run.RUN
    assert cli("report", two_runs, "--run", "quiet-1", "--json").json["subject"] == "quiet-1"


def test_report_judges_by_the_contract_it_is_given(cli, ledger, tmp_path):
    (tmp_path / "contract.yaml").write_text(starter_text())
    told = cli("report", ledger, "--contract", tmp_path / "contract.yaml")
    assert "Objectives are not declared" not in told.stdout
    assert "useful-time" in told.stdout
    assert "Objectives are not declared" in cli("report", ledger).stdout


def test_an_empty_ledger_is_reported_as_such(cli, tmp_path):
    open_store(tmp_path / "l.db").close()
    result = cli("report", tmp_path / "l.db")
    assert result.exit_code == 0
    assert "the ledger holds no run" in result.stdout


@pytest.mark.parametrize("command", [("report",), ("bundle", "-o", "b.tar")])
def test_no_ledger_is_bad_input_with_the_next_command(cli, tmp_path, command):
    result = cli(*command, tmp_path / "none.db")
    assert result.exit_code == 2
    assert "lastgood demo" in result.stderr
    assert not (tmp_path / "none.db").exists()


def test_an_unknown_run_is_bad_input_and_names_those_that_are_there(cli, two_runs):
    result = cli("report", two_runs, "--run", "nope")
    assert result.exit_code == 2
    assert f"quiet-1, {sample_run.RUN}" in result.stderr


def test_a_file_that_is_no_ledger_is_refused_without_a_traceback(cli, tmp_path):
    (tmp_path / "l.db").write_bytes(b"hello" * 1000)
    result = cli("report", tmp_path / "l.db")
    assert result.exit_code in {2, 3}
    assert "no format recognises this file" in result.stderr
    assert "lastgood import FORMAT PATH" in result.stderr


def test_a_ledger_whose_writer_was_killed_is_reported_from_its_log(cli, tmp_path):
    """Its main file holds no page yet: everything is in the log beside it."""
    place = tmp_path / "live.db"
    with open_store(place) as store:
        store.append(sample_run.five_faults())
        for name in (place.name, f"{place.name}-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")
    result = cli("report", tmp_path / "killed-live.db")
    assert result.exit_code == 0, result.stderr
    assert sample_run.RUN in result.stdout


def test_a_database_that_is_no_ledger_is_called_that(cli, tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table t (x)")
    result = cli("report", tmp_path / "other.db")
    assert result.exit_code in {2, 3}
    assert "not a ledger" in result.stderr


def test_a_file_of_a_folder_that_nobody_knows_is_said_and_counts(cli, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "y.log").write_text("some text nobody knows\n")
    shutil.copy(SAMPLES / "alertmanager.jsonl", folder)
    result = cli("report", folder)
    assert "y.log is left out" in result.stderr
    assert result.exit_code == 1


def test_bundle_then_recompute_says_equal_with_the_count(cli, ledger, tmp_path):
    made = cli("bundle", ledger, "-o", tmp_path / "b.tar")
    assert made.exit_code == 0
    assert f"lastgood recompute {tmp_path / 'b.tar'}" in made.stdout
    again = cli("recompute", tmp_path / "b.tar")
    assert again.exit_code == 0
    count = made.stdout.split("(")[1].split(" figures")[0]
    assert again.stdout.startswith(f"equal: {count} figures")


def test_recompute_of_an_edited_bundle_exits_1_and_names_the_first_difference(
    cli, ledger, tmp_path
):
    cli("bundle", ledger, "-o", tmp_path / "b")
    page = tmp_path / "b" / archive.PAGE
    page.write_text(page.read_text().replace("5", "6"))
    result = cli("recompute", tmp_path / "b")
    assert result.exit_code == 1
    assert "first difference: report.html" in result.stdout
    told = cli("recompute", tmp_path / "b", "--json")
    assert (told.exit_code, told.json["is_equal"]) == (1, False)
    assert told.json["first_difference"]["where"] == "report.html"


def test_recompute_of_something_else_exits_2(cli, tmp_path):
    (tmp_path / "b.tar").write_bytes(b"\x00" * 4096)
    result = cli("recompute", tmp_path / "b.tar")
    assert result.exit_code == 2
    assert result.stderr.startswith("lastgood: LG-I")


def test_bundle_refuses_to_overwrite_evidence(cli, ledger, tmp_path):
    (tmp_path / "b.tar").write_text("older evidence")
    result = cli("bundle", ledger, "-o", tmp_path / "b.tar")
    assert result.exit_code == 2
    assert (tmp_path / "b.tar").read_text() == "older evidence"


@pytest.mark.parametrize("command", ["report", "bundle", "recompute"])
def test_every_command_explains_itself(cli, command):
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "count", "told"),
    [([], 1, False), (["--run", sample_run.RUN], 1, True), ([], 2, True)],
)
def test_bundle_says_that_the_ledger_goes_in_whole(
    cli, ledger, two_runs, tmp_path, arguments, count, told
):
    source = ledger if count == 1 else two_runs
    result = cli("bundle", source, *arguments, "-o", tmp_path / "b")
    with open_store(source) as store:
        size = store.size
    runs = "1 run" if count == 1 else "2 runs"
    words = f"the bundle holds the whole ledger: {size:,} events of {runs}\n"
    assert result.stderr == (words if told else "")


def test_the_whole_report_is_printed_when_asked_for(cli, ledger):
    short, whole = (cli("report", ledger, *more).stdout for more in ((), ("--full",)))
    assert "Stops by class" in whole
    assert "Stops by class" not in short
    assert f"lastgood report {ledger} --run {sample_run.RUN} --full" in " ".join(short.split())
    refused = cli("report", ledger, "--full", "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "leave out --full" in refused.stderr


def test_a_report_without_a_contract_names_no_number_of_devices(cli, ledger):
    text = cli("report", ledger, "--full").stdout
    assert "the number of devices is not declared" in text
    assert "training on 4 devices" not in text


def test_a_report_reads_as_a_person_would_say_it(cli, ledger):
    text = cli("report", ledger, "--full").stdout
    assert "Ranks at fault: rank " in text
    assert "Lost device time" in text
    assert not [s for s in text.split("Lost device time ")[1:] if "device-" not in s.split(";")[0]]
