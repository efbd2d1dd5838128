"""No flag is taken in silence: it is honoured, or refused with exit 2 and what to type."""

from __future__ import annotations

import pytest

from lastgood.ledger.store import open_store
from tests.unit.evidence import made_fleet as made
from tests.unit.evidence import sample_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("flags")


@pytest.fixture(scope="module")
def fleet(folder):
    return made.fleet().write(folder / "fleet.db")


@pytest.fixture(scope="module")
def again(folder):
    return made.fleet().write(folder / "again.db")


@pytest.fixture(scope="module")
def run(folder):
    """A ledger of a supervised run, without one imported failure."""
    path = folder / "run.db"
    with open_store(path, clock=made.CLOCK) as store:
        store.append(sample_run.five_faults())
    return path


def refused(cli, *words):
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.stdout
    return " ".join(result.stderr.split())


def test_two_forms_at_once_are_refused(cli, fleet):
    said = refused(cli, "rates", "--ledger", fleet, "--format", "csv", "--json")
    assert "leave out --json, or --format csv" in said
    assert cli("rates", "--ledger", fleet, "--format", "json", "--json").exit_code == 0


@pytest.mark.parametrize(
    "flag",
    [
        ("--nodes", "8"),
        ("--devices", "8"),
        ("--since", "2024-01-01"),
        ("--until", "2024-01-01"),
        ("--group", "gap:5min@host"),
        ("--interval", "exact"),
    ],
)
def test_a_question_about_rates_of_a_run_without_imports_is_refused(cli, run, flag):
    said = refused(cli, "report", run, *flag)
    assert "a report gives rates of imported failures only" in said
    assert flag[0] in said
    following = said.split("recorded there: lastgood ")[1].split()
    assert following == ["rates", "--ledger", str(run)]
    assert cli(*following).exit_code == 0


def test_a_question_that_a_bundle_would_set_aside_is_refused(cli, run, tmp_path):
    said = refused(cli, "bundle", run, "-o", tmp_path / "b", "--nodes", "8")
    assert "a report gives rates of imported failures only" in said
    assert not (tmp_path / "b").exists()


def test_a_kind_of_charts_without_charts_is_refused(cli, fleet):
    said = refused(cli, "report", fleet, "--chart-format", "pdf")
    assert "--charts DIR --chart-format pdf" in said


def test_a_ledger_beside_two_ledgers_to_compare_is_refused(cli, fleet, again):
    said = refused(cli, "rates", "--ledger", fleet, "--nodes", "40", "--compare", fleet, again)
    assert "both sides name their ledger themselves" in said


@pytest.mark.parametrize("flag", ["--since", "--until"])
def test_a_cut_that_the_compared_windows_set_aside_is_refused(cli, fleet, flag):
    windows = ("2023-12-01..2024-01-01", "2024-01-01..2024-02-01")
    said = refused(cli, "rates", "--ledger", fleet, flag, "2024-01-10", "--compare", *windows)
    assert "the windows say this themselves" in said
