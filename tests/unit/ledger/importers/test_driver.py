"""Files in, a ledger out: twice is once, overlapping files merge, and nothing stops the other files."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.errors import BadInput, LedgerError, Problems
from lastgood.ledger.importers import batches, source
from lastgood.ledger.importers.driver import Progress, import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.importers.registry import FORMATS, importer
from lastgood.ledger.raw_store import open_raw_store, raw_path
from lastgood.ledger.store import read_store
from lastgood.ledger.verify import verify_ledger

NOW_US = 1_795_000_000_000_000


def xid(n: int, *, code: int = 94) -> str:
    return f"2026-11-02T03:{n // 60 % 60:02d}:{n % 60:02d}Z gpu-0007 kernel: NVRM: Xid (PCI:0000:41:00): {code}, pid={n}, name=x\n"


def write(path, *rows: str):
    path.write_text("".join(rows))
    return path


def run(folder, *paths, **how):
    how.setdefault("options", Options())
    return import_files(paths, ledger=folder / "l.db", clock=ManualClock(NOW_US), **how)


def stored(folder, kind="observation"):
    with read_store(folder / "l.db") as store:
        return [event for event in store.events() if event.kind == kind]


def head(folder):
    with read_store(folder / "l.db") as store:
        return store.head()


def small_steps(monkeypatch):
    monkeypatch.setattr(batches, "BATCH_EVENTS", 100)
    monkeypatch.setattr(source, "BLOCK_BYTES", 16_384)
    monkeypatch.setattr(source, "HEAD_BYTES", 16_384)


def test_importing_twice_changes_nothing(tmp_path):
    log = write(tmp_path / "kern.log", *map(xid, range(50)))
    first = run(tmp_path, log).total
    before = head(tmp_path)
    second = run(tmp_path, log).total
    assert (first.events_new, first.events_merged) == (51, 0)
    assert (second.events_new, second.events_merged) == (0, 51)
    assert head(tmp_path) == before


def test_overlapping_rotated_files_merge_and_equal_rows_of_one_file_count(tmp_path):
    rows = [xid(n) for n in (1, 2, 2, 3, 4)]
    old = write(tmp_path / "kern.log.1", *rows[:4])
    new = write(tmp_path / "kern.log", *rows[1:])
    run(tmp_path, old, new)
    assert sorted(e.body["pid"] for e in stored(tmp_path)) == [1, 2, 2, 3, 4]


def test_a_second_import_with_another_zone_or_table_says_that_nothing_changes(tmp_path):
    """Nobody should believe that the times of a ledger were mended by importing again with --zone."""
    log = write(tmp_path / "kern.log", *(xid(n).replace("Z gpu", " gpu") for n in range(3)))
    run(tmp_path, log)
    assert run(tmp_path, log).total.notes == []
    (note,) = run(tmp_path, log, options=Options(zone="+02:00")).total.notes
    assert note.startswith("kern.log: 3 rows are known with other times: nothing was changed")
    assert len(stored(tmp_path, "annotation")) == 1  # nor is the time that it covers written again
    table = tmp_path / "own.json"
    table.write_text('{"mapping": "xid", "version": "2", "source": "us", "rows": {}}')
    (note,) = run(tmp_path, log, options=Options(mappings={"xid": table})).total.notes
    assert note.startswith("events that were there already name the table")


def test_a_packed_file_is_the_same_file(tmp_path):
    rows = "".join(map(xid, range(10)))
    packed = tmp_path / "kern.log.2.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    run(tmp_path, write(tmp_path / "kern.log", rows))
    assert run(tmp_path, packed).total.events_new == 0


def test_the_format_is_detected_and_said(tmp_path):
    log = write(tmp_path / "anything", xid(1))
    (found,) = run(tmp_path, log).files
    assert (found.format, found.is_detected) == ("kernel", True)
    (named,) = run(tmp_path, log, format="kernel").files
    assert (named.format, named.is_detected) == ("kernel", False)


def test_all_wrong_files_are_said_at_once_and_nothing_is_written(tmp_path):
    good = write(tmp_path / "kern.log", xid(1))
    odd = write(tmp_path / "odd", "lorem ipsum\n" * 3)
    with pytest.raises(Problems) as error:
        run(tmp_path, good, tmp_path / "missing", odd)
    said = str(error.value).splitlines()
    assert len(said) == 2
    assert "No such file" in said[0]
    assert "no format recognises this file" in said[1]
    assert not (tmp_path / "l.db").exists()


def test_an_unknown_format_names_the_near_one(tmp_path):
    with pytest.raises(BadInput, match="write kernel"):
        run(tmp_path, write(tmp_path / "kern.log", xid(1)), format="kernl")


@pytest.mark.parametrize(
    "options", [Options(zone="Mars/Olympus"), Options(mappings={"nothing": Path("x.json")})]
)
def test_wrong_options_stop_before_anything_is_written(tmp_path, options):
    with pytest.raises(BadInput):
        run(tmp_path, write(tmp_path / "kern.log", xid(1)), options=options)
    assert not (tmp_path / "l.db").exists()


def test_an_empty_file_is_no_mistake_and_is_said(tmp_path):
    (found,) = run(tmp_path, write(tmp_path / "kern.log")).files
    assert found.format is None
    assert found.quality.notes == ["kern.log is empty"]


def test_a_folder_stands_for_its_files(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder / "a.log", xid(1))
    write(folder / "b.log", xid(2))
    write(folder / ".hidden", "x")
    assert [file.name for file in run(tmp_path, folder).files] == ["a.log", "b.log"]
    write(folder / "c.bin", "\x00\x01 something else")
    result = run(tmp_path, folder)
    assert [(file.name, file.format) for file in result.files] == [
        ("a.log", "kernel"), ("b.log", "kernel"), ("c.bin", None),
    ]  # fmt: skip
    assert result.total.notes == ["c.bin is left out: no format recognises this file"]
    (folder / "a.log").unlink()
    (folder / "b.log").unlink()
    with pytest.raises(Problems, match=r"c\.bin: no format recognises this file"):
        run(tmp_path, folder)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadInput, match="a folder without files"):
        run(tmp_path, tmp_path / "nothing")


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for host in ("gpu-0001", "gpu-0002"):
        (tmp_path / host).mkdir()
        write(tmp_path / host / "dmesg.txt", xid(1).replace("gpu-0007 ", ""))
    result = run(tmp_path, tmp_path / "gpu-0001", tmp_path / "gpu-0002" / "dmesg.txt")
    assert [file.name for file in result.files] == ["gpu-0001/dmesg.txt", "gpu-0002/dmesg.txt"]
    events = stored(tmp_path)
    assert [e.source.locator for e in events] == ["gpu-0001/dmesg.txt#1", "gpu-0002/dmesg.txt#1"]
    assert [e.domain[0].id for e in events] == ["gpu-0001", "gpu-0002"]


def test_a_named_pipe_is_read_once_and_whole(tmp_path):
    """`lastgood import <(zcat kern.log.*.gz)` hands over a pipe with a path."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    rows = [xid(n) for n in range(3_000)]
    writer = threading.Thread(target=lambda: pipe.write_text("".join(rows)))
    writer.start()
    total = run(tmp_path, pipe).total
    writer.join(10)
    assert total.accepted == 3_000


def test_a_folder_that_may_not_be_listed_is_the_persons_mistake(tmp_path, monkeypatch):
    folder = tmp_path / "logs"
    folder.mkdir()

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(BadInput, match="logs: the folder cannot be read: found Permission denied"):
        run(tmp_path, folder)


def test_each_file_leaves_the_time_that_it_covers(tmp_path):
    run(tmp_path, write(tmp_path / "kern.log", xid(10), xid(70)))
    (event,) = stored(tmp_path, "annotation")
    begin_us = 1_793_588_400_000_000 + 10_000_000  # 2026-11-02 03:00:10 UTC
    assert event.body["coverage"] == {
        "begin_us": begin_us, "end_us": begin_us + 60_000_000, "format": "kernel", "declared": False,
    }  # fmt: skip
    assert (event.t_occurred_us, event.t_observed_us) == (begin_us, begin_us + 60_000_000)


def test_a_strict_import_keeps_what_came_before_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_EVENTS", 2)
    log = write(
        tmp_path / "kern.log",
        xid(1),
        xid(2),
        xid(3),
        "NVRM: Xid (PCI:0000:41:00): 94, pid=4\n",
        xid(5),
    )
    with pytest.raises(BadInput) as error:
        run(tmp_path, log, options=Options(is_strict=True))
    assert "kern.log:4: a row cannot be taken: no time in the line" in str(error.value)
    assert "3 events of this import are in the ledger" in str(error.value)
    assert [e.body["pid"] for e in stored(tmp_path)] == [1, 2, 3]


def test_without_strict_the_same_file_is_taken_but_for_that_row(tmp_path):
    log = write(tmp_path / "kern.log", xid(1), "NVRM: Xid (PCI:0000:41:00): 94, pid=4\n", xid(5))
    total = run(tmp_path, log).total
    assert (total.read, total.accepted, total.rejected_count) == (3, 2, 1)


def test_a_cut_archive_gives_its_rows_and_the_table_says_that_it_is_cut(tmp_path):
    data = gzip.compress("".join(xid(n) + os.urandom(40).hex() + "\n" for n in range(500)).encode())
    path = tmp_path / "kern.log.gz"
    path.write_bytes(data[: len(data) // 2])
    total = run(tmp_path, path).total
    assert 100 < total.accepted < 500
    assert total.file_problems[0].startswith("kern.log.gz: the archive is damaged or cut")
    with pytest.raises(BadInput, match="damaged or cut"):
        run(tmp_path, path, options=Options(is_strict=True))


def test_a_format_that_fails_outside_of_a_row_costs_its_file_only(tmp_path, monkeypatch):
    broken = write(tmp_path / "a.log", xid(1))
    good = write(tmp_path / "b.log", xid(2))
    real = type(importer("kernel")).read

    def read(self, source, context):
        if source.name == "a.log":
            raise ZeroDivisionError("never thought of")
        yield from real(self, source, context)

    monkeypatch.setattr(type(importer("kernel")), "read", read)
    total = run(tmp_path, broken, good).total
    assert list(total.rejected) == ["not understood: ZeroDivisionError"]
    assert [e.body["pid"] for e in stored(tmp_path)] == [2]


def test_the_progress_tells_the_place_in_the_file_and_the_durable_events(tmp_path, monkeypatch):
    small_steps(monkeypatch)
    log = write(tmp_path / "kern.log", *(xid(n) for n in range(3_000)))
    seen: list[Progress] = []
    run(tmp_path, log, on_progress=seen.append)
    assert len(seen) >= 3
    assert [p.position for p in seen] == sorted(p.position for p in seen)
    assert seen[-1].position == seen[-1].size == log.stat().st_size
    assert (seen[-1].events_new, seen[-1].events_merged) == (3_001, 0)


def test_an_interrupt_leaves_whole_batches_that_verify(tmp_path, monkeypatch):
    small_steps(monkeypatch)
    log = write(tmp_path / "kern.log", *(xid(n) for n in range(3_000)))

    def interrupt(progress):
        if progress.events_new > 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, log, on_progress=interrupt)
    count = len(stored(tmp_path))
    assert count > 1_000
    assert count % 100 == 0
    assert verify_ledger(tmp_path / "l.db").ok
    run(tmp_path, log)
    assert len(stored(tmp_path)) == 3_000


def test_what_two_runs_merged_equals_what_one_run_gives(tmp_path):
    rows = [xid(n, code=(94, 43, 45, 154)[n % 4]) for n in range(200)]
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    run(one, write(tmp_path / "kern.log", *rows))
    run(two, write(tmp_path / "kern.log.1", *rows[:120]))
    run(two, write(tmp_path / "kern.log.0", *rows[80:]))
    assert {e.id for e in stored(one)} == {e.id for e in stored(two)}


# --- raw rows -----------------------------------------------------------------------------------------


def test_raw_rows_are_kept_only_when_asked_and_lie_beside_the_ledger(tmp_path):
    log = write(tmp_path / "kern.log", xid(1), "other line\n")
    run(tmp_path, log)
    assert not raw_path(tmp_path / "l.db").exists()
    run(tmp_path, log, options=Options(keep_raw=True))
    path = raw_path(tmp_path / "l.db")
    assert path.name == "l.db.raw"
    assert path.stat().st_mode & 0o777 == 0o600
    (event,) = stored(tmp_path)
    store = open_raw_store(tmp_path / "l.db")
    assert store.get(event.source.raw_sha256) == xid(1).rstrip("\n").encode()
    assert list(store.hashes()) == [event.source.raw_sha256]
    store.close()


def test_a_file_that_is_no_store_of_raw_rows_is_refused(tmp_path):
    raw_path(tmp_path / "l.db").write_bytes(
        b"something else, long enough to be looked at as a database file" * 20
    )
    with pytest.raises(LedgerError, match=r"l\.db\.raw"):
        run(tmp_path, write(tmp_path / "kern.log", xid(1)), options=Options(keep_raw=True))


def test_deleting_the_raw_rows_leaves_the_ledger_whole(tmp_path):
    log = write(tmp_path / "kern.log", *map(xid, range(20)))
    run(tmp_path, log, options=Options(keep_raw=True))
    before = head(tmp_path)
    raw_path(tmp_path / "l.db").unlink()
    assert verify_ledger(tmp_path / "l.db", head=before).ok


def test_names_are_masked_in_the_ledger_and_whole_in_the_raw_rows(tmp_path):
    row = xid(1).replace("name=x", "name=x, /home/evelyn/job.py")
    run(tmp_path, write(tmp_path / "kern.log", row), options=Options(keep_raw=True))
    files = [path for path in tmp_path.glob("l.db*") if not path.name.endswith(".raw")]
    assert all(b"evelyn" not in path.read_bytes() for path in files)
    (event,) = stored(tmp_path)
    store = open_raw_store(tmp_path / "l.db")
    assert b"/home/evelyn/job.py" in (store.get(event.source.raw_sha256) or b"")
    store.close()


# --- the list of formats ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_what_the_list_says(name):
    found = importer(name)
    assert found.name == name
    assert found.version
    assert found.title
