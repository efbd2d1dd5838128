"""The gate in front of a run and of an append by hand: nothing is added to a ledger that does not verify.

A row behind damage would carry a tree head that vouches for a history that does not hold, and it would be written into
the file that has to be kept as it is. A small ledger is verified as a whole. Of a large one only the newest rows are
hashed against their links and the frontier, because a prolog has no time for more; the caller says so.

A run begins the check before it imports what supervises it, in a child on another core, so that it waits for nothing.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path

from lastgood.base.errors import LedgerCorrupt, LedgerError, LedgerPathError
from lastgood.ledger.merkle import leaf_hash
from lastgood.ledger.schema import EMPTY_LINK, one, open_read_only, storage_errors
from lastgood.ledger.verified import require_verified

WHOLE_ROWS_MAX = 20_000
"""A ledger of so many rows is verified as a whole, in a fraction of a second."""
NEWEST_ROWS = 1_024
CHILD_S_MAX = 30.0
"""How long a check in a child is waited for before it is made here."""
_HELD = b"+"


def require_appendable(path: Path) -> str | None:
    """What was checked when it was not everything; None when all of it was, or there is no ledger yet.

    Raises:
        LedgerCorrupt: it does not hold.
        LedgerError: that could not be told.
    """
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        return None
    try:
        connection = open_read_only(path)
    except LedgerPathError:
        return None  # whoever opens it says what it is
    except LedgerCorrupt:
        return _whole(path)
    try:
        with storage_errors(path):
            size = one(connection, "SELECT size FROM frontier")
            if not isinstance(size, int) or size <= WHOLE_ROWS_MAX:
                return _whole(path)
            rows = connection.execute(
                "SELECT seq, link, body FROM event NOT INDEXED WHERE seq >= ? ORDER BY seq",
                (size - NEWEST_ROWS - 1,),
            ).fetchall()
            link = one(connection, "SELECT link FROM frontier")
            _require_whole_file(connection, path)
    except LedgerError as error:
        raise _refused(path, error.found or error.what) from error
    finally:
        connection.close()
    _require_newest(path, rows, size=size, link=link)
    return f"only the newest {NEWEST_ROWS:,} of {size:,} rows were checked before this; all: lastgood verify {path}"


def begin_check(path: Path) -> Callable[[], str | None]:
    """Begins `require_appendable` in a child; call what is returned for its answer, before the ledger is opened.

    The child says only that the ledger holds. Where it says anything else, or nothing, the check is made again here,
    which raises what is wrong. A process with threads is not forked: it checks when it is asked.
    """
    if not os.path.isfile(path) or len(os.listdir("/proc/self/task")) > 1:
        return lambda: require_appendable(path)
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return lambda: _answer(path, child=child, reader=reader)
    try:
        os.write(writer, _HELD + (require_appendable(path) or "").encode(errors="surrogateescape"))
    finally:
        os._exit(0)  # nothing of the parent's runs twice: no buffer, no handler, no traceback


def _answer(path: Path, *, child: int, reader: int) -> str | None:
    is_ready = select.select([reader], [], [], CHILD_S_MAX)[0]
    if not is_ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    if said[:1] != _HELD:
        return require_appendable(path)
    return said[1:].decode(errors="surrogateescape") or None


def _whole(path: Path) -> None:
    try:
        require_verified(path)
    except LedgerCorrupt as error:
        raise _refused(path, error.found or error.what) from error


def _require_newest(
    path: Path, rows: list[tuple[int, bytes, bytes]], *, size: int, link: bytes
) -> None:
    """Each row behind the first one there hashes to its link, and the last link is the frontier's."""
    before = EMPTY_LINK
    for number, (seq, kept, body) in enumerate(rows):
        if seq != size - NEWEST_ROWS - 1 + number:
            raise _refused(path, f"row {size - NEWEST_ROWS - 1 + number} is missing")
        if number and sha256(before + leaf_hash(body)).digest() != kept:
            raise _refused(path, f"row {seq}: its bytes do not hash to its link")
        before = kept
    if len(rows) != NEWEST_ROWS + 1 or before != link:
        raise _refused(path, "the newest rows are not those that the frontier counts")


def _require_whole_file(connection, path: Path) -> None:  # noqa: ANN001 - apsw.Connection
    """A file that lost its end holds fewer pages than it says; what is still in the log beside it is not missing."""
    pages, page_bytes = one(connection, "PRAGMA page_count"), one(connection, "PRAGMA page_size")
    has_log = path.with_name(f"{path.name}-wal").exists()
    if not has_log and path.stat().st_size < pages * page_bytes:
        raise LedgerCorrupt("the ledger file is damaged", found="the end of the file is missing")


def _refused(path: Path, found: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        "the ledger does not verify, and nothing is appended to it",
        where=str(path),
        found=found,
        next=f"run: lastgood verify {path}; keep it as it is, and write to a new one: --ledger {_unused(path)}",
    )


def _unused(path: Path) -> Path:
    """The next name beside this ledger that nothing has."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(name for name in names if not os.path.lexists(name))
