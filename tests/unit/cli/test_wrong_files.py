"""A file or folder that is not what a command needs: said in words, with what to type next, and never as an errno."""

from __future__ import annotations

import sqlite3

import pytest

from lastgood.evidence.archive import write_tar
from lastgood.evidence.bundle import write_bundle
from lastgood.ledger.store import open_store
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "folder").mkdir()
    (folder / "text").write_text("hello\n")
    (folder / "empty.db").touch()
    (folder / "job.py").write_text("import os\nx = 1\n")
    with sqlite3.connect(folder / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    with open_store(folder / "good.db") as store:
        store.append(sample_run.undisturbed())
    write_bundle(
        folder / "good.db", folder / "bundle", contract=None, run=None, now_us=1, version="0",
        builders={"training": build_section},
    )  # fmt: skip
    write_tar(folder / "bundle", folder / "bundle.tar")
    return folder


@pytest.mark.parametrize(
    ("command", "told", "following"),
    [
        ("verify good.db --head nosuch", "No such file or directory", "--save-head FILE"),
        ("verify good.db --head folder", "Is a directory", "--save-head FILE"),
        ("verify good.db --head foreign.db", "bytes that are no text", "--save-head FILE"),
        ("verify good.db --save-head folder", "Is a directory", "name a file in it"),
        ("verify good.db --save-head none/head", "No such file", "run: mkdir -p"),
        ("verify good.db --save-head h --sign-key nosuch", "No such file", "check the name: ls"),
        ("verify folder", "a folder without a ledger", "lastgood import PATH..."),
        ("compare folder good.db --claim ettr", "not a bundle: found a folder without a ledger", "name the file"),
        ("compare foreign.db good.db --claim ettr", "a SQLite database of something else", "name another file"),
        ("recompute folder", "not a bundle: found a folder without a ledger", "name the file"),
        ("plan --ledger folder", "a folder without a ledger", "name the file"),
        ("rates --ledger foreign.db", "a SQLite database of something else", "name another file"),
        ("rates --ledger good.db --mapping xid=nosuch", "No such file", "check the name: ls"),
        ("export folder -o out", "a folder without a ledger", "name the file"),
        ("report bundle", "not a ledger: found a bundle", "lastgood recompute bundle"),
        ("report bundle.tar", "not a ledger: found a bundle", "lastgood recompute bundle.tar"),
        ("report --ledger bundle.tar", "not a ledger: found a bundle", "lastgood recompute bundle.tar"),
        ("report --ledger text", "a file of another kind", "name another file"),
        ("verify bundle.tar", "not a ledger: found a bundle", "lastgood recompute bundle.tar"),
        ("rates --ledger bundle.tar", "not a ledger: found a bundle", "lastgood recompute bundle.tar"),
        ("plan --ledger bundle", "not a ledger: found a bundle", "lastgood recompute bundle"),
        ("report good.db --html folder", "Is a directory", "name a file in it"),
        ("report good.db --html none/page.html", "No such file", "run: mkdir -p"),
        ("record health-check --node n --reason r --ledger folder", "a folder without a ledger", "name the file"),
        ("import kernel text --ledger folder", "a folder without a ledger", "name the file"),
        ("report empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("report --ledger empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("verify empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("rates --ledger empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("plan --ledger empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("bundle empty.db -o out", "not a ledger: found an empty file", "or remove this one"),
        ("record health-check --node n --reason r --ledger empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("import kernel text --ledger empty.db", "not a ledger: found an empty file", "or remove this one"),
        ("record health-check --node n --reason r --ledger none/l.db", "the folder of the ledger does not exist", "mkdir -p"),
        ("import kernel text --ledger none/l.db", "the folder of the ledger does not exist", "mkdir -p"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_is_wrong_and_what_to_type_next(cli, place, monkeypatch, command, told, following):
    monkeypatch.chdir(place)
    result = cli(*command.split())
    assert result.exit_code == 2
    assert "Errno" not in result.stderr
    assert told in result.stderr
    assert following in result.stderr
    assert (place / "empty.db").read_bytes() == b""
    assert not (place / "none").exists()


def test_a_script_is_no_spool_whose_writer_was_killed(cli, place, monkeypatch):
    monkeypatch.chdir(place)
    result = cli("import", "spool", "job.py", "--ledger", "spool.db")
    assert result.exit_code == 2
    told = result.stdout + result.stderr
    assert "no line of a spool" in told
    assert "killed" not in told
    assert "half a line" not in told
