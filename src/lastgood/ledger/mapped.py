"""A ledger's file as memory, for the one reader that looks at every page: no copy of a page, and no cache of copies.

A page of mapped memory that the disk cannot give ends the process with a signal, where a plain read gives an error that
names the row. So the kernel is asked for all pages first, which tells whether it has them; when it has not, or is too
old to be asked, nothing is mapped.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import apsw

MAP_BYTES_MAX: Final = 1 << 31
"""More is read as before: a ledger may be larger than the memory of its machine."""
ASKED_BYTES: Final = 1 << 26
"""Read at once, so that a person who has waited long enough can interrupt."""
CACHE_KIB: Final = 262_144
"""Memory for pages that are not mapped: the check of the indexes looks up every row in each of them."""
MAPPED_CACHE_KIB: Final = 8_192
_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ of Linux 5.14: reads every page into memory, and fails where it cannot."""


def map_file(connection: apsw.Connection, path: Path) -> bool:
    """Give the connection the pages of its file as memory, or a large cache; True when they are memory."""
    size = os.stat(path).st_size
    is_mapped = 0 < size <= MAP_BYTES_MAX and _is_readable(path, size)
    connection.execute(f"PRAGMA mmap_size = {size if is_mapped else 0}")
    connection.execute(f"PRAGMA cache_size = -{MAPPED_CACHE_KIB if is_mapped else CACHE_KIB}")
    return is_mapped


def _is_readable(path: Path, size: int) -> bool:
    """True when the kernel could read every page of the file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as pages:
            for start in range(0, size, ASKED_BYTES):
                pages.madvise(_POPULATE_READ, start, min(ASKED_BYTES, size - start))
    except (OSError, ValueError):
        return False
    return True
