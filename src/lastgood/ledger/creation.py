"""How a ledger comes to be: whole under another name first, then under its own.

So an empty file is never a ledger that another process is about to make, and can be refused. SQLite gives the files
beside a ledger its mode.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from pathlib import Path

import apsw

from lastgood.base.errors import LedgerPathError
from lastgood.ledger.schema import create_tables, storage_errors


def make_ledger(target: Path) -> None:
    """Makes an empty ledger that nobody else may read; where something has the name by now, that stays as it is.

    Raises:
        LedgerError: its folder is not there, or it cannot be written.
    """
    with storage_errors(target):
        _have_folder(target)
        with contextlib.closing(apsw.Connection(":memory:")) as pattern:
            create_tables(pattern, origin=f"lastgood.dev/ledger/{secrets.token_hex(8)}")
            whole = pattern.serialize("main")
        fresh = target.with_name(f".lastgood-{secrets.token_hex(8)}.new")
        try:
            _write_new(fresh, whole)
            with contextlib.suppress(FileExistsError):  # another process was faster
                _give_name(fresh, target, whole)
        finally:
            fresh.unlink(missing_ok=True)


def _give_name(fresh: Path, target: Path, whole: bytes) -> None:
    """Raises FileExistsError where something has the name, and leaves it as it is."""
    try:
        os.link(fresh, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without a second name for a file
        _write_new(target, whole)


def _write_new(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _have_folder(target: Path) -> None:
    """Makes the folder of the default ledger, which is ours, and no other: a mount that is mistyped must not become one."""
    folder = Path(os.path.abspath(target)).parent
    try:
        os.stat(folder)
    except FileNotFoundError as error:
        from lastgood.ledger.place import default_folder

        if folder != default_folder():
            raise LedgerPathError(
                "the folder of the ledger does not exist",
                where=str(target),
                found=f"nothing at {folder}",
                needs="a folder that is there",
                next=f"check the name, or run: mkdir -p {shlex.quote(str(folder))}",
            ) from error
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
