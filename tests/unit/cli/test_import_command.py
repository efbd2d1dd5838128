"""`lastgood import`: what it prints, how it ends, and what an interrupt leaves."""

import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from lastgood.ledger.store import read_store
from lastgood.ledger.verify import verify_ledger

AT = "2026-11-02T03:14:{:02d}Z gpu-0007 kernel: "
XID = "NVRM: Xid (PCI:0000:41:00): {}, pid=31337, name=python3, Ch 8\n"


def row(n: int, code: int = 94) -> str:
    return AT.format(n) + XID.format(code)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(row(1) + AT.format(2) + "usb 1-1: new device\n" + row(3, 79) + XID.format(48))
    return path


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "l.db"


def test_the_table_says_the_format_and_what_became_of_every_row(cli, log, ledger):
    result = cli("import", log, "--ledger", ledger)
    assert result.exit_code == 0
    assert "(detected)" in result.stdout
    counts = next(
        line for line in result.stdout.splitlines() if line.startswith("kern.log")
    ).split()
    assert counts[1] == "kernel"
    assert counts[-6:] == ["4", "2", "1", "1", "3", "0"]
    assert "no time in the line" in result.stdout
    assert "kern.log#4" in result.stdout
    assert "2026-11-02 03:14:01 UTC to 2026-11-02 03:14:03 UTC" in result.stdout
    assert f"3 new events, 0 already there: {ledger}" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= max(80, len(str(ledger)) + 40)


def test_a_second_time_everything_is_already_there(cli, log, ledger):
    cli("import", log, "--ledger", ledger)
    assert "0 new events, 3 already there" in cli("import", log, "--ledger", ledger).stdout


def test_json_carries_the_same_counts(cli, log, ledger):
    told = cli("import", "kernel", log, "--ledger", ledger, "--json").json
    assert told["files"][0]["format"] == "kernel"
    assert told["files"][0]["detected"] is False
    assert told["total"]["rows"] == {"read": 4, "accepted": 2, "ignored": 1, "rejected": 1}
    assert told["total"]["rejected"][0]["examples"][0]["at"] == "kern.log#4"


def test_the_default_ledger_is_the_one_of_verify(cli, log, tmp_path, monkeypatch):
    monkeypatch.setenv("LASTGOOD_LEDGER", str(tmp_path / "mine.db"))
    cli("import", log)
    assert cli("verify", "--json").json["size"] == 3


def test_standard_input_is_a_file_too(cli, ledger, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(row(1).encode())))
    told = cli("import", "-", "--ledger", ledger, "--json").json
    assert told["files"][0]["file"] == "-"
    assert told["total"]["events"] == {"new": 2, "merged": 0}


def test_a_year_that_is_missing_needs_a_flag_on_standard_input(cli, ledger, monkeypatch):
    def data():
        return io.TextIOWrapper(
            io.BytesIO(b"Nov  2 03:14:07 gpu-0007 kernel: " + XID.format(94).encode())
        )

    monkeypatch.setattr(sys, "stdin", data())
    assert "give --year" in cli("import", "-", "--ledger", ledger).stdout
    monkeypatch.setattr(sys, "stdin", data())
    told = cli(
        "import", "-", "--ledger", ledger, "--year", "2026", "--zone", "Europe/Berlin", "--json"
    ).json
    assert told["total"]["inferred_times"] == 0
    assert told["files"][0]["coverage_us"] == [1_793_585_647_000_000] * 2  # 02:14:07 UTC


def test_strict_stops_with_the_place_and_says_what_is_in_the_ledger(cli, log, ledger):
    result = cli("import", "--strict", log, "--ledger", ledger)
    assert result.exit_code == 2
    assert "kern.log:4" in result.stderr
    assert "2 events of this import are in the ledger" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.log"], "No such file"),
        (["kernl", "kern.log"], "write kernel"),
        ([], "nothing to import"),
        (["kernel"], "a format without a file"),
        (["--mapping", "xid", "kern.log"], "NAME=FILE"),
        (["--mapping", "xid=none.json", "kern.log"], "none.json"),
        (["--zone", "Mars", "kern.log"], "no such time zone"),
        (["--boot", "soon", "kern.log"], "--boot"),
        (["--year", "26", "kern.log"], "1990"),
        (["odd.txt"], "no format recognises this file"),
        (["x" * 300], "File name too long"),
    ],
)
def test_a_persons_mistake_is_exit_2_and_one_message(
    cli, log, ledger, monkeypatch, tmp_path, words, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.txt").write_text("lorem ipsum\n")
    result = cli("import", *words, "--ledger", ledger)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not ledger.exists()


def test_a_file_with_the_name_of_a_format_is_a_file_when_it_stands_alone(
    cli, ledger, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel").write_text(row(1))
    assert cli("import", "kernel", "--ledger", ledger).exit_code == 0


def test_the_formats_are_listed(cli):
    assert "kernel log" in cli("import", "--formats").stdout
    assert "kernel" in [entry["name"] for entry in cli("import", "--formats", "--json").json]


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_file_name_that_is_no_text_is_printed_all_the_same(cli, tmp_path, ledger, how):
    path = tmp_path / os.fsdecode(b"kern\xff.log")
    path.write_text(row(1))
    result = cli("import", path, "--ledger", ledger, *how)
    assert result.exit_code == 0
    assert "kern\ufffd.log" in result.stdout


def test_hostile_text_does_not_reach_the_terminal_as_it_is(cli, tmp_path, ledger):
    path = tmp_path / "kern.log"
    path.write_text("\x1b[2J\x07[bold] NVRM: Xid (PCI:0000:41:00): 94\n")
    result = cli("import", "kernel", path, "--ledger", ledger)
    assert result.exit_code == 2
    assert "\x1b" not in result.stdout
    assert "[bold]" in result.stdout


def many(path, count: int):
    with path.open("w") as file:
        for n in range(count):
            file.write(
                f"2026-11-02T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z h{n} kernel: {XID.format(94)}"
            )
    return path


def test_ctrl_c_leaves_what_was_committed_and_says_it(tmp_path, ledger):
    """A real process on a terminal: its bar shows that batches are durable, then it is interrupted."""
    log = many(tmp_path / "kern.log", 400_000)
    outer, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "lastgood.cli.main", "import", str(log), "--ledger", str(ledger)],
        stderr=inner,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(inner)
    seen = b""
    while b"events" not in seen or b"kern.log" not in seen:
        part = os.read(outer, 65_536)
        assert part, seen
        seen += part
    child.send_signal(signal.SIGINT)
    while True:
        try:
            part = os.read(outer, 65_536)
        except OSError:  # the child's end of the terminal is closed
            break
        if not part:
            break
        seen += part
    assert child.wait(30) == 130
    os.close(outer)
    said = seen.decode(errors="replace")
    assert "interrupted in kern.log" in said
    assert verify_ledger(ledger).ok
    with read_store(ledger) as store:
        assert 0 < store.size < 400_000
        assert store.size % 2_000 == 0
        told = int(re.findall(r"at least ([\d,]+) new events", said)[0].replace(",", ""))
        # An interrupt between the commit and the count leaves one batch more than it says.
        assert told in {store.size, store.size - 2_000}


def test_the_rows_that_are_left_out_are_json_too(cli, log, ledger):
    told = cli("import", log, "--ledger", ledger, "--json").stdout
    assert json.loads(told)["total"]["ignored"]


# --- how it ends when something was lost ----------------------------------------------------------------


def coverages(ledger):
    with read_store(ledger) as store:
        return [event for event in store.events() if "coverage" in event.body]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["slurm_jobs"], row(1) + row(2)),
        (["stepfun"], '[{"x": 1}, {"x": 2}]'),
        (["stepfun"], "junk"),
        (["kernel"], "lorem ipsum\n"),
        (["handkept"], "lorem ipsum\n"),
        ([], XID.format(94)),
    ],
    ids=["another format", "other records", "junk", "no log", "no entries", "no times"],
)
def test_a_file_of_which_no_row_is_taken_is_exit_2_and_covers_no_time(
    cli, tmp_path, ledger, words, text
):
    (tmp_path / "a.log").write_text(text)
    result = cli("import", *words, tmp_path / "a.log", "--ledger", ledger)
    assert result.exit_code == 2
    assert "nothing was taken: a.log" in result.stderr
    assert coverages(ledger) == []
    json_result = cli("import", *words, tmp_path / "a.log", "--ledger", ledger, "--json")
    assert json_result.exit_code == 2
    assert len(json.loads(json_result.stdout)["lost"]) == 1


def test_one_lost_file_among_good_ones_is_exit_1_and_is_named(cli, log, tmp_path, ledger):
    bad = tmp_path / "bad.log"
    bad.write_text(XID.format(94))
    result = cli("import", log, bad, "--ledger", ledger)
    assert result.exit_code == 1
    assert "not all of it was taken: bad.log: none of its 1 rows could be taken" in result.stderr
    assert len(coverages(ledger)) == 1


@pytest.mark.parametrize("kept_bytes", [20, 700])
def test_a_damaged_archive_is_never_exit_0(cli, tmp_path, ledger, kept_bytes):
    rows = "".join(row(n % 60) + os.urandom(40).hex() + "\n" for n in range(200))
    path = tmp_path / "kern.log.gz"
    path.write_bytes(gzip.compress(rows.encode())[:kept_bytes] + b"\x00" * 40)
    result = cli("import", "kernel", path, "--ledger", ledger)
    assert result.exit_code in {1, 2}
    assert "kern.log.gz: the archive is damaged or cut" in result.stderr


def test_a_file_of_a_folder_that_nobody_knows_is_exit_1_and_strict_refuses_it(
    cli, log, tmp_path, ledger
):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "kern.log").write_text(row(1))
    (folder / "odd.bin").write_bytes(b"\x00\x01 something else")
    strict = cli("import", "--strict", folder, "--ledger", ledger)
    assert strict.exit_code == 2
    assert "no format recognises this file" in strict.stderr
    assert not ledger.exists()
    result = cli("import", folder, "--ledger", ledger)
    assert result.exit_code == 1
    assert "odd.bin is left out" in result.stderr


def test_a_quiet_log_an_empty_file_and_rejected_rows_beside_good_ones_are_exit_0(
    cli, log, tmp_path, ledger
):
    quiet, empty = tmp_path / "quiet.log", tmp_path / "empty.log"
    quiet.write_text(AT.format(1) + "usb 1-1: new device\n")
    empty.write_text("")
    for path in (log, quiet, empty):
        result = cli("import", path, "--ledger", ledger)
        assert (result.exit_code, result.stderr) == (0, "")
    assert len(coverages(ledger)) == 2
