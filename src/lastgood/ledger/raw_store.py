"""The raw rows of an import, in a file of their own beside the ledger: kept only when a person asks for it.

A ledger is handed on and its texts are masked; the rows as they were read are not. So they lie apart, in `LEDGER.raw`
(mode 0600), under the SHA-256 that the events name. Deleting that file takes the raw rows away and nothing else: the
ledger still verifies, because it never rested on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.errors import LedgerError
from lastgood.ledger.schema import sqlite_uri, storage_errors

if TYPE_CHECKING:
    import apsw

BATCH_ROWS = 2_000
RAW_BYTES_MAX = 1 << 20
"""A longer row is kept up to here; its hash stays that of the whole row."""
_SCHEMA = "CREATE TABLE IF NOT EXISTS raw (sha256 TEXT PRIMARY KEY, row BLOB NOT NULL) STRICT, WITHOUT ROWID"


def raw_path(ledger: Path) -> Path:
    """Where the raw rows of a ledger lie, if they were kept."""
    return ledger.with_name(ledger.name + ".raw")


class RawStore:
    """Rows under their hashes. Without a file (`is_kept` was not asked for) it keeps nothing."""

    def __init__(self, connection: apsw.Connection | None, path: Path) -> None:
        """Made by `open_raw_store`."""
        self._connection = connection
        self._path = path
        self._rows: dict[str, bytes] = {}

    def add(self, sha256: str, raw: bytes) -> None:
        """Takes a row; `flush` makes it durable."""
        self._rows[sha256] = raw[:RAW_BYTES_MAX]
        if len(self._rows) >= BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that were taken."""
        if self._connection is None or not self._rows:
            return
        rows, self._rows = self._rows, {}
        with storage_errors(self._path), self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO raw VALUES (?,?)", rows.items())

    def get(self, sha256: str) -> bytes | None:
        """The row with this hash, or None."""
        if self._connection is None:
            return None
        with storage_errors(self._path):
            row = self._connection.execute(
                "SELECT row FROM raw WHERE sha256 = ?", (sha256,)
            ).fetchone()
        return None if row is None else row[0]

    def hashes(self) -> Iterator[str]:
        """The hashes of all rows that are kept."""
        if self._connection is not None:
            for (found,) in self._connection.execute("SELECT sha256 FROM raw ORDER BY sha256"):
                yield found

    def close(self) -> None:
        """Writes what is left and closes the file."""
        if self._connection is not None:
            self.flush()
            self._connection.close()


def open_raw_store(ledger: Path, *, is_kept: bool = True) -> RawStore:
    """The raw rows of a ledger, made (mode 0600) when they are not there; one that keeps nothing if `is_kept` is false.

    Raises:
        LedgerError: The file cannot be made, or is something else.
    """
    path = raw_path(ledger)
    if not is_kept:
        return RawStore(None, path)
    import apsw

    with storage_errors(path):
        try:
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(sqlite_uri(path), flags=flags)
            try:
                connection.set_busy_timeout(30_000)
                connection.execute(_SCHEMA)
            except BaseException:
                connection.close()
                raise
        except apsw.NotADBError as error:
            raise LedgerError(
                "not a store of raw rows", where=str(path), needs="a file that lastgood made"
            ) from error
    return RawStore(connection, path)
