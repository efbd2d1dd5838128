"""A ledger that does not verify gives no figure, whichever command reads it: the row is named, and what to type next."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import lastgood
from lastgood.base.errors import LedgerCorrupt
from lastgood.evidence.claim_sides import read_sides
from lastgood.ledger import verified
from lastgood.ledger.store import open_store
from tests.unit.evidence import made_fleet, sample_run
from tests.unit.evidence.claim_cases import TEN, write_side

BAD_ROW = 7


def damage(path: Path) -> Path:
    """Change one row as a hand would that knows JSON: it still reads as the same event, and its bytes are others."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE event SET body = CAST(body || ' ' AS BLOB) WHERE seq = ?", (BAD_ROW,)
    )
    assert connection.changes() == 1
    connection.close()
    return path


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A ledger of runs and one of imported failures, each with a row that was changed; and a good side."""
    folder = tmp_path_factory.mktemp("broken")
    with open_store(folder / "run.db") as store:
        store.append(sample_run.five_faults())
    made_fleet.troubled().write(folder / "fleet.db")
    write_side(folder / "good.db", "good", TEN)
    write_side(folder / "side.db", "side", TEN)
    for name in ("run.db", "fleet.db", "side.db"):
        damage(folder / name)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "report {run}",
        "report --ledger {fleet} --json",
        "report {run} --html {out}/page.html",
        "rates --ledger {fleet}",
        "rates --compare {fleet} {run}",
        "rates --ledger {fleet} --compare ..2026-01-01 2026-01-01..",
        "plan --ledger {fleet}",
        "what-if --ledger {fleet} --change mtti=x2",
        "project --ledger {fleet} --devices 100",
        "compare {good} {side} --claim ettr",
        "compare {side} {good} --claim ettr",
        "compare {good} {side}#side --claim ettr",
        "bundle {run} -o {out}/run.tar",
        "bundle {run} --share -o {out}/run.tar",
        "export {run} -o {out}/export",
    ],
)
def test_no_command_computes_from_a_ledger_that_does_not_verify(cli, broken, tmp_path, command):
    places = {name: broken / f"{name}.db" for name in ("run", "fleet", "side", "good")}
    words = command.format(out=tmp_path, **places).split()
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"row {BAD_ROW}" in result.stderr
    assert "lastgood verify" in result.stderr
    assert [p.name for p in tmp_path.iterdir() if p.name != "state"] == []


def test_opening_it_in_python_is_refused_too(broken):
    with pytest.raises(LedgerCorrupt, match=f"row {BAD_ROW}"):
        lastgood.open(broken / "run.db")


def test_what_a_live_ledger_got_since_it_was_opened_is_verified_too(tmp_path):
    path = tmp_path / "live.db"
    with open_store(path) as store:
        store.append(sample_run.undisturbed())
    opened = lastgood.open(path)
    assert len(opened.events())
    with open_store(path) as store:
        store.append(sample_run.five_faults())
    damage(path)
    with pytest.raises(LedgerCorrupt, match=f"row {BAD_ROW}"):
        opened.events()


@pytest.mark.parametrize("command", ["report {0}", "rates --ledger {0}", "bundle {0} -o {1}"])
def test_a_command_verifies_a_ledger_once(cli, tmp_path, monkeypatch, command):
    path = made_fleet.troubled().write(tmp_path / "fleet.db")
    seen = []
    real = verified.verify_ledger
    monkeypatch.setattr(verified, "verify_ledger", lambda *a, **k: (seen.append(a), real(*a, **k))[1])  # fmt: skip
    assert cli(*command.format(path, tmp_path / "b.tar").split()).exit_code == 0
    assert len(seen) == 1


def test_two_runs_of_one_ledger_are_verified_once(tmp_path, monkeypatch):
    path = write_side(tmp_path / "both.db", "a", TEN)
    seen = []
    real = verified.verify_ledger
    monkeypatch.setattr(verified, "verify_ledger", lambda *a, **k: (seen.append(a), real(*a, **k))[1])  # fmt: skip
    before, after = read_sides(f"{path}#a", f"{path}#a")
    assert len(seen) == 1
    assert before.runs == after.runs == ("a",)
