"""Nothing is appended by hand, or by a run, to a ledger that does not verify; of a large one the newest rows are checked."""

from __future__ import annotations

import subprocess
import sys

import apsw
import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.errors import LedgerCorrupt
from lastgood.ledger import appendable
from lastgood.ledger.appendable import require_appendable
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store
from lastgood.training.drills import series
from tests.unit.evidence import sample_run

COUNT = 40
RECORD = ("record", "x", "--node", "n", "--reason", "r", "--ledger")


@pytest.fixture
def ledger(tmp_path):
    clock = SystemClock()
    with open_store(tmp_path / "l.db") as store:
        store.append([new_event("annotation", clock=clock, body={"n": n}) for n in range(COUNT)])
    return tmp_path / "l.db"


@pytest.fixture
def is_large(monkeypatch):
    monkeypatch.setattr(appendable, "WHOLE_ROWS_MAX", 20)
    monkeypatch.setattr(appendable, "NEWEST_ROWS", 10)


def change(ledger, seq):
    connection = apsw.Connection(str(ledger))
    connection.execute("UPDATE event SET body = CAST(body || ' ' AS BLOB) WHERE seq = ?", (seq,))
    connection.close()


@pytest.mark.parametrize("command", [RECORD, ("import", "events.log", "--ledger")])
def test_a_ledger_that_does_not_verify_stays_byte_for_byte(cli, ledger, tmp_path, monkeypatch, command):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.log").write_text(
        "Nov  2 03:14:07 n kernel: NVRM: Xid (PCI:0000:3b:00): 79\n"
    )
    change(ledger, 7)
    before = ledger.read_bytes()
    result = cli(*command, ledger)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing is appended to it: found row 7" in result.stderr
    assert f"run: lastgood verify {ledger}" in result.stderr
    assert f"write to a new one: --ledger {tmp_path / 'l-2.db'}" in result.stderr
    assert ledger.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("l.db")) == ["l.db"]


@pytest.mark.parametrize("way", [("--mode", "observe"), ("--mode", "act"), ()])
def test_a_run_is_refused_before_any_rank_starts(cli, ledger, tmp_path, way):
    script = tmp_path / "train.py"
    script.write_text(
        f"open({str(tmp_path / 'started')!r}, 'w')\n"
        + ("" if way else "import lastgood\nlastgood.start()\n")
    )
    (tmp_path / "l-2.db").touch()
    change(ledger, 7)
    before = ledger.read_bytes()
    result = cli("run", *way, "--ledger", ledger, script)
    assert result.exit_code == 1
    assert "nothing is appended to it: found row 7" in result.stderr
    assert f"run: lastgood verify {ledger}" in result.stderr
    assert f"write to a new one: --ledger {tmp_path / 'l-3.db'}" in result.stderr
    assert ledger.read_bytes() == before
    assert not (tmp_path / "started").exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("l.db")) == ["l.db"]


def test_a_run_into_a_large_ledger_says_that_the_newest_rows_were_checked(cli, ledger, is_large, tmp_path):  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(7)\n")
    result = cli("run", "--ledger", ledger, script)
    assert result.exit_code == 7
    assert "only the newest 10 of 40 rows were checked before this" in result.stderr


def test_a_folder_of_drills_is_gone_on_with_only_when_its_ledger_holds(cli, ledger, tmp_path, monkeypatch):  # fmt: skip
    """What held before is read from that ledger and not played again."""
    folder = tmp_path / "drills"
    (folder / "jobs").mkdir(parents=True)
    change(ledger, 7)
    kept = ledger.rename(folder / "ledger.db")
    before = kept.read_bytes()
    monkeypatch.setattr(series, "play_series", lambda *_, **__: pytest.fail("a drill was played"))
    result = cli("drill", "training", "--faults", "kill-rank", "-o", folder)
    assert result.exit_code == 1
    assert "nothing is appended to it: found row 7" in result.stderr
    assert f"run: lastgood verify {kept}" in result.stderr
    assert "play into a new one: -o DIR" in result.stderr
    assert kept.read_bytes() == before


IN_A_CHILD = """
import sys
from pathlib import Path
from lastgood.ledger import appendable

whole = appendable.require_appendable
here = []
def require(path):
    here.append(path.name)
    return whole(path)
appendable.require_appendable = require
def answer(name):
    here.clear()
    try:
        said = appendable.begin_check(Path(sys.argv[1]) / name)()
    except Exception as error:
        said = type(error).__name__
    print(ascii(said), here)
answer("l.db")
answer("bad.db")
answer("none.db")
whole = lambda path: "a note of \\udcff"
answer("l.db")
"""


def test_the_check_beside_a_start_is_made_here_only_where_the_child_does_not_say_that_it_holds(ledger, tmp_path):  # fmt: skip
    """In a process of its own: one with threads, as a test runner may have, is not forked."""
    (tmp_path / "bad.db").write_bytes(ledger.read_bytes())
    change(tmp_path / "bad.db", 7)
    result = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD, tmp_path],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=50,
    )
    assert result.stdout.splitlines() == [
        "None []",
        "'LedgerCorrupt' ['bad.db']",
        "None ['none.db']",
        r"'a note of \udcff' []",
    ]


def test_a_file_that_lost_its_end_is_not_written_to(cli, ledger):
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-1])
    assert cli(*RECORD, ledger).exit_code == 1
    assert ledger.read_bytes() == whole[:-1]


def test_of_a_large_ledger_the_newest_rows_are_checked_and_that_is_said(cli, ledger, is_large):
    result = cli(*RECORD, ledger)
    assert result.exit_code == 0
    assert "only the newest 10 of 40 rows were checked before this" in result.stderr


@pytest.mark.parametrize("seq", [30, 39])
def test_damage_in_the_newest_rows_of_a_large_ledger_is_found(ledger, is_large, seq):
    change(ledger, seq)
    with pytest.raises(LedgerCorrupt, match=f"row {seq}"):
        require_appendable(ledger)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM event WHERE seq = 39",
        "DELETE FROM event WHERE seq = 35",
        "UPDATE frontier SET size = 39",
        "UPDATE frontier SET link = zeroblob(32)",
    ],
)
def test_a_frontier_that_counts_other_rows_is_found(ledger, is_large, statement):
    connection = apsw.Connection(str(ledger))
    connection.execute(statement)
    connection.close()
    with pytest.raises(LedgerCorrupt):
        require_appendable(ledger)


def test_a_large_file_that_lost_its_end_is_found(ledger, is_large):
    ledger.write_bytes(ledger.read_bytes()[:-4096])
    with pytest.raises(LedgerCorrupt):
        require_appendable(ledger)


def test_a_ledger_that_is_not_there_yet_may_be_made(tmp_path):
    assert require_appendable(tmp_path / "new.db") is None


# --- the run that a record names ------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    events = sample_run.undisturbed()
    with open_store(tmp_path / "run.db") as store:
        store.append(events)
    return next(e.run for e in events if e.kind == "run.start")


def test_a_divergent_step_of_an_unknown_run_is_refused_with_near_names(cli, run, tmp_path):
    ledger = tmp_path / "run.db"
    verdict = ("--class", "sdc", "--run", f"{run}x", "--first-divergent-step", "2")
    result = cli(*RECORD, ledger, *verdict)
    assert (result.exit_code, f"did you mean {run}?" in result.stderr) == (2, True)
    missing = tmp_path / "none.db"
    assert cli(*RECORD, missing, *verdict).exit_code == 2
    assert not missing.exists()


def test_a_step_that_the_run_never_made_is_refused_with_those_it_made(cli, run, tmp_path):
    verdict = ("--class", "sdc", "--run", run, "--first-divergent-step", "99999")
    result = cli(*RECORD, tmp_path / "run.db", *verdict)
    assert result.exit_code == 2
    assert f"found 99,999, needs a step of run {run}, " in result.stderr


def test_a_prolog_may_name_a_run_that_has_not_begun_and_is_told(cli, run, tmp_path):
    result = cli(*RECORD, tmp_path / "run.db", "--run", f"{run}x")
    assert result.exit_code == 0
    assert f"holds no run {run}x yet; did you mean {run}?" in result.stderr
    assert "note" not in cli(*RECORD, tmp_path / "run.db", "--run", run).stderr
