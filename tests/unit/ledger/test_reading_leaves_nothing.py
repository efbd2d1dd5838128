"""Whoever only reads a ledger changes no byte of it and leaves no file beside it, whatever state it is found in."""

from __future__ import annotations

import shutil
import subprocess
import sys

import apsw
import pytest

from lastgood.evidence.bundle import write_bundle
from lastgood.evidence.recompute import recompute_bundle
from lastgood.ledger.columns import read_events
from lastgood.ledger.store import open_store, read_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run

BUILDERS = {"training": build_section}


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_with_store(path):
    with read_store(path) as store:
        assert store.size == len(list(store.events()))


READERS = {"store": read_with_store, "verify": verify_ledger, "columns": read_events}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    with open_store(folder / "ledger.db") as store:
        store.append(sample_run.undisturbed())
        store.copy_to(folder / "copy.db")
    return folder


@pytest.mark.parametrize("name", ["ledger.db", "copy.db"])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_leaves_a_ledger_that_nobody_has_open_as_it_was(folder, reader, name):
    """One in write-ahead mode, as it was written, and a compact copy, as a bundle holds it."""
    before = snapshot(folder)
    READERS[reader](folder / name)
    assert snapshot(folder) == before


@pytest.mark.parametrize("arguments", [("report",), ("report", "--json"), ("verify",), ("rates",)])
def test_a_command_that_reads_leaves_a_folder_bundle_fit_to_recompute(
    folder, tmp_path, cli, arguments
):
    bundle = tmp_path / "bundle"
    write_bundle(folder / "ledger.db", bundle, contract=None, run=None, now_us=0, version="0", builders=BUILDERS)  # fmt: skip
    before = snapshot(bundle)
    assert cli(*arguments, bundle / "ledger.db").exit_code in {0, 1, 2, 3}
    assert snapshot(bundle) == before
    assert recompute_bundle(bundle, builders=BUILDERS, version="0").is_equal


def test_a_copy_is_made_from_a_ledger_that_is_only_read(folder):
    before = snapshot(folder)
    with read_store(folder / "ledger.db") as store:
        store.copy_to(folder / "second.db")
        with pytest.raises(Exception, match="read-only"):
            store.append(sample_run.still_running())
    (folder / "second.db").unlink()
    assert snapshot(folder) == before


@pytest.mark.parametrize("reader", READERS)
def test_the_log_of_a_writer_that_was_killed_is_read_and_left_alone(folder, reader):
    """Its last commits lie only in the write-ahead log: reading them must not fold them in."""
    path = folder / "killed.db"
    with open_store(path) as store:
        store.append(sample_run.still_running())
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{suffix}", folder / f"found.db{suffix}")
    assert (folder / "found.db-wal").stat().st_size > 0
    before = {name: data for name, data in snapshot(folder).items() if not name.endswith("-shm")}
    READERS[reader](folder / "found.db")
    assert {n: d for n, d in snapshot(folder).items() if not n.endswith("-shm")} == before
    with read_store(folder / "found.db") as store:
        assert store.size == len(sample_run.still_running())


@pytest.mark.parametrize("reader", READERS)
def test_a_live_ledger_is_read_while_it_is_written(folder, reader):
    path = folder / "live.db"
    with open_store(path) as writer:
        writer.append(sample_run.undisturbed())
        READERS[reader](path)
        writer.append(sample_run.still_running())
        with read_store(path) as store:
            assert store.size == writer.size
    assert not list(folder.glob("live.db-*"))


def test_a_ledger_on_a_medium_that_nobody_may_write_is_read(folder, monkeypatch):
    """Root may write everything, so the kernel's answer is stood in for."""
    monkeypatch.setattr("lastgood.ledger.schema.os.access", lambda *_: False)
    before = snapshot(folder)
    read_with_store(folder / "ledger.db")
    assert verify_ledger(folder / "ledger.db").ok
    assert snapshot(folder) == before


def test_a_reader_that_is_killed_leaves_nothing_that_the_next_one_does_not_remove(folder):
    path = folder / "ledger.db"
    before = snapshot(folder)
    script = (
        "import os, signal, sys\nfrom lastgood.ledger.store import read_store\n"
        "store = read_store(sys.argv[1])\nassert store.size\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=30)
    read_with_store(path)
    assert snapshot(folder) == before


def test_a_ledger_that_sqlite_itself_left_open_is_no_longer_held_by_a_reader(folder):
    """The reader's connection is gone when the store is closed: another may take the file for itself."""
    read_with_store(folder / "ledger.db")
    alone = apsw.Connection(str(folder / "ledger.db"))
    alone.execute("PRAGMA locking_mode = EXCLUSIVE")
    alone.execute("BEGIN IMMEDIATE")
    alone.execute("COMMIT")
    alone.close()
