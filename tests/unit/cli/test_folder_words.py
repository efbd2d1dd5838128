"""A folder where a ledger was meant is called what it is, with the command that does what was wanted."""

from __future__ import annotations

import pytest

from tests.unit.evidence import made_fleet as made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("folders")


@pytest.fixture(scope="module")
def ledger(folder):
    return made.fleet().write(folder / "fleet.db")


@pytest.fixture(scope="module")
def export(folder, ledger):
    pytest.importorskip("pyarrow")
    from lastgood.ledger.parquet_export import export_parquet

    export_parquet(ledger, folder / "months")
    return folder / "months"


def refused(cli, *words):
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    return " ".join(result.stderr.split())


def test_an_export_is_told_how_it_is_read_and_what_verify_wants(cli, export):
    for command in (("verify",), ("bundle", "-o", export / "b")):
        said = refused(cli, *command, export)
        assert "a folder that lastgood export wrote" in said
        assert f"lastgood rates --ledger {export}" in said
        assert "lastgood verify LEDGER" in said


def test_a_folder_with_ledgers_names_one_of_them(cli, folder, ledger):
    for command in (("verify",), ("rates", "--ledger")):
        assert f"name the file: {ledger}" in refused(cli, *command, folder)


def test_a_folder_without_a_ledger_says_so(cli, tmp_path):
    assert "a folder without a ledger" in refused(cli, "verify", tmp_path)


def test_a_bundle_is_for_recompute_which_names_the_fleet_and_no_run_none(cli, ledger, tmp_path):
    assert cli("bundle", ledger, "-o", tmp_path / "b").exit_code == 0
    assert f"lastgood recompute {tmp_path / 'b'}" in refused(cli, "verify", tmp_path / "b")
    said = cli("recompute", tmp_path / "b").stdout
    assert "of the fleet, recomputed from" in said
    assert "None" not in said


def test_a_report_without_a_ledger_names_the_import_of_logs(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("LASTGOOD_LEDGER", str(tmp_path / "none.db"))
    assert "lastgood import PATH..." in refused(cli, "report")
