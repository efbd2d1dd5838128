"""Laws of the ledger: whatever is done to the rows or bytes of its file is found, and the row is named."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.base.errors import BadInput
from lastgood.ledger.event import decode_event, encode_event
from lastgood.ledger.merkle import (
    Frontier,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
)
from lastgood.ledger.store import open_store
from lastgood.ledger.tree_head import TreeHead, parse_note
from lastgood.ledger.verify import Verdict, verify_ledger
from tests.unit.ledger.cases import make_ledger, some_events

COUNT = 24
COLUMNS = ("seq", "id", "kind", "run", "incident", "t_occurred_us", "link", "body")


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    return make_ledger(tmp_path_factory.mktemp("laws") / "ledger.db", COUNT, commits=4)


# --- mutations of rows: each returns the first row that is now wrong, or None when nothing changed ----


def flip_byte(connection: apsw.Connection, draw) -> int | None:
    seq = draw(st.integers(0, COUNT - 1))
    column = draw(st.sampled_from(("body", "link")))
    (data,) = connection.execute(f"SELECT {column} FROM event WHERE seq = ?", (seq,)).fetchone()
    at = draw(st.integers(0, len(data) - 1))
    flipped = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    connection.execute(f"UPDATE event SET {column} = ? WHERE seq = ?", (flipped, seq))
    return seq


def alter_column(connection: apsw.Connection, draw) -> int | None:
    seq = draw(st.integers(0, COUNT - 1))
    column = draw(st.sampled_from(("id", "kind", "run", "incident", "t_occurred_us")))
    nullable = column in {"run", "incident", "t_occurred_us"}
    if column == "t_occurred_us":
        value = draw(st.integers(-(2**63), 2**63 - 1) | st.none())
    else:
        value = draw(st.text(max_size=8) | st.none()) if nullable else draw(st.text(max_size=8))
    before = connection.execute(f"SELECT {column} FROM event WHERE seq = ?", (seq,)).fetchone()
    connection.execute(f"UPDATE OR IGNORE event SET {column} = ? WHERE seq = ?", (value, seq))
    after = connection.execute(f"SELECT {column} FROM event WHERE seq = ?", (seq,)).fetchone()
    return None if before == after else seq


def remove(connection: apsw.Connection, draw) -> int | None:
    gone = draw(st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=5))
    connection.executemany("DELETE FROM event WHERE seq = ?", [(seq,) for seq in gone])
    return min(gone)


def remove_and_close_the_gap(connection: apsw.Connection, draw) -> int | None:
    seq = draw(st.integers(0, COUNT - 1))
    connection.execute("DELETE FROM event WHERE seq = ?", (seq,))
    for later in range(seq + 1, COUNT):
        connection.execute("UPDATE event SET seq = ? WHERE seq = ?", (later - 1, later))
    return seq


def reorder(connection: apsw.Connection, draw) -> int | None:
    order = draw(st.permutations(range(COUNT)))
    connection.execute("UPDATE event SET seq = seq + 1000")
    for new, old in enumerate(order):
        connection.execute("UPDATE event SET seq = ? WHERE seq = ?", (new, old + 1000))
    return next((new for new, old in enumerate(order) if new != old), None)


def swap_contents(connection: apsw.Connection, draw) -> int | None:
    """Two rows exchange body and link, keeping their other columns."""
    one, other = draw(st.lists(st.integers(0, COUNT - 1), min_size=2, max_size=2, unique=True))
    rows = {
        seq: connection.execute("SELECT body, link FROM event WHERE seq = ?", (seq,)).fetchone()
        for seq in (one, other)
    }
    connection.execute("UPDATE event SET body = ?, link = ? WHERE seq = ?", (*rows[other], one))
    connection.execute("UPDATE event SET body = ?, link = ? WHERE seq = ?", (*rows[one], other))
    return min(one, other)


def add(connection: apsw.Connection, draw) -> int | None:
    """A copy of a row is put anywhere, the rows behind it moving up."""
    place, source = draw(st.integers(0, COUNT)), draw(st.integers(0, COUNT - 1))
    row = connection.execute("SELECT * FROM event WHERE seq = ?", (source,)).fetchone()
    for later in range(COUNT - 1, place - 1, -1):
        connection.execute("UPDATE event SET seq = ? WHERE seq = ?", (later + 1, later))
    marks = ",".join("?" * len(COLUMNS))
    connection.execute(f"INSERT INTO event VALUES ({marks})", (place, "a-new-id", *row[2:]))
    return place


MUTATIONS = (
    flip_byte, alter_column, remove, remove_and_close_the_gap, reorder, swap_contents, add,
)  # fmt: skip


@settings(max_examples=300)
@given(data=st.data(), mutation=st.sampled_from(MUTATIONS))
def test_every_change_of_the_rows_is_found_and_the_first_bad_row_named(template, data, mutation):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(template, Path(folder) / "ledger.db"))
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        first_bad = mutation(connection, data.draw)
        connection.execute("COMMIT")
        connection.close()
        result = verify_ledger(path)
    if first_bad is None:
        assert result.ok
    else:
        assert (result.verdict, result.first_bad_seq) == (Verdict.FAILED, first_bad)


@settings(max_examples=200)
@given(data=st.data())
def test_no_flipped_byte_of_the_file_lets_other_events_pass_as_held(template, data):
    """Any byte of the file: either the ledger no longer verifies, or it says exactly what it said.

    Bytes that SQLite does not use (free space, counters) may change without consequence.
    """
    whole = template.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    outside = verify_ledger(template).head
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        path.write_bytes(flipped)
        try:
            result = verify_ledger(path, head=outside)
        except BadInput:
            return  # the header is gone: not a ledger
        if result.ok:
            assert rows(path) == rows(template)


def rows(path: Path) -> list[tuple]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute("SELECT * FROM event ORDER BY seq").fetchall()
    connection.close()
    return found


# --- the tree ---------------------------------------------------------------------------------------

entries = st.lists(st.binary(max_size=6), min_size=1, max_size=40)


@given(entries=entries, data=st.data())
def test_every_prefix_and_every_entry_of_a_list_can_be_proved(entries, data):
    leaves = [leaf_hash(entry) for entry in entries]
    old_size = data.draw(st.integers(1, len(leaves)))
    index = data.draw(st.integers(0, len(leaves) - 1))
    root = root_of(leaves)
    assert check_consistency(
        old_size=old_size,
        new_size=len(leaves),
        old_root=root_of(leaves[:old_size]),
        new_root=root,
        proof=consistency_proof(leaves, old_size=old_size),
    )
    proof = inclusion_proof(leaves, index=index)
    assert check_inclusion(
        leaf=leaves[index], index=index, size=len(leaves), proof=proof, root=root
    )


def recursive_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962 section 2.1, as the text defines it: the oracle of the frontier."""
    from hashlib import sha256

    if len(leaves) == 0:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + recursive_root(leaves[:k]) + recursive_root(leaves[k:])).digest()


@given(entries=st.lists(st.binary(max_size=6), max_size=70))
def test_the_frontier_reaches_the_root_that_the_recursive_definition_gives(entries):
    leaves = [leaf_hash(entry) for entry in entries]
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    assert frontier.root() == recursive_root(leaves)


@given(
    origin=st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp", "Zs")), min_size=1),
    size=st.integers(0, 2**63 - 1),
    root=st.binary(min_size=32, max_size=32),
)
def test_a_head_survives_its_note(origin, size, root):
    head = TreeHead(origin=origin, size=size, root=root)
    assert parse_note(head.to_note()) == head


# --- events -----------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    extra=st.dictionaries(st.sampled_from(["zz", "a_new_field", "Klasse"]), json_values),
    body=json_values,
)
def test_a_reader_gives_back_the_bytes_of_any_newer_writer(extra, body):
    from lastgood.base.canonical import canonical_bytes
    from lastgood.base.errors import CanonicalError

    plain = {"schema": "lastgood.event/1", "kind": "step", "id": "x", "body": {"b": body}, **extra}
    try:
        data = canonical_bytes(plain)
    except CanonicalError:
        return  # two keys that are one after NFC
    assert encode_event(decode_event(data)) == data


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6), repeats=st.integers(0, 3))
def test_how_events_are_grouped_into_commits_does_not_change_the_ledger(cuts, repeats):
    """The same events in one commit or in many, some sent twice: same root."""
    events = some_events(sum(cuts))
    heads = []
    with tempfile.TemporaryDirectory() as folder:
        for name, sizes in (("one", [len(events)]), ("many", cuts)):
            with open_store(Path(folder) / name, clock=_Fixed()) as store:
                at = 0
                for size in sizes:
                    store.append(events[max(0, at - repeats) : at + size])
                    at += size
                heads.append((store.head().root, [event.id for event in store.events()]))
    assert heads[0] == heads[1]


class _Fixed:
    def wall_us(self) -> int:
        return 5

    def monotonic_us(self) -> int:
        return 5

    def sleep_us(self, duration_us: int) -> None:
        raise AssertionError(duration_us)


def test_the_laws_cover_every_column():
    assert set(COLUMNS) == {column for (column,) in apsw_columns()}


def apsw_columns() -> list[tuple[str]]:
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "x.db") as store:
        return store.connection.execute("SELECT name FROM pragma_table_info('event')").fetchall()
