"""The tables of the embedded ledger, how a file is recognised as one, and what SQLite's errors mean here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import apsw

from lastgood.base.errors import LedgerCorrupt, LedgerError

APPLICATION_ID = 0x4C474C44
"""`LGLD`: SQLite keeps it in the file's header, so a ledger is told from any other database."""
SCHEMA_VERSION = 1
EMPTY_LINK = bytes(32)
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
    "CREATE INDEX IF NOT EXISTS event_by_kind ON event (kind)",
    """CREATE TABLE IF NOT EXISTS frontier (
        only INTEGER PRIMARY KEY CHECK (only = 0), size INTEGER NOT NULL, hashes BLOB NOT NULL,
        root BLOB NOT NULL, link BLOB NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS tree_head (
        size INTEGER PRIMARY KEY, root BLOB NOT NULL, t_us INTEGER NOT NULL, note TEXT NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS projection (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, size INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
)


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


def check_identity(
    connection: apsw.Connection, path: str | os.PathLike[str], *, may_be_empty: bool
) -> None:
    """Refuses a file that is not a ledger, or that a newer lastgood has written.

    Raises:
        LedgerError: Codes LG-L04 (not a ledger) and LG-L05 (newer schema).
    """
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    application_id = _pragma(connection, "application_id")
    if application_id != APPLICATION_ID and not (is_empty and application_id == 0 and may_be_empty):
        raise LedgerError(
            "not a ledger",
            where=str(path),
            found="an empty database" if is_empty else "a SQLite database of something else",
            needs="a file that lastgood has made",
            next="name another file, or one that does not exist yet",
            code="LG-L04",
        )
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


@contextlib.contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what SQLite and the kernel say into what a person can do about it."""
    try:
        yield
    except apsw.NotADBError as error:
        raise LedgerError(
            "not a ledger",
            where=str(path),
            found="a file that is not a SQLite database",
            next="name another file, or one that does not exist yet",
            code="LG-L04",
        ) from error
    except apsw.CorruptError as error:
        raise LedgerCorrupt(
            "the ledger file is damaged",
            where=str(path),
            found=str(error),
            next=f"run: lastgood verify {path}",
        ) from error
    except apsw.FullError as error:
        raise LedgerError(
            "the disk is full",
            where=str(path),
            found=str(error),
            needs="free space; nothing acknowledged was lost",
            next=f"run: df -h {os.path.dirname(os.fspath(path)) or '.'}",
            code="LG-L06",
        ) from error
    except apsw.ReadOnlyError as error:
        raise LedgerError(
            "the ledger is read-only",
            where=str(path),
            found=str(error),
            needs="a file and a folder that this user may write",
            next=f"run: ls -ld {path} {os.path.dirname(os.fspath(path)) or '.'}",
            code="LG-L07",
        ) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise LedgerError(
            "another process holds the ledger",
            where=str(path),
            found=str(error),
            next=f"run: fuser {path}",
            code="LG-L08",
        ) from error
    except (apsw.CantOpenError, apsw.IOError, apsw.PermissionsError, apsw.AuthError) as error:
        raise LedgerError(
            "the ledger cannot be opened or read",
            where=str(path),
            found=str(error),
            needs="a readable file on a local disk",
            code="LG-L01",
        ) from error
    except OSError as error:
        raise LedgerError(
            "the ledger cannot be opened or read",
            where=str(path),
            found=error.strerror or str(error),
            needs="a folder that this user may write",
            code="LG-L01",
        ) from error
    except apsw.SQLError as error:
        raise LedgerCorrupt(
            "the ledger's tables are not what lastgood made",
            where=str(path),
            found=str(error),
            next=f"run: lastgood verify {path}",
        ) from error


def _pragma(connection: apsw.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
