"""The tables of the embedded ledger, how a file is recognised as one, and what SQLite's errors mean here."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from lastgood.base.errors import LedgerCorrupt, LedgerError, LedgerPathError

APPLICATION_ID = 0x4C474C44
"""`LGLD`: SQLite keeps it in the file's header, so a ledger is told from any other database."""
SCHEMA_VERSION = 1
EMPTY_LINK = bytes(32)
HEAD_EVENT_COUNT = 256
"""Rows of a block. The commit that fills one stores a tree head, and `verify` expects it."""
READ_BUSY_MS_MAX = 5_000
STORAGE_FAILURES = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.InterruptError,
    apsw.ProtocolError,
    OSError,
)
"""Errors of the file or the machine, as opposed to those of one submission."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS event (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, run TEXT, incident TEXT,
        t_occurred_us INTEGER, link BLOB NOT NULL, body BLOB NOT NULL) STRICT""",
    "CREATE INDEX IF NOT EXISTS event_by_run ON event (run) WHERE run IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS frontier (
        only INTEGER PRIMARY KEY CHECK (only = 0), size INTEGER NOT NULL, hashes BLOB NOT NULL,
        root BLOB NOT NULL, link BLOB NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS tree_head (
        size INTEGER PRIMARY KEY, root BLOB NOT NULL, t_us INTEGER NOT NULL, note TEXT NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS projection (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, size INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
)

FORMER = {"event_by_kind": ("index", "event", "CREATE INDEX event_by_kind ON event (kind)")}
"""What ledgers of an earlier day have besides. No look-up used it, and every append and check paid for it."""


def create_tables(connection: apsw.Connection, *, origin: str) -> None:
    """Makes an empty file a ledger with this origin; a file that is one already stays as it is."""
    from lastgood.ledger.merkle import EMPTY_ROOT

    if _pragma(connection, "user_version") == SCHEMA_VERSION:
        return
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            if _pragma(connection, "user_version") != SCHEMA_VERSION:  # nobody was faster
                for statement in TABLES:
                    cursor.execute(statement)
                cursor.execute("INSERT INTO ledger_meta VALUES ('origin', ?)", (origin,))
                cursor.execute(
                    "INSERT INTO frontier VALUES (0, 0, x'', ?, ?)", (EMPTY_ROOT, EMPTY_LINK)
                )
                cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def schema_problem(connection: apsw.Connection) -> str | None:
    """What differs from the tables and indexes that lastgood makes; None when nothing does.

    Tables of a projection are not known here; where one is registered, only what hangs on our own tables is judged.
    """
    with contextlib.closing(apsw.Connection(":memory:")) as pattern:
        for statement in TABLES:
            pattern.execute(statement)
        wanted = _objects(pattern)
    found = _objects(connection)
    for name in (*wanted, *found):
        if name in wanted and found.get(name) != wanted[name]:
            return (
                f"{_title(wanted, name)} is not as lastgood made it"
                if name in found
                else f"{_title(wanted, name)} is missing"
            )
    ours = {table for _, table, _ in wanted.values()}
    has_projection = one(connection, "SELECT count(*) FROM projection") > 0
    for name, (_, table, _) in found.items():
        if (
            name not in wanted
            and FORMER.get(name) != found[name]
            and (table in ours or not has_projection)
        ):
            return f"{_title(found, name)} was added"
    if one(connection, "SELECT count(*) FROM ledger_meta") != 1:
        return "ledger_meta holds more than the origin"
    return None


def _objects(connection: apsw.Connection) -> dict[str, tuple[str, str, str | None]]:
    """Name -> type, table and statement of everything in the file, except SQLite's own statistics."""
    rows = connection.execute(
        "SELECT name, type, tbl_name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_stat*'"
    )
    return {name: (kind, table, sql) for name, kind, table, sql in rows}


def _title(objects: dict[str, tuple[str, str, str | None]], name: str) -> str:
    return f"the {objects[name][0]} {name}"


def open_read_only(path: Path, *, is_for_one_thread: bool = False) -> apsw.Connection:
    """The ledger for reading: nothing in the file or beside it changes, whoever owns it.

    SQLite makes two small files beside a ledger in write-ahead mode that nobody has open, and a connection that may
    not write cannot remove them again. So the connection may write where we may, and is told not to: its last act is
    to clean up behind itself. Where we may not write, the file is read as one that nobody changes. A ledger with
    records in its log is another process's business (it runs, or was killed): that log stays as it is.

    A connection that one thread alone uses needs no lock for each column that it reads.

    Raises:
        LedgerError: Not a ledger, a newer one, or not readable.
    """
    reading, writing = apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE
    if is_for_one_thread:
        reading, writing = reading | apsw.SQLITE_OPEN_NOMUTEX, writing | apsw.SQLITE_OPEN_NOMUTEX
    with storage_errors(path):
        if _has_log(path):
            return _checked(path, reading)
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return _checked(path, reading, is_immutable=True)
        try:
            return _checked(path, writing)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # What the kernel allows and the medium does not. Without a log none is needed.
            return _checked(path, reading, is_immutable=True)


def _has_log(path: Path) -> bool:
    """True when records lie in a write-ahead log beside the ledger; an empty one is left by a reader that was killed."""
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except OSError:
        return False


def sqlite_uri(path: str | os.PathLike[str]) -> str:
    """The file as SQLite takes it (with SQLITE_OPEN_URI), whatever the bytes of its name are."""
    name = os.fsencode(path)
    # Two slashes and no host: without them a path that begins with two would name one.
    return f"file:{'//' if name.startswith(b'/') else ''}{quote(name)}"


def _checked(path: Path, flags: int, *, is_immutable: bool = False) -> apsw.Connection:
    uri = sqlite_uri(path) + "?immutable=1" * is_immutable
    connection = apsw.Connection(uri, flags=flags | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(READ_BUSY_MS_MAX)
        connection.execute("PRAGMA query_only = 1")
        check_identity(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def check_identity(
    connection: apsw.Connection, path: str | os.PathLike[str], *, may_make: bool = False
) -> None:
    """Refuses a file that is not a ledger, or that a newer lastgood has written; with `may_make` a new name would do.

    Raises:
        LedgerError: Codes LG-L04 (not a ledger: LedgerPathError) and LG-L05 (newer schema).
    """
    other = "name another file" + ", or one that does not exist yet" * may_make
    try:
        is_empty = one(connection, "SELECT count(*) FROM sqlite_schema") == 0
    except apsw.NotADBError as error:
        raise _not_a_ledger(path, "a file of another kind", other) from error
    if _pragma(connection, "application_id") != APPLICATION_ID:
        if is_empty and not os.path.getsize(path):
            other = f"{other}, or remove this one to have a ledger made there"
            raise _not_a_ledger(path, "an empty file", other)
        found = "an empty database" if is_empty else "a SQLite database of something else"
        raise _not_a_ledger(path, found, other)
    version = _pragma(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            "the ledger was written by a newer lastgood",
            where=str(path),
            found=f"schema {version}",
            needs=f"schema {SCHEMA_VERSION} or older",
            next="run: pip install --upgrade lastgood",
            code="LG-L05",
        )


def _not_a_ledger(path: str | os.PathLike[str], found: str, following: str) -> LedgerPathError:
    return LedgerPathError(
        "not a ledger",
        where=str(path),
        found=found,
        needs="a file that lastgood has made",
        next=following,
        code="LG-L04",
    )


class _Meaning(NamedTuple):
    """What an error of SQLite or the kernel means to a person. `{path}` and `{folder}` are filled in."""

    errors: tuple[type[Exception], ...]
    code: str
    what: str
    needs: str | None = None
    next: str | None = None
    is_damage: bool = False
    is_path: bool = False
    """True when another path is the remedy. Of the kernel's errors only those of `PATH_ERRNOS` say so."""


PATH_ERRNOS = frozenset((
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP,
    errno.EINVAL, errno.EEXIST,
))  # fmt: skip
_MEANINGS = (
    _Meaning((apsw.NotADBError,), "LG-L04", "not a ledger", next="name another file", is_path=True),
    _Meaning(
        (apsw.CorruptError,),
        "LG-L02",
        "the ledger file is damaged",
        next="run: lastgood verify {path}",
        is_damage=True,
    ),
    _Meaning(
        (apsw.FullError,),
        "LG-L06",
        "the disk is full",
        needs="free space; nothing acknowledged was lost",
        next="run: df -h {folder}",
    ),
    _Meaning(
        (apsw.ReadOnlyError,),
        "LG-L07",
        "the ledger is read-only",
        needs="a file and a folder that this user may write",
        next="run: ls -ld {path} {folder}",
        is_path=True,
    ),
    _Meaning(
        (apsw.BusyError, apsw.LockedError),
        "LG-L08",
        "another process holds the ledger",
        next="run: fuser {path}",
    ),
    _Meaning(
        (apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError, OSError),
        "LG-L01",
        "the ledger cannot be opened or read",
        needs="a file on a local disk, in a folder that this user may write",
        is_path=True,
    ),
    _Meaning((apsw.IOError,), "LG-L01", "the ledger cannot be read", needs="a disk that answers"),
    _Meaning(
        (apsw.SQLError,),
        "LG-L02",
        "the ledger's tables are not what lastgood made",
        next="run: lastgood verify {path}",
        is_damage=True,
    ),
)


@contextlib.contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Generator[None]:
    """Turns what SQLite and the kernel say into what a person can do about it."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        meaning = next((m for m in _MEANINGS if isinstance(error, m.errors)), None)
        if meaning is None:
            raise
        kind = LedgerCorrupt if meaning.is_damage else LedgerError
        if meaning.is_path and (not isinstance(error, OSError) or error.errno in PATH_ERRNOS):
            kind = LedgerPathError
        places = {"path": path, "folder": os.path.dirname(os.fspath(path)) or "."}
        raise kind(
            meaning.what,
            where=str(path),
            found=getattr(error, "strerror", None) or str(error),
            needs=meaning.needs,
            next=meaning.next.format(**places) if meaning.next else None,
            code=meaning.code,
        ) from error


def _pragma(connection: apsw.Connection, name: str) -> int:
    return one(connection, f"PRAGMA {name}")


def one(connection: apsw.Connection, sql: str, *values: Any) -> Any:
    """The first column of the first row, or None when there is no row."""
    row = connection.execute(sql, values).fetchone()
    return None if row is None else row[0]
