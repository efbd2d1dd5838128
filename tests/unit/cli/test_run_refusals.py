"""What `lastgood run` refuses has not begun: one message, and no word of a run before it."""

import pytest

from lastgood.base.clock import ManualClock, SystemClock
from lastgood.cli.live import LineView
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("raise SystemExit('the script was started')\n")
    return path


@pytest.fixture
def ledger(tmp_path):
    """It holds a run that has finished."""
    clock, path = SystemClock(), tmp_path / "ledger.db"
    now_us = clock.wall_us()
    told = [
        ("run.start", {"command": ["train.py"], "world": 1}),
        ("step", {"first": 1, "last": 1, "began_us": now_us, "ended_us": [now_us]}),
        ("run.end", {"exit_code": 0}),
    ]
    with open_store(path) as store:
        store.append(
            [new_event(kind, clock=clock, run="done", attempt=1, body=body) for kind, body in told]
        )
    return path


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--contract", "bad.yaml"), "bad.yaml"),
        (("--metrics", ":99999"), "no such port"),
        (("--ledger", "."), "ledger"),
        (("--ledger", "none/l.db"), "mkdir -p "),
        (("--ledger", "empty.db"), "not a ledger: found an empty file"),
        (("--run-id", "done"), "the run with this id has finished"),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "act"])
def test_a_refusal_is_all_that_is_said(cli, tmp_path, monkeypatch, script, ledger, options, told, mode):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("no: contract\n")
    (tmp_path / "empty.db").touch()
    named = () if "--ledger" in options else ("--ledger", ledger)
    result = cli("run", "--mode", mode, *named, *options, script.name)
    assert result.exit_code in {2, 3}
    assert told in result.stderr
    assert result.stderr.startswith("lastgood: LG-")
    assert not any(
        word in result.stderr for word in ("observing", "starts all ranks", "metrics at")
    )
    assert not (tmp_path / "none").exists()
    assert (tmp_path / "empty.db").read_bytes() == b""


def test_what_opens_a_run_is_said_when_it_begins_and_once(tmp_path, capsys):
    view = LineView(tmp_path / "l.db")
    view.open_with("observing train.py")
    assert capsys.readouterr().err == ""
    start = new_event("run.start", clock=ManualClock(0), run="r", body={"world": 1, "spares": 0})
    for _ in range(2):
        view.show(start)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["lastgood: observing train.py", *2 * [lines[-1]]]
    assert lines[-1].startswith("lastgood: run r: 1 rank")
