"""A report goes to every standard output, and the name of a file is no reason to end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from lastgood.cli.main import main
from lastgood.cli.standard_output import prepare_standard_output
from lastgood.ledger.store import open_store
from tests.unit.evidence import sample_run

POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
BYTES = b"\xff\xfe.db"
CYRILLIC = "журнал.db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    for name in (b"plain.db", BYTES, CYRILLIC.encode()):
        with open_store(folder / os.fsdecode(name)) as store:
            store.append(sample_run.five_faults())
    return folder


@pytest.fixture
def written(monkeypatch):
    """What is on a standard output of an encoding after something wrote to it."""

    def write(encoding, act, errors="strict"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            act()
            stream.flush()
        return stream.buffer.getvalue()

    return write


def lastgood(folder, *words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "lastgood", *words], cwd=folder, env={**os.environ, **environment},
        capture_output=True, check=False, timeout=50,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "sign"), [("ascii", "✓".encode()), ("latin-1", rb"\u2713"), ("utf-8", "✓".encode())]
)  # fmt: skip
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_report_goes_to_every_encoding(folder, written, encoding, sign, errors):
    def act():
        assert main(["report", str(folder / "plain.db")]) == 0

    assert sign in written(encoding, act, errors)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_json_stays_json(written, encoding):
    said = "é ✓ 😀 \ud83d " + os.fsdecode(b"\xff")

    def act():
        prepare_standard_output()
        print(json.dumps(said, ensure_ascii=False))

    out = written(encoding, act)
    assert json.loads(out.decode("utf-8" if encoding == "ascii" else encoding)) == said


def test_who_chose_how_errors_are_treated_keeps_the_choice(written):
    def act():
        prepare_standard_output()
        print("✓")

    assert written("ascii", act, "replace") == b"?\n"


@pytest.mark.parametrize(
    "words", [["verify"], ["report"], ["report", "--json"], ["rates", "--ledger"]]
)
def test_a_name_that_the_locale_cannot_read_goes_out_as_its_bytes(folder, words):
    done = lastgood(folder, *words, CYRILLIC, **POSIX)
    assert (done.returncode, done.stderr) == (0, b"")
    assert words[0] == "rates" or CYRILLIC.encode() in done.stdout
    if "--json" in words:
        json.loads(done.stdout)


def test_a_ledger_whose_name_is_no_text_is_one_like_any_other(folder):
    name = os.fsdecode(BYTES)
    page, bundle = os.fsdecode(b"\xfe.html"), os.fsdecode(b"\xfe.bundle")
    for words in (
        ["record", "note", "--node", "n", "--reason", "r", "--ledger", name],
        ["verify", name],
        ["report", name, "--html", page],
        ["bundle", name, "-o", bundle],
        ["recompute", bundle],
        ["export", name, "-o", os.fsdecode(b"\xfe")],
        ["rates", "--ledger", os.fsdecode(b"\xfe")],
    ):
        done = lastgood(folder, *words)
        assert done.returncode in ((0, 3) if words[0] in {"export", "rates"} else (0,)), (
            words,
            done,
        )
        assert b"internal" not in done.stderr
    assert rb"\xff\xfe.db" in (folder / page).read_bytes()


def test_a_run_refuses_a_script_whose_name_is_no_text(cli, tmp_path):
    script = tmp_path / os.fsdecode(b"\xff.py")
    script.write_text("")
    result = cli("run", "--ledger", tmp_path / "l.db", script)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "xff.py" in result.stderr
    assert "rename it" in result.stderr
    assert not (tmp_path / "l.db").exists()


def test_a_run_says_how_a_name_can_be_read(folder):
    (folder / "задание.py").write_text("")
    done = lastgood(folder, "run", "--ledger", "none.db", "задание.py", **POSIX)
    assert done.returncode == 2
    assert "задание.py" in done.stderr.decode() or r"\u0437\u0430" in done.stderr.decode()
    assert b"PYTHONUTF8=1" in done.stderr


def test_a_script_behind_two_dashes_may_begin_with_one(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-dash.py").write_text("no python\n")
    said = cli("run", "--ledger", tmp_path / "l.db", "--", "-dash.py", "--", "-x").stderr
    assert "-dash.py:1: the script is no Python that can be run" in said
    assert "No such option '-d'" in cli("run", "-dash.py").stderr
