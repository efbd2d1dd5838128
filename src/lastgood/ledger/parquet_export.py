"""Writes a ledger as monthly Parquet files with a manifest: see `parquet` for what they are.

A month is read from SQLite, put in order and written before the next one is touched, so memory is that of one month.
The months are those of UTC, by the time of the event. The folder appears with its manifest or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.base.errors import BadInput, LedgerError
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import decode_event, time_of
from lastgood.ledger.parquet import (
    FLAGS,
    MANIFEST,
    NULL_OF,
    SCHEMA,
    File,
    Manifest,
    import_pyarrow,
    read_outline,
)
from lastgood.ledger.schema import one, storage_errors
from lastgood.ledger.store import Store, read_store
from lastgood.ledger.table import CODED_COLUMNS, DOMAIN_KINDS, Coverage, EventTable
from lastgood.ledger.table_builder import TableBuilder

if TYPE_CHECKING:
    import apsw
    import numpy as np
    from numpy.typing import NDArray

CHUNK_ROWS = 8_192
HOLE_ROWS_MAX = 1_000
"""Rows of other months that are read over rather than asked for in two queries."""
GROUP_ROWS = 1_048_576
OnProgress = Callable[[int, int], None]


def export_parquet(
    ledger: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Writes the ledger into a folder that is not there yet, is empty, or holds an older export of this ledger.

    `on_progress` is called with events written so far and events in all.

    Raises:
        LedgerError: The ledger cannot be read.
        BadInput: The folder holds something else, or cannot be written.
        MissingExtra: pyarrow is not installed.
    """
    parquet = import_pyarrow("lastgood export")
    target = Path(folder)
    with read_store(ledger) as store, storage_errors(ledger), _folder_errors(target):
        store.connection.execute("BEGIN")  # one snapshot, while writers go on
        head = store.head()
        _check_target(target, store.origin)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            files: list[File] = []
            written = 0
            for month, rows in _months(store.connection, head.size):
                files.append(
                    _write_month(parquet, store.connection, made / f"events-{month}.parquet", rows)
                )
                written += len(rows)
                if on_progress is not None:
                    on_progress(written, head.size)
            manifest = Manifest(
                schema=SCHEMA,
                origin=head.origin,
                size=head.size,
                root=head.root_hex,
                tree_head=head.to_note(),
                files=tuple(files),
                run_modes=_run_modes(store),
            )
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            _write_private(made / MANIFEST, text + b"\n")
            _replace(target, made)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    return manifest


@contextmanager
def _folder_errors(target: Path) -> Generator[None]:
    """What the kernel says while an export is written is said of the folder that was named, not of a part beside it."""
    try:
        yield
    except OSError as error:
        error.filename = str(target)
        raise BadInput(
            "the export cannot be written", where=str(target), found=error.strerror or str(error)
        ) from error


def _run_modes(store: Store) -> tuple[tuple[str, str], ...]:
    """How each run was started, where its start says so: the columns have no place for it."""
    found = {
        (event.run, mode)
        for event in store.events(kinds=(EventKind.RUN_START,))
        if event.run and isinstance(mode := event.body.get("mode"), str)
    }
    return tuple(sorted(found))


def _check_target(target: Path, origin: str) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    needs = "a folder that does not exist yet, or an older export of this ledger"
    if not target.is_dir():
        raise BadInput("not a folder", where=str(target), needs=needs)
    if not (target / MANIFEST).exists():
        raise BadInput("the folder holds something else", where=str(target), needs=needs)
    before = read_outline(target)
    if before.origin != origin:
        raise BadInput(
            "the folder holds the export of another ledger", where=str(target), found=before.origin, needs=origin
        )  # fmt: skip
    extra = {path.name for path in target.iterdir()} - {MANIFEST, *(f.name for f in before.files)}
    if extra:
        raise BadInput(
            "the folder holds more than an export", where=str(target), found=min(extra), needs=needs
        )


def _replace(target: Path, made: Path) -> None:
    """Puts the finished folder in its place; an older export, whose files were all looked at, goes."""
    if target.exists():
        shutil.rmtree(target)
    os.replace(made, target)


def _write_private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


# --- which rows of which month --------------------------------------------------------------------------


def _months(connection: apsw.Connection, size: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """(month, sequence numbers of its events), in the order of time."""
    import numpy as np

    times = np.empty(size, np.int64)
    sql = "SELECT seq, t_occurred_us FROM event NOT INDEXED ORDER BY seq"
    for seq, t_us in connection.execute(sql):
        times[seq] = _time_of(connection, seq) if t_us is None else t_us
    # As integers: the earliest time of all is no date to NumPy, and equals nothing then.
    months = times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    for month in np.unique(months):
        yield str(np.datetime64(int(month), "M")), np.flatnonzero(months == month)


def _time_of(connection: apsw.Connection, seq: int) -> int:
    t_us = time_of(decode_event(one(connection, "SELECT body FROM event WHERE seq = ?", seq)))
    if t_us >= 2**63:
        raise LedgerError(
            "a time that no column holds",
            where=f"seq {seq}",
            found=str(t_us),
            needs="63 bits and a sign",
        )
    return t_us


def _bodies(connection: apsw.Connection, rows: NDArray[np.int64]) -> Iterator[list[bytes]]:
    """The bytes of these events, in chunks, with one query for each stretch of them."""
    import numpy as np

    cuts = np.flatnonzero(np.diff(rows) > HOLE_ROWS_MAX) + 1
    sql = "SELECT seq, body FROM event WHERE seq BETWEEN ? AND ? ORDER BY seq"
    chunk: list[bytes] = []
    for part in np.split(rows, cuts):
        wanted = None if part[-1] - part[0] + 1 == len(part) else set(part.tolist())
        for seq, body in connection.execute(sql, (int(part[0]), int(part[-1]))):
            if wanted is not None and seq not in wanted:
                continue
            chunk.append(body)
            if len(chunk) == CHUNK_ROWS:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


# --- one month ------------------------------------------------------------------------------------------


def _write_month(
    parquet: Any, connection: apsw.Connection, path: Path, rows: NDArray[np.int64]
) -> File:
    builder = TableBuilder()
    for bodies in _bodies(connection, rows):
        builder.add(bodies)
    table = builder.build(superseded=frozenset())
    order = builder.in_order()
    corrects, covers = (
        builder.superseded,
        {at: coverage_text(said) for at, said in builder.coverage},
    )
    texts: dict[str, list[str | None]] = {
        "id": [builder.ids[at] for at in order],
        "supersedes": [corrects.get(at) for at in order],
        "coverage": [covers.get(at) for at in order],
        "more_domains": _more_texts(table),
    }
    write_table(parquet, path, table, texts)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return File(
        name=path.name,
        sha256=digest,
        bytes=path.stat().st_size,
        rows=len(table),
        begin_us=int(table.t_us[0]),
        end_us=int(table.t_us[-1]),
    )


def write_table(
    parquet: Any, path: Path, table: EventTable, texts: dict[str, list[str | None]]
) -> None:
    """Writes one file: the columns of the table, and those that it has no place for (`texts`)."""
    import numpy as np
    import pyarrow as pa

    columns: dict[str, Any] = {
        name: pa.array(texts[name], pa.string()) for name in ("id", "supersedes")
    }
    columns |= {
        name: pa.array(np.ascontiguousarray(getattr(table, name)))
        for name in ("seq", "t_us", *FLAGS)
    }
    for name, null in NULL_OF.items():
        values = np.ascontiguousarray(getattr(table, name))
        columns[name] = pa.array(values, mask=values == null)
    for name in CODED_COLUMNS:
        coded = getattr(table, name)
        codes = np.ascontiguousarray(coded.codes)
        columns[name] = pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=codes < 0), pa.array(coded.names, pa.string())
        )
    columns |= {name: pa.array(texts[name], pa.string()) for name in ("coverage", "more_domains")}
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    parquet.write_table(
        pa.table(columns),
        pa.OSFile(os.fsencode(path), "wb"),
        compression="zstd",
        row_group_size=GROUP_ROWS,
        use_dictionary=[name for name in columns if name not in {"id", "seq", "t_us"}],
    )


def _more_texts(table: EventTable) -> list[str | None]:
    """The further domains of each row, as pairs of kind and name."""
    more = table.more_domains
    pairs: dict[int, list[tuple[str, str]]] = {}
    for row, at, code in zip(
        more.row.tolist(), more.kind.tolist(), more.code.tolist(), strict=True
    ):
        kind = DOMAIN_KINDS[at]
        pairs.setdefault(row, []).append((kind, getattr(table, kind).names[code]))
    found: list[str | None] = [None] * len(table)
    for row, said in pairs.items():
        found[row] = json.dumps(said)
    return found


def coverage_text(said: Coverage) -> str:
    """As `table_builder.coverage_from` reads it."""
    return json.dumps(
        {
            "begin_us": said.begin_us,
            "end_us": said.end_us,
            "format": said.format,
            "declared": said.is_declared,
            "name": said.name,
        }
    )
