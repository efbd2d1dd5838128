from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.errors import LedgerCorrupt, LedgerError
from lastgood.ledger import creation
from lastgood.ledger.event import Event
from lastgood.ledger.merkle import leaf_hash, root_of
from lastgood.ledger.place import default_ledger
from lastgood.ledger.store import Projection, Stored, open_store, read_store
from lastgood.ledger.verify import verify_ledger
from tests.unit.ledger.cases import START_US, clock_at, make_ledger, some_event, some_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_what_was_appended_is_read_back_in_order_with_its_sequence_numbers(path):
    events = some_events(7)
    with open_store(path, clock=clock_at(9)) as store:
        assert store.append(events[:3]) == [Stored(n, f"event-{n}") for n in range(3)]
        assert store.append(events[3:])[-1] == Stored(6, "event-6")
    with open_store(path) as store:
        read = list(store.events())
        assert store.size == 7
    assert [event.seq for event in read] == list(range(7))
    assert [event.body for event in read] == [event.body for event in events]
    assert {event.t_recorded_us for event in read} == {START_US + 9_000_000}


def test_events_can_be_asked_for_by_position_kind_and_run(path):
    with open_store(path) as store:
        store.append(
            [some_event(0, kind="step"), some_event(1, run="r2"), some_event(2), some_event(3)]
        )
        seqs = lambda **asked: [event.seq for event in store.events(**asked)]
        assert seqs(since=2) == [2, 3]
        assert seqs(kinds=["step"]) == [0]
        assert seqs(run="r2") == [1]
        assert seqs(run="r1", kinds=["annotation"], since=3) == [3]
        assert seqs(kinds=[]) == []
        assert store.get("event-1").run == "r2"
        assert store.get("nothing") is None


def test_an_id_that_is_there_is_not_written_again(path):
    with open_store(path) as store:
        store.append([some_event(0)])
        head = store.head()
        assert store.append([some_event(0)]) == [Stored(0, "event-0", is_new=False)]
        assert store.append([some_event(1), some_event(1)])[1] == Stored(1, "event-1", is_new=False)
        assert store.size == 2
        assert head.size == 1


def test_an_id_that_is_there_with_other_content_is_refused(path):
    with open_store(path) as store:
        store.append([some_event(0)])
        with pytest.raises(LedgerError, match="already taken") as caught:
            store.append([some_event(1), some_event(0, body={"number": 99})])
        assert caught.value.code == "LG-L03"
        assert store.size == 1


def test_a_submission_that_fails_leaves_the_others_of_its_commit(path):
    bad = Event(kind="annotation", id="bad", body={"x": 0.5})
    with open_store(path) as store:
        first, second, third = store.append_groups(
            [[some_event(0)], [some_event(1), bad], [some_event(2), some_event(3)]]
        )
        assert first == [Stored(0, "event-0")]
        assert isinstance(second, Exception)
        assert third == [Stored(1, "event-2"), Stored(2, "event-3")]
        assert [event.id for event in store.events()] == ["event-0", "event-2", "event-3"]
    assert verify_ledger(path).ok


def test_the_head_is_the_root_over_the_bodies(path):
    with open_store(path) as store:
        store.append(some_events(5))
        bodies = [
            body for (body,) in store.connection.execute("SELECT body FROM event ORDER BY seq")
        ]
        assert store.head().root == root_of([leaf_hash(body) for body in bodies])
        assert store.head().size == 5
        assert store.head().origin == store.origin


def test_heads_are_stored_every_256_events_and_every_minute(path):
    clock = ManualClock(START_US)
    with open_store(path, clock=clock) as store:
        sizes = lambda: [head.size for head in store.stored_heads()]
        store.append(some_events(1))
        store.append(some_events(2, first=1))
        assert sizes() == [1]
        store.append(some_events(300, first=3))
        assert sizes() == [1, 303]
        clock.advance_us(60_000_000)
        store.append(some_events(1, first=303))
        assert sizes() == [1, 303, 304]
        store.append(some_events(1, first=304))
        assert store.seal().size == 305
        assert sizes() == [1, 303, 304, 305]


def test_a_stored_head_that_was_altered_is_not_mended_by_storing_it_again(path):
    with open_store(path) as store:
        store.append(some_events(3))
        store.connection.execute("UPDATE tree_head SET root = zeroblob(32)")
        store.seal()
    assert "tree head of size 3 was altered" in verify_ledger(path).reason


def test_the_files_are_readable_by_their_user_only(path):
    with open_store(path) as store:
        store.append([some_event(0)])
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_every_commit_waits_for_the_disk(path):
    with open_store(path) as store:
        assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # 2 = FULL
        assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_tables_are_strict(path):
    with open_store(path) as store:
        tables = store.connection.execute(
            "SELECT name, strict FROM pragma_table_list WHERE schema = 'main'"
        )
        assert {name for name, strict in tables if not strict} == {"sqlite_schema"}


def test_two_writers_of_one_file_share_one_sequence(path):
    with open_store(path) as one, open_store(path) as other:
        for number in range(0, 20, 2):
            assert one.append([some_event(number)])[0].seq == number
            assert other.append([some_event(number + 1)])[0].seq == number + 1
        assert one.head() == other.head()
    assert verify_ledger(path).ok


def test_four_processes_append_at_once_and_nothing_is_lost(path):
    """Opening races too: the file does not exist when they start."""
    script = (
        "import sys\n"
        "from lastgood.base.clock import SystemClock\n"
        "from lastgood.ledger.event import new_event\n"
        "from lastgood.ledger.store import open_store\n"
        "with open_store(sys.argv[1]) as store:\n"
        "    for n in range(25):\n"
        "        store.append([new_event('annotation', clock=SystemClock(), id=f'{sys.argv[2]}-{n}')])\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(number)], stderr=subprocess.PIPE
        )
        for number in range(4)
    ]
    errors = [process.communicate(timeout=50)[1].decode() for process in processes]
    assert errors == [""] * 4
    with open_store(path) as store:
        assert sorted(event.id for event in store.events()) == sorted(
            f"{writer}-{number}" for writer in range(4) for number in range(25)
        )
    assert verify_ledger(path).ok


# --- what is not a ledger, or cannot be written ------------------------------------------------------


def test_a_text_file_is_not_a_ledger(path):
    path.write_text(
        "hello, this is a text file that is long enough to be looked at by SQLite " * 20
    )
    with pytest.raises(LedgerError, match="not a ledger") as caught:
        open_store(path)
    assert caught.value.code == "LG-L04"


def test_the_database_of_something_else_is_not_a_ledger(path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE recipe (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="something else"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_ledger_of_a_newer_lastgood_is_left_alone(path):
    make_ledger(path, 3)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(LedgerError, match="newer lastgood") as caught:
        open_store(path)
    assert caught.value.code == "LG-L05"
    assert "schema 2" in str(caught.value)


def test_a_missing_ledger_is_not_made_unasked(path):
    with pytest.raises(LedgerError, match="no such ledger"):
        open_store(path, create=False)
    assert not path.exists()


@pytest.mark.parametrize("create", [True, False])
def test_an_empty_file_is_not_a_ledger_and_stays_empty(path, create):
    path.touch()
    with pytest.raises(LedgerError, match="not a ledger: found an empty file"):
        open_store(path, create=create)
    assert (path.read_bytes(), [*path.parent.iterdir()]) == (b"", [path])


@pytest.mark.parametrize("has_links", [True, False])
def test_a_ledger_is_whole_as_soon_as_it_has_its_name(path, monkeypatch, has_links):
    if not has_links:

        def link(*_a: object) -> None:
            raise PermissionError("no links here")

        monkeypatch.setattr(creation.os, "link", link)
    creation.make_ledger(path)
    assert (path.stat().st_mode & 0o777, [*path.parent.iterdir()]) == (0o600, [path])
    assert verify_ledger(path).ok
    before = path.read_bytes()
    creation.make_ledger(path)
    assert path.read_bytes() == before, "another process was faster"


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(LedgerError, match="folder of the ledger does not exist") as caught:
        open_store(tmp_path / "mnt x" / "runs" / "ledger.db")
    assert str(caught.value).endswith(f"run: mkdir -p '{tmp_path / 'mnt x' / 'runs'}'")
    assert not (tmp_path / "mnt x").exists()


def test_the_folder_of_the_default_ledger_is_ours_to_make(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LASTGOOD_LEDGER", raising=False)
    path = default_ledger()
    open_store(path).close()
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be opened"):
        open_store(tmp_path / "file" / "ledger.db")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_a_read_only_ledger_says_so(path):
    make_ledger(path, 3)
    path.chmod(0o400)
    with pytest.raises(LedgerError, match="read-only"):
        open_store(path)


def test_a_ledger_opened_without_the_right_to_write_says_so(path):
    make_ledger(path, 3)
    with open_store(path) as store:
        store.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(LedgerError, match="read-only") as caught:
            store.append([some_event(3)])
        assert caught.value.code == "LG-L07"


def test_a_full_disk_says_so_and_loses_nothing_acknowledged(path):
    """SQLite's own page limit raises the error of a full disk."""
    with open_store(path) as store:
        store.append(some_events(3))
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
        with pytest.raises(LedgerError, match="disk is full") as caught:
            store.append([some_event(n, body={"text": "x" * 4000}) for n in range(3, 13)])
        assert caught.value.code == "LG-L06"
        assert store.size == 3
        store.connection.execute("PRAGMA max_page_count = 100000").fetchall()
        assert store.append([some_event(3)]) == [Stored(3, "event-3")]
    assert verify_ledger(path).ok


def test_a_damaged_frontier_stops_the_writer(path):
    make_ledger(path, 3)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE frontier SET hashes = x'00'")
    connection.close()
    with open_store(path) as store, pytest.raises(LedgerError, match="frontier is damaged"):
        store.append([some_event(3)])


def test_a_damaged_page_is_called_damage(path):
    make_ledger(path, 300)
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 4096 * 12)
    with pytest.raises(LedgerCorrupt, match="lastgood verify"), open_store(path) as store:
        list(store.events())


# --- reading only -------------------------------------------------------------------------------------


def test_reading_changes_no_byte_and_refuses_to_write(path):
    make_ledger(path, 7)
    before = path.read_bytes()
    with read_store(path) as store:
        assert [event.seq for event in store.events()] == list(range(7))
        assert store.head() == verify_ledger(path).head
        with pytest.raises(LedgerError, match="read-only"):
            store.append([some_event(7)])
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir() if file.name.startswith("ledger.db-")] == []


def test_a_reader_sees_what_a_writer_appends_beside_it(path):
    with open_store(path) as writer, read_store(path) as reader:
        writer.append(some_events(3))
        assert reader.size == 3
        writer.append(some_events(1, first=3))
        assert reader.size == 4


def test_reading_makes_no_ledger(path):
    with pytest.raises(LedgerError, match="no such ledger"):
        read_store(path)
    path.write_text("text " * 1000)
    with pytest.raises(LedgerError, match="not a ledger"):
        read_store(path)


# --- projections --------------------------------------------------------------------------------------


def counting(version: int = 1, *, word: str = "runs") -> Projection:
    """Counts events by run."""

    def apply(connection: apsw.Connection, event: Event) -> None:
        if event.body.get("poison"):
            raise KeyError("poison")
        connection.execute(
            "INSERT INTO runs VALUES (?, 1) ON CONFLICT (run) DO UPDATE SET count = count + 1",
            (event.run or "none",),
        )

    return Projection(
        name=word,
        version=version,
        tables={"runs": "CREATE TABLE runs (run TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT"},
        apply=apply,
    )


def counts(store) -> dict[str, int]:
    return dict(store.connection.execute("SELECT run, count FROM runs"))


def test_a_projection_changes_with_the_events_it_comes_from(path):
    with open_store(path, projections=[counting()]) as store:
        store.append([some_event(0), some_event(1, run="r2"), some_event(2)])
        assert counts(store) == {"r1": 2, "r2": 1}
        store.append([some_event(0)])  # already there: not applied again
        assert counts(store) == {"r1": 2, "r2": 1}


def test_a_projection_that_refuses_an_event_refuses_its_submission_only(path):
    with open_store(path, projections=[counting()]) as store:
        poisoned = [some_event(1), some_event(2, body={"poison": True})]
        results = store.append_groups([[some_event(0)], poisoned, [some_event(3)]])
        assert [isinstance(result, KeyError) for result in results] == [False, True, False]
        assert counts(store) == {"r1": 2}
        assert [event.id for event in store.events()] == ["event-0", "event-3"]


def test_a_projection_catches_up_with_what_was_there_before_it(path):
    with open_store(path) as store:
        store.append(some_events(4))
    with open_store(path, projections=[counting()]) as store:
        assert counts(store) == {"r0": 2, "r1": 2}


def test_a_projection_catches_up_with_a_writer_that_does_not_know_it(path):
    with open_store(path, projections=[counting()]) as store, open_store(path) as plain:
        store.append([some_event(0)])
        plain.append([some_event(1), some_event(2)])
        assert counts(store) == {"r1": 1}
        store.append([some_event(3), some_event(4)])
        assert counts(store) == {"r1": 5}


def test_a_new_version_of_a_projection_is_built_anew(path):
    with open_store(path, projections=[counting()]) as store:
        store.append([some_event(0)])
        store.connection.execute("UPDATE runs SET count = 77")
    with open_store(path, projections=[counting()]) as store:
        assert counts(store) == {"r1": 77}
    with open_store(path, projections=[counting(2)]) as store:
        assert counts(store) == {"r1": 1}


def test_a_projection_can_be_rebuilt_and_verify_does_not_need_it(path):
    with open_store(path, projections=[counting()]) as store:
        store.append(some_events(5))
        right = counts(store)
        store.connection.execute("DELETE FROM runs")
        assert verify_ledger(path).ok
        store.rebuild("runs")
        assert counts(store) == right


def test_a_copy_is_one_plain_file_with_the_same_head(path, tmp_path):
    with open_store(path) as store:
        store.append(some_events(5))
        head = store.head()
        store.copy_to(tmp_path / "copy.db")
        with pytest.raises(LedgerError):
            store.copy_to(tmp_path / "copy.db")
    result = verify_ledger(tmp_path / "copy.db", head=head)
    assert (result.ok, result.head) == (True, head)
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert not (tmp_path / "copy.db-wal").exists()
