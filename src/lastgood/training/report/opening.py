"""`lastgood.open`: evidence in Python, with the section of every workload that this version knows."""

from __future__ import annotations

import os
from pathlib import Path

from lastgood import __version__
from lastgood.base.clock import SystemClock
from lastgood.base.errors import BadInput
from lastgood.evidence.opened import Opened
from lastgood.ledger.place import default_ledger
from lastgood.training.report.section import build_section


def open(path: str | os.PathLike[str] | None = None) -> Opened:  # noqa: A001 - read as `lastgood.open`
    """The evidence at this path, for reading: a ledger, a bundle (folder or tar), or an export; else this machine's ledger.

    `events()`, `incidents()` and `figures()` give records, and each of them `.arrow()` and `.pandas()`.

    Raises:
        BadInput: nothing is there, or nothing of these.
        LedgerError: a ledger that cannot be read.
        LedgerCorrupt: a bundle that was changed.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise BadInput(
            "not a path", where="lastgood.open", found=type(path).__name__, needs="text, or a Path"
        )
    place = Path(path) if path is not None else default_ledger()
    return Opened(
        place, builders={"training": build_section}, version=__version__, clock=SystemClock()
    )
