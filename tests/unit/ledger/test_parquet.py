from __future__ import annotations

import builtins
import errno
import json
import os
import stat
from pathlib import Path

import pytest

from lastgood.base.errors import BadInput, LedgerCorrupt, LedgerError, MissingExtra
from lastgood.ledger import parquet_export
from lastgood.ledger.columns import read_events
from lastgood.ledger.event import Event
from lastgood.ledger.parquet_events import export_events
from lastgood.ledger.parquet_export import export_parquet
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from tests.unit.ledger.cases import clock_at, make_ledger, some_event

pytest.importorskip("pyarrow", reason="the extra analysis is not installed")

DAY_US = 86_400_000_000
JANUARY_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Five events in three months of 2026, arriving in another order; the last corrects the first."""
    path = tmp_path / "ledger.db"
    days = (40, 0, 30, 31, 70)
    with open_store(path, clock=clock_at()) as store:
        store.import_events(
            [
                some_event(
                    number,
                    kind="observation",
                    t_occurred_us=JANUARY_US + day * DAY_US,
                    links={"supersedes": "event-0"} if number == 4 else {},
                )
                for number, day in enumerate(days)
            ]
        )
    return path


@pytest.fixture
def folder(ledger: Path, tmp_path: Path) -> Path:
    export_parquet(ledger, tmp_path / "out")
    return tmp_path / "out"


def test_months_are_those_of_utc_and_hold_every_event(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [(f["name"], f["rows"]) for f in manifest["files"]] == [
        ("events-2026-01.parquet", 2),
        ("events-2026-02.parquet", 2),
        ("events-2026-03.parquet", 1),
    ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["manifest.json", *(f["name"] for f in manifest["files"])]
    )


def test_the_manifest_says_which_ledger_it_is(ledger, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    head = verify_ledger(ledger).head
    assert (manifest["origin"], manifest["size"], manifest["root"]) == (
        head.origin,
        5,
        head.root_hex,
    )
    assert manifest["tree_head"] == head.to_note()


def test_an_event_that_a_later_month_corrects_is_not_in_effect(folder):
    table = read_events(folder)
    assert table.seq.tolist() == [1, 2, 3, 4]
    assert len(read_events(folder)) == 4


def test_the_same_ledger_gives_the_same_files_again(ledger, folder, tmp_path):
    export_parquet(ledger, tmp_path / "again")
    names = [path.name for path in folder.iterdir()]
    assert {n: (folder / n).read_bytes() for n in names} == {
        n: (tmp_path / "again" / n).read_bytes() for n in names
    }


def test_an_older_export_is_replaced_and_nothing_else_is(ledger, folder, tmp_path):
    with open_store(ledger, clock=clock_at()) as store:
        store.append([some_event(9, t_occurred_us=JANUARY_US)])
    export_parquet(ledger, folder)
    assert read_events(folder).size == 6
    other = make_ledger(tmp_path / "other.db", 3)
    with pytest.raises(BadInput, match="another ledger"):
        export_parquet(other, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="more than an export"):
        export_parquet(ledger, folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(BadInput, match="something else"):
        export_parquet(ledger, tmp_path / "mine")
    with pytest.raises(BadInput, match="not a folder"):
        export_parquet(ledger, other)
    assert (tmp_path / "mine" / "file").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nobody_else_may_read_an_export(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


# --- what is refused ------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda f: flip(f / "events-2026-02.parquet"), "events-2026-02.parquet sha256"),
        (lambda f: (f / "events-2026-03.parquet").unlink(), "events-2026-03.parquet is missing"),
        (lambda f: (f / "more.parquet").write_bytes((f / "events-2026-01.parquet").read_bytes()),
         "more.parquet was added"),
        (lambda f: (f / "events-2026-01.parquet").replace(f / "events-2026-02.parquet"), "events-2026-01.parquet is missing"),
    ],
)  # fmt: skip
def test_an_export_that_was_changed_is_refused_and_the_file_named(folder, change, found):
    change(folder)
    with pytest.raises(LedgerCorrupt, match="changed after it was written") as caught:
        read_events(folder)
    assert found in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "not an export"),
        ("{", "not the manifest"),
        ('{"schema": "x"}', "not the manifest"),
    ],
)
def test_a_folder_without_a_readable_manifest_is_no_export(folder, text, match):
    if text is None:
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text(text)
    with pytest.raises(BadInput, match=match):
        read_events(folder)


def test_an_export_of_a_newer_version_is_refused(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("lastgood.export/2", "lastgood.export/3"))
    with pytest.raises(BadInput, match="another version"):
        read_events(folder)


def test_an_export_of_the_first_version_cannot_tell_a_drill_and_is_refused_until_written_again(
    ledger, folder
):
    path = folder / "manifest.json"
    old = json.loads(path.read_text()) | {"schema": "lastgood.export/1"}
    del old["run_modes"]
    path.write_text(json.dumps(old))
    with pytest.raises(BadInput, match=r"lastgood\.export/1.*export the ledger again"):
        read_events(folder)
    export_parquet(ledger, folder)
    assert len(read_events(folder)) == 4


def test_an_export_says_how_its_runs_were_started(ledger, tmp_path):
    with open_store(ledger, clock=clock_at()) as store:
        store.append(
            [
                some_event(10, kind="run.start", run="a", body={"mode": "demo"}),
                some_event(11, kind="run.start", run="b", body={}),
                some_event(12, kind="run.start", run="c", body={"mode": "run"}),
                some_event(13, kind="run.start", run="c", body={"mode": "drill"}),
            ]
        )
    export_parquet(ledger, tmp_path / "out")
    table = read_events(tmp_path / "out")
    assert table.run_modes == (("a", "demo"), ("c", "drill"), ("c", "run"))
    assert table.take([0]).run_modes == table.run_modes


def test_without_pyarrow_the_message_has_the_command(ledger, folder, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'pip install "lastgood\[analysis\]"'):
        read_events(folder)
    with pytest.raises(MissingExtra, match="lastgood export"):
        export_parquet(ledger, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- what is odd --------------------------------------------------------------------------------------


def test_an_empty_ledger_is_an_export_without_months(tmp_path):
    open_store(tmp_path / "ledger.db").close()
    assert export_parquet(tmp_path / "ledger.db", tmp_path / "out").files == ()
    table = read_events(tmp_path / "out")
    assert (len(table), table.size) == (0, 0)


def test_what_is_covered_comes_back_without_what_was_superseded(tmp_path):
    with open_store(tmp_path / "ledger.db", clock=clock_at()) as store:
        for number, (begin, corrects) in enumerate(((5, None), (1, None), (2, "event-0"))):
            said = {"coverage": {"begin_us": begin, "end_us": 9, "format": "xid"}}
            store.append(
                [some_event(number, body=said, links={"supersedes": corrects} if corrects else {})]
            )
    export_parquet(tmp_path / "ledger.db", tmp_path / "out")
    covered = read_events(tmp_path / "out").coverage
    assert [c.begin_us for c in covered] == [1, 2]
    assert covered == read_events(tmp_path / "ledger.db").coverage


def test_duckdb_reads_the_months(folder):
    duckdb = pytest.importorskip("duckdb", reason="the extra analysis is not installed")
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT kind, count(*) FROM '{folder}/*.parquet' GROUP BY kind"
        ).fetchall()
    assert rows == [("observation", 5)]


# --- the command --------------------------------------------------------------------------------------


def test_the_command_says_where_and_of_what(cli, ledger, tmp_path):
    result = cli("export", ledger, "-o", tmp_path / "out")
    head = verify_ledger(ledger).head
    assert result.exit_code == 0
    assert "5 events, 3 months" in result.stdout
    assert head.root_hex in result.stdout
    told = cli("export", ledger, "-o", tmp_path / "out", "--json").json
    assert (told["root"], told["size"], len(told["files"])) == (head.root_hex, 5, 3)


def test_the_command_names_a_ledger_that_is_not_there(cli, tmp_path):
    result = cli("export", tmp_path / "none.db", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "no such ledger" in result.stderr


def test_the_first_and_the_last_time_of_all_are_exported_too(tmp_path):
    times = (-(2**63) + 1, 0, 2**63 - 1)
    with open_store(tmp_path / "ledger.db", clock=clock_at()) as store:
        store.import_events([some_event(n, t_occurred_us=t) for n, t in enumerate(times)])
    export_parquet(tmp_path / "ledger.db", tmp_path / "out")
    assert read_events(tmp_path / "out").t_us.tolist() == list(times)


def test_a_time_that_no_column_holds_is_named(tmp_path):
    with open_store(tmp_path / "ledger.db", clock=clock_at()) as store:
        store.append([Event(kind="annotation", id="x", t_observed_us=2**63)])
    with pytest.raises(LedgerError, match="no column holds"):
        export_parquet(tmp_path / "ledger.db", tmp_path / "out")
    with pytest.raises(LedgerError, match="no column holds"):
        read_events(tmp_path / "ledger.db")


def test_an_export_may_have_any_name(ledger, tmp_path):
    target = tmp_path / os.fsdecode(b"\xff")
    export_parquet(ledger, target)
    assert len(read_events(target)) == 4
    assert len(export_events(target)) == 5


def test_a_folder_that_cannot_be_written_is_named_and_not_the_ledger(ledger, tmp_path, monkeypatch):
    def refuse(prefix, dir):
        raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/{prefix}x7")

    monkeypatch.setattr(parquet_export.tempfile, "mkdtemp", refuse)
    with pytest.raises(BadInput) as raised:
        export_parquet(ledger, tmp_path / "out")
    assert (
        str(raised.value)
        == f"{tmp_path}/out: the export cannot be written: found Permission denied"
    )
    assert raised.value.__cause__.filename == str(tmp_path / "out")
