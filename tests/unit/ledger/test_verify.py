from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.errors import BadInput
from lastgood.ledger import mapped
from lastgood.ledger.event import decode_event, encode_event, new_event
from lastgood.ledger.mapped import map_file
from lastgood.ledger.merkle import TreeBuilder, leaf_hash
from lastgood.ledger.schema import EMPTY_LINK, HEAD_EVENT_COUNT, open_read_only
from lastgood.ledger.store import open_store
from lastgood.ledger.tree_head import TreeHead
from lastgood.ledger.verify import Verdict, verify_ledger
from tests.unit.ledger.cases import make_ledger, some_event, some_events

COUNT = 12


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    return make_ledger(tmp_path_factory.mktemp("template") / "ledger.db", COUNT, commits=3)


@pytest.fixture
def path(template, tmp_path) -> Path:
    return Path(shutil.copy(template, tmp_path / "ledger.db"))


def change(path: Path, *statements: str, values: tuple = ()) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement, values if "?" in statement else ())
    connection.close()


def rewrite_consistently(path: Path, *, seq: int, is_head_rewritten: bool = False) -> None:
    """What somebody who knows the format would do: change one body, then every link and the frontier after it."""
    connection = apsw.Connection(str(path))
    tree, link = TreeBuilder(), EMPTY_LINK
    for at, body in connection.execute("SELECT seq, body FROM event ORDER BY seq").fetchall():
        if at == seq:
            event = decode_event(body)
            body = encode_event(
                type(event)(
                    kind=event.kind,
                    id=event.id,
                    seq=at,
                    t_occurred_us=event.t_occurred_us,
                    run=event.run,
                    links=event.links,
                    body={"forged": 1},
                )
            )
        leaf = leaf_hash(body)
        link = sha256(link + leaf).digest()
        tree.append(leaf)
        connection.execute("UPDATE event SET body = ?, link = ? WHERE seq = ?", (body, link, at))
        if is_head_rewritten:
            (origin,) = connection.execute("SELECT value FROM ledger_meta").fetchone()
            note = TreeHead(origin=origin, size=tree.size, root=tree.root()).to_note()
            connection.execute(
                "UPDATE tree_head SET root = ?, note = ? WHERE size = ?",
                (tree.root(), note, tree.size),
            )
    frontier = tree.frontier()
    connection.execute(
        "UPDATE frontier SET hashes = ?, root = ?, link = ?",
        (frontier.to_bytes(), frontier.root(), link),
    )
    connection.close()


@pytest.fixture(params=["mapped", "plain"])
def reading(request, monkeypatch):
    """Pages as memory, and pages that are read one by one: what the kernel of an older machine leaves."""
    if request.param == "plain":
        monkeypatch.setattr(mapped, "_POPULATE_READ", 9_999)
    return request.param


def test_a_file_is_memory_only_where_the_kernel_has_all_its_pages(path, reading):
    connection = open_read_only(path)
    assert map_file(connection, path) == (reading == "mapped")
    (size,) = connection.execute("PRAGMA mmap_size").fetchone()
    assert size == (path.stat().st_size if reading == "mapped" else 0)
    connection.close()


def test_a_file_larger_than_the_bound_is_read_page_by_page(path, monkeypatch):
    monkeypatch.setattr(mapped, "MAP_BYTES_MAX", path.stat().st_size - 1)
    connection = open_read_only(path)
    assert not map_file(connection, path)
    connection.close()
    assert verify_ledger(path).ok


@pytest.mark.parametrize("page", [2, 3, -1])
def test_a_page_that_was_overwritten_is_found_however_it_is_read(tmp_path, reading, page):
    path = make_ledger(tmp_path / "long.db", 600)
    assert verify_ledger(path).ok
    with path.open("r+b") as file:
        file.seek(0 if page > 0 else 4096 * page, 0 if page > 0 else 2)
        file.seek(4096 * max(page, 0), 1)
        file.write(bytes(4096))
    result = verify_ledger(path)
    assert (result.verdict, result.ok) == (Verdict.FAILED, False)


def test_a_file_that_was_cut_short_is_damage_and_no_crash(tmp_path, reading):
    path = make_ledger(tmp_path / "long.db", 600)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3 // 4096 * 4096 + 100)
    assert verify_ledger(path).verdict is Verdict.FAILED


@pytest.mark.parametrize("seq", [0, 255, 256, 599])
def test_the_row_is_named_in_whatever_block_it_lies(tmp_path, reading, seq):
    """Blocks end where a tree head was stored."""
    path = make_ledger(tmp_path / "long.db", 600, commits=7)
    change(path, f"UPDATE event SET body = CAST(body || ' ' AS BLOB) WHERE seq = {seq}")
    assert verify_ledger(path).first_bad_seq == seq


def test_an_untouched_ledger_holds_and_says_its_head(path):
    with open_store(path) as store:
        head = store.head()
    result = verify_ledger(path)
    assert (result.verdict, result.ok, result.size) == (Verdict.OK, True, COUNT)
    assert result.head == head
    assert result.first_bad_seq is None
    assert result.head_count == 3


def test_an_empty_ledger_holds(tmp_path):
    open_store(tmp_path / "ledger.db").close()
    result = verify_ledger(tmp_path / "ledger.db")
    assert (result.ok, result.size) == (True, 0)
    assert result.root.hex() == sha256(b"").hexdigest()


@pytest.mark.parametrize("seq", [0, 5, COUNT - 1])
@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE event SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB) WHERE seq = :n", ()),
        ("UPDATE event SET body = x'' WHERE seq = :n", ()),
        ("UPDATE event SET link = ? WHERE seq = :n", (bytes(32),)),
        ("UPDATE event SET id = 'other' WHERE seq = :n", ()),
        ("UPDATE event SET kind = 'detect' WHERE seq = :n", ()),
        ("UPDATE event SET run = 'r77' WHERE seq = :n", ()),
        ("UPDATE event SET incident = 'i77' WHERE seq = :n", ()),
        ("UPDATE event SET t_occurred_us = 1 WHERE seq = :n", ()),
        ("DELETE FROM event WHERE seq = :n", ()),
    ],
)  # fmt: skip
def test_an_altered_or_removed_row_is_named(path, seq, statement, values):
    change(path, statement.replace(":n", str(seq)), values=values)
    result = verify_ledger(path)
    assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, seq)
    assert f"row {seq}" in result.reason
    assert result.root is None
    assert "copy" in result.next


def test_a_removed_row_is_called_missing(path):
    change(path, "DELETE FROM event WHERE seq IN (3, 4)")
    assert "row 3 is missing: the next one there is 5" in verify_ledger(path).reason


def test_two_rows_that_changed_places_are_named_by_the_first(path):
    change(
        path,
        "UPDATE event SET seq = -1 WHERE seq = 4",
        "UPDATE event SET seq = 4 WHERE seq = 7",
        "UPDATE event SET seq = 7 WHERE seq = -1",
    )
    assert verify_ledger(path).first_bad_seq == 4


def test_a_removed_row_whose_followers_moved_up_is_named(path):
    change(path, "DELETE FROM event WHERE seq = 6", "UPDATE event SET seq = seq - 1 WHERE seq > 6")
    assert verify_ledger(path).first_bad_seq == 6


def test_a_row_added_at_the_end_is_named(path):
    change(
        path,
        "INSERT INTO event SELECT seq + 1, 'new', kind, run, incident, t_occurred_us, link, body "
        "FROM event ORDER BY seq DESC LIMIT 1",
    )
    assert verify_ledger(path).first_bad_seq == COUNT


def test_a_row_added_at_the_end_with_all_its_hashes_is_named(path, tmp_path):
    """The row is what the real writer would have written; only the frontier does not count it."""
    twin = Path(shutil.copy(path, tmp_path / "twin.db"))
    with open_store(twin) as store:
        store.append(some_events(1, first=COUNT))
        row = store.connection.execute("SELECT * FROM event WHERE seq = ?", (COUNT,)).fetchone()
    change(path, "INSERT INTO event VALUES (?,?,?,?,?,?,?,?)", values=row)
    result = verify_ledger(path)
    assert result.first_bad_seq == COUNT
    assert "added" in result.reason


def test_a_row_with_a_negative_number_is_found(path):
    change(
        path,
        "INSERT INTO event SELECT -1, 'new', kind, run, incident, t_occurred_us, link, body "
        "FROM event ORDER BY seq LIMIT 1",
    )
    assert verify_ledger(path).first_bad_seq == 0


def test_removed_last_rows_are_named_by_the_frontier(path):
    change(path, "DELETE FROM event WHERE seq >= 9")
    result = verify_ledger(path)
    assert (result.first_bad_seq, result.size) == (9, 9)


@pytest.mark.parametrize("column", ["hashes", "root", "link"])
def test_an_altered_frontier_is_found(path, column):
    change(path, f"UPDATE frontier SET {column} = zeroblob(32)")
    result = verify_ledger(path)
    assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, None)
    assert "frontier" in result.reason


def test_a_removed_frontier_is_found(path):
    change(path, "DELETE FROM frontier")
    assert "frontier" in verify_ledger(path).reason


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tree_head SET root = zeroblob(32) WHERE size = 8",
        "UPDATE tree_head SET note = replace(note, '8', '9') WHERE size = 8",
        "UPDATE tree_head SET note = 'nonsense' WHERE size = 8",
        "UPDATE tree_head SET size = 7 WHERE size = 8",
        "UPDATE ledger_meta SET value = 'another ledger'",
    ],
)
def test_an_altered_stored_head_is_found(path, statement):
    change(path, statement)
    result = verify_ledger(path)
    assert result.verdict is Verdict.FAILED
    assert "tree head" in result.reason


def test_a_stored_head_with_a_false_root_in_right_form_is_found(path):
    with open_store(path) as store:
        note = TreeHead(origin=store.origin, size=8, root=bytes(32)).to_note()
    change(
        path, "UPDATE tree_head SET root = zeroblob(32), note = ? WHERE size = 8", values=(note,)
    )
    result = verify_ledger(path)
    assert "size 8 is not the root" in result.reason


def test_history_rewritten_with_links_and_frontier_is_found_by_the_stored_heads(path):
    rewrite_consistently(path, seq=5)
    result = verify_ledger(path)
    assert result.verdict is Verdict.FAILED
    assert "stored tree head of size 8" in result.reason


def test_history_rewritten_with_everything_inside_is_found_by_the_outside_head_only(path):
    outside = verify_ledger(path).head
    rewrite_consistently(path, seq=5, is_head_rewritten=True)
    assert verify_ledger(path).ok
    result = verify_ledger(path, head=outside)
    assert result.verdict is Verdict.FAILED
    assert "rewritten" in result.reason


def test_a_tail_cut_cleanly_is_found_by_the_outside_head_only(path, tmp_path):
    outside = verify_ledger(path).head
    # An older copy of the same ledger: every byte inside fits.
    older = tmp_path / "older.db"
    with open_store(older) as store:
        store.connection.execute("UPDATE ledger_meta SET value = ?", (outside.origin,))
    with open_store(older) as store:
        store.append(some_events(7))
    assert verify_ledger(older).ok
    result = verify_ledger(older, head=outside)
    assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, 7)
    assert "tail was cut" in result.reason


def test_a_ledger_that_has_grown_still_contains_the_outside_head(path):
    outside = verify_ledger(path).head
    with open_store(path) as store:
        store.append([some_event(COUNT)])
    result = verify_ledger(path, head=outside)
    assert result.ok
    assert f"size {COUNT}" in result.reason


def test_the_head_of_another_ledger_is_refused(path):
    with pytest.raises(BadInput, match="another ledger"):
        verify_ledger(
            path, head=TreeHead(origin="lastgood.dev/ledger/other", size=1, root=bytes(32))
        )


def test_damage_to_an_index_is_told_from_damage_to_rows(path):
    """One entry of the run index is altered in the file: the rows hold, a look-up by run would lie."""
    connection = apsw.Connection(str(path))
    (page,) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'event_by_run'"
    ).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    at = data.index(b"r1", (page - 1) * 4096)
    assert at < page * 4096
    data[at + 1] = ord("9")
    path.write_bytes(data)
    result = verify_ledger(path)
    assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, None)
    assert "rows hold" in result.reason


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE event SET run = CAST(x'ff' AS TEXT) WHERE seq = 5", 5),
        ("UPDATE tree_head SET note = CAST(x'ff' AS TEXT)", None),
        ("UPDATE ledger_meta SET value = CAST(x'ff' AS TEXT)", None),
    ],
)
def test_text_that_is_no_text_is_damage(path, statement, seq):
    change(path, statement)
    result = verify_ledger(path)
    assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, seq)


def test_verifying_changes_nothing_and_works_beside_a_writer(path):
    with open_store(path) as store:
        store.append([some_event(COUNT)])
        before = {
            file.name: file.read_bytes()
            for file in path.parent.glob("*.db*")
            if "shm" not in file.name
        }
        assert verify_ledger(path).size == COUNT + 1
        after = {
            file.name: file.read_bytes()
            for file in path.parent.glob("*.db*")
            if "shm" not in file.name
        }
    assert before == after


def test_a_file_that_is_not_a_ledger_is_bad_input(tmp_path):
    (tmp_path / "x").write_text("text " * 1000)
    with pytest.raises(BadInput, match="not a ledger"):
        verify_ledger(tmp_path / "x")
    with pytest.raises(BadInput, match="no such ledger"):
        verify_ledger(tmp_path / "absent")


def test_a_newer_ledger_cannot_be_judged(path):
    change(path, "PRAGMA user_version = 9")
    result = verify_ledger(path)
    assert (result.verdict, result.ok) == (Verdict.UNKNOWN, False)
    assert "newer" in result.reason


def test_a_lost_table_is_not_held(path):
    change(path, "DROP TABLE event")
    assert verify_ledger(path).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("DROP INDEX event_by_run", "index event_by_run is missing"),
        ("DROP TABLE projection", "table projection is missing"),
        ("CREATE TABLE recipe (name TEXT)", "table recipe was added"),
        ("CREATE INDEX mine ON event (run)", "index mine was added"),
        ("CREATE VIEW mine AS SELECT * FROM event", "view mine was added"),
        (
            "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM tree_head; END",
            "trigger t was added",
        ),
        ("ALTER TABLE tree_head ADD COLUMN more TEXT", "table tree_head is not as"),
        ("INSERT INTO ledger_meta VALUES ('more', 'x')", "ledger_meta holds more"),
    ],
)
def test_tables_and_indexes_are_those_that_lastgood_makes(path, statement, part):
    change(path, statement)
    result = verify_ledger(path)
    assert result.verdict is Verdict.FAILED
    assert part in result.reason


def test_what_sqlite_keeps_about_a_file_is_no_change(path):
    change(path, "ANALYZE", "VACUUM")
    assert verify_ledger(path).ok


def test_the_heads_of_full_blocks_must_be_there(tmp_path):
    path = make_ledger(tmp_path / "long.db", HEAD_EVENT_COUNT + 3)
    assert verify_ledger(path).ok
    change(path, "DELETE FROM tree_head")
    result = verify_ledger(path)
    assert result.verdict is Verdict.FAILED
    assert f"must count {HEAD_EVENT_COUNT} rows" in result.reason


def test_one_event_is_not_called_all_1_events(tmp_path):
    result = verify_ledger(make_ledger(tmp_path / "one.db", 1))
    assert result.reason == "the one event hashes to the recorded tree"


def test_a_ledger_with_the_index_of_an_earlier_day_holds(path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE INDEX event_by_kind ON event (kind)")
    assert verify_ledger(path).ok
    connection.execute("DROP INDEX event_by_kind")
    connection.execute("CREATE INDEX event_by_kind ON event (kind, run)")
    connection.close()
    assert "index event_by_kind was added" in verify_ledger(path).reason


def test_the_scan_says_how_far_it_is(tmp_path):
    path = make_ledger(tmp_path / "long.db", 1_500)
    told = []
    assert verify_ledger(path, on_progress=lambda done, of: told.append((done, of))).ok
    assert (1_024, 1_500) in told
    assert all(done <= of == 1_500 for done, of in told)
    change(path, "DROP TABLE frontier")
    assert not verify_ledger(path, on_progress=lambda done, of: None).ok


def test_damage_in_a_page_is_told_and_not_the_line_of_asterisks_above_it(tmp_path):
    path = tmp_path / "l.db"
    clock = ManualClock(1_000_000)
    with open_store(path, clock=clock) as store:
        store.append([new_event("annotation", clock=clock, run="r", body={}) for _ in range(9)])
    connection = apsw.Connection(str(path))
    ((page,),) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'event_by_run'"
    )
    ((size,),) = connection.execute("PRAGMA page_size")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    at = (page - 1) * size + 8  # the first pointer behind the eight bytes of a leaf's header
    content[at : at + 2] = (size + 99).to_bytes(2, "big")
    path.write_bytes(content)
    result = verify_ledger(path)
    assert not result.ok
    assert "the file around them is damaged: " in result.reason
    assert "***" not in result.reason
    assert f"page {page}" in result.reason
