"""The door to the columnar view: read a ledger or an export as a table, fold it into incidents, ask what it covers.

Events stay objects where few of them are looked at closely (cards, wall time). Statistics over a fleet read columns:
the same answers, a hundred times sooner. Both folds must agree, which a test holds them to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from lastgood.base.errors import LedgerPathError
from lastgood.ledger.columns_exposure import Steps, exposure_steps
from lastgood.ledger.columns_fold import fold_table
from lastgood.ledger.columns_remap import remap_table
from lastgood.ledger.life import PROGRESS_FORMATS
from lastgood.ledger.schema import storage_errors
from lastgood.ledger.store import read_store
from lastgood.ledger.table import (
    NO_TIME,
    Coded,
    Coverage,
    EventTable,
    IncidentTable,
    MoreDomains,
)
from lastgood.ledger.table_builder import TableBuilder

__all__ = [
    "NO_TIME", "Coded", "Coverage", "EventTable", "IncidentTable", "MoreDomains", "Steps", "Window",
    "exposure_steps", "fold_table", "observed_windows", "read_events", "remap_table",
]  # fmt: skip
CHUNK_ROWS = 8_192


class Window(NamedTuple):
    """A stretch of time in which the records would show a failure."""

    begin_us: int
    end_us: int
    is_inferred: bool = False
    """No import said what it covers: first to last record."""


def read_events(path: str | os.PathLike[str]) -> EventTable:
    """The events in effect of a ledger file, or of a folder that `lastgood export` wrote.

    Raises:
        LedgerError: No such ledger, not one, or not readable.
        MissingExtra: A folder needs pyarrow.
    """
    target = Path(path)
    if target.is_dir():
        from lastgood.ledger.parquet import read_parquet

        return read_parquet(target)
    if not os.path.exists(target):
        raise LedgerPathError(
            "no such ledger or export", where=str(target), next="name the file or folder"
        )
    builder = TableBuilder()
    with read_store(target) as store, storage_errors(target):
        store.connection.execute("BEGIN")  # one snapshot, while writers go on
        head = store.head()
        rows = store.connection.execute("SELECT body FROM event ORDER BY seq")
        while chunk := [body for _, (body,) in zip(range(CHUNK_ROWS), rows, strict=False)]:
            builder.add(chunk)
    return builder.build(origin=head.origin, size=head.size, root=head.root)


def observed_windows(table: EventTable) -> list[Window]:
    """The time that the records speak about: the union of what imports say they cover.

    Without such a statement it is the time from the first to the last record, which is marked as inferred: a failure
    before the first record or after the last could not have been seen. A log of a job's own steps speaks about no
    failures, and its time is not counted.
    """
    windows: list[Window] = []
    for said in table.coverage:
        if said.format in PROGRESS_FORMATS:
            continue
        if windows and said.begin_us <= windows[-1].end_us:
            windows[-1] = Window(windows[-1].begin_us, max(windows[-1].end_us, said.end_us))
        else:
            windows.append(Window(said.begin_us, said.end_us))
    if not windows and len(table):
        windows.append(Window(int(table.t_us[0]), int(table.t_us[-1]), is_inferred=True))
    return windows
