"""Monthly Parquet files of a ledger, read as an `EventTable` after their manifest was checked.

The files hold the columns that statistics read, one row for each event of the ledger, superseded ones included, in
the order of time and then of id (`parquet_export` writes them). They do not replace the ledger: the bytes that
`verify` hashes stay there. The manifest says which ledger (origin, size, root) the rows came from and the hash of
each file, and it is checked before a row is used: an export that was edited, cut or mixed is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lastgood.base.errors import BadInput, LedgerCorrupt, MissingExtra
from lastgood.ledger.table import (
    CODED_COLUMNS,
    DOMAIN_KINDS,
    NO_TIME,
    TIME_COLUMNS,
    Coded,
    Coverage,
    EventTable,
    MoreDomains,
)
from lastgood.ledger.table_builder import coverage_from

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
MANIFEST = "manifest.json"
SCHEMA = "lastgood.export/2"
"""Version 2 says how runs were started. Version 1 could not tell a drill from the field, so it is refused."""
FLAGS = ("has_occurred_us", "is_accepted", "is_lone")
NULL_OF = {"devices": -1, "injected": -1} | dict.fromkeys(TIME_COLUMNS, NO_TIME)
"""Columns of numbers that may be null, and what stands for null in the table."""


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One month."""

    name: str
    sha256: str
    bytes: int
    rows: int
    begin_us: int
    end_us: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an export holds, and of which ledger."""

    schema: str
    origin: str
    size: int
    """How many events the ledger held; as many rows the files hold together."""
    root: str
    """The root hash over these events, in hex: what `lastgood verify` prints."""
    tree_head: str
    """The same as a note, for `lastgood verify --head`."""
    files: tuple[File, ...]
    run_modes: tuple[tuple[str, str], ...]
    """(run, how it was started), for the runs whose start says so."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest of every version has."""

    schema: str
    origin: str
    files: tuple[File, ...]


def import_pyarrow(where: str) -> Any:
    """The module `pyarrow.parquet`.

    Raises:
        MissingExtra: It is not installed; the message has the command that does it.
    """
    try:
        import pyarrow.parquet as module
    except ImportError as missing:
        raise MissingExtra(module="pyarrow", extra="analysis", where=where) from missing
    return module


def read_outline(folder: Path) -> Outline:
    """Of which ledger an export is and which files it holds, whatever its version.

    Raises:
        BadInput: The folder has no manifest.
    """
    return _decoded(folder, Outline)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export.

    Raises:
        BadInput: The folder has none, or not one of this version.
    """
    schema = read_outline(folder).schema
    if schema != SCHEMA:
        raise BadInput(
            "an export of another version",
            where=str(folder / MANIFEST),
            found=schema,
            needs=SCHEMA,
            next="export the ledger again: lastgood export",
        )
    return _decoded(folder, Manifest)


def _decoded(folder: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=form)
    except OSError as error:
        raise BadInput(
            "not an export", where=str(folder), found=f"{MANIFEST}: {error.strerror}",
            needs="a folder that lastgood export wrote",
        ) from error  # fmt: skip
    except msgspec.MsgspecError as error:
        raise BadInput(
            "not the manifest of an export", where=str(folder / MANIFEST), found=str(error)
        ) from error


def check_export(folder: Path) -> Manifest:
    """The manifest, when every file is as it says and nothing was added.

    Raises:
        LedgerCorrupt: A file is missing, was added, or is not the one that was written.
    """
    manifest = read_manifest(folder)
    listed = {file.name for file in manifest.files}
    there = {path.name for path in folder.glob("*.parquet")}
    for name in sorted(there ^ listed):
        raise _changed(folder, name, "is missing" if name in listed else "was added")
    for file in manifest.files:
        path = folder / file.name
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != file.sha256:
            raise _changed(
                folder, file.name, f"sha256 {digest[:16]}..., written was {file.sha256[:16]}..."
            )
    return manifest


def _changed(folder: Path, name: str, found: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        "the export was changed after it was written",
        where=str(folder),
        found=f"{name} {found}",
        next="export the ledger again, into a new folder",
        code="LG-L12",
    )


def read_parquet(folder: Path) -> EventTable:
    """The events in effect of an export, as `read_events` gives them for the ledger itself.

    Raises:
        BadInput: Not an export.
        LedgerCorrupt: It was changed.
        MissingExtra: pyarrow is not installed.
    """
    parquet = import_pyarrow("reading Parquet")
    manifest = check_export(folder)
    months = _Months(parquet, folder, manifest)
    columns: dict[str, Any] = {name: months.numbers(name, "int64") for name in ("seq", "t_us")}
    columns |= {name: months.numbers(name, "int64") for name in ("devices", *TIME_COLUMNS)}
    columns["injected"] = months.numbers("injected", "int8")
    columns |= {name: months.numbers(name, "bool") for name in FLAGS}
    words: dict[str, Any] = {name: months.words(name) for name in CODED_COLUMNS}
    more = _more_domains(months, words)
    gone = months.superseded()
    _give_back_memory()
    table = EventTable(
        **columns,
        **words,
        more_domains=more,
        coverage=months.coverage(gone),
        run_modes=manifest.run_modes,
        origin=manifest.origin,
        size=manifest.size,
        root=bytes.fromhex(manifest.root),
    )
    return table if gone is None else table.take(~gone)


def _give_back_memory() -> None:
    """Arrow keeps what it freed; what is computed next needs it."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


class _Months:
    """The files of an export as one long table, read one column at a time so that little lies in memory twice."""

    def __init__(self, parquet: Any, folder: Path, manifest: Manifest) -> None:
        import pyarrow as pa

        # Arrow decodes the name of a file by itself, and takes bytes as they are.
        paths = [os.fsencode(folder / file.name) for file in manifest.files]
        self._files = [parquet.ParquetFile(pa.OSFile(path)) for path in paths]
        self._count = sum(file.rows for file in manifest.files)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self._files[0].schema_arrow.names)}

    def _only_value(self, name: str) -> tuple[Any] | None:
        """The value that every row has, when the statistics of the files show that there is but one."""
        found: set[Any] = set()
        for file in self._files:
            for group in range(file.metadata.num_row_groups):
                about = file.metadata.row_group(group).column(self._places[name])
                stats, rows = about.statistics, about.num_values
                if stats is None or not stats.has_null_count or stats.null_count not in {0, rows}:
                    return None
                if stats.null_count == rows:
                    found.add(None)
                elif stats.has_min_max and stats.min == stats.max:
                    found.add(stats.min)
                else:
                    return None
            if len(found) > 1:
                return None
        return (found.pop(),) if found else None

    def _chunks(self, name: str) -> Iterator[tuple[int, Any]]:
        """(first row, chunk) of one column."""
        first = 0
        for file in self._files:
            for chunk in file.read(columns=[name], use_threads=False).column(0).chunks:
                yield first, chunk
                first += len(chunk)

    def numbers(self, name: str, dtype: str) -> NDArray[Any]:
        """A column of numbers or truths; null becomes what the table has for it."""
        import numpy as np

        null = NULL_OF.get(name)
        only = self._only_value(name) if self._files else None
        if only is not None:
            value = null if only[0] is None else only[0]
            return np.broadcast_to(np.asarray(value, dtype=dtype), self._count)
        column = np.empty(self._count, dtype)
        for first, chunk in self._chunks(name):
            whole = chunk.fill_null(null) if chunk.null_count else chunk
            column[first : first + len(chunk)] = whole.to_numpy(zero_copy_only=False)
        return column

    def words(self, name: str) -> Coded:
        """A column of words."""
        import numpy as np

        only = self._only_value(name) if self._files else None
        if only is not None:
            names = () if only[0] is None else (only[0],)
            code = np.int32(-1 if only[0] is None else 0)
            return Coded(np.broadcast_to(code, self._count), names)
        import pyarrow as pa

        chunks = [chunk for _, chunk in self._chunks(name)]
        if not chunks:
            return Coded(np.empty(0, np.int32), ())
        column = pa.chunked_array(chunks).unify_dictionaries()
        del chunks
        codes = np.empty(self._count, np.int32)
        first = 0
        for chunk in column.chunks:
            indices = chunk.indices
            whole = indices.fill_null(-1) if indices.null_count else indices
            codes[first : first + len(chunk)] = whole.to_numpy(zero_copy_only=False)
            first += len(chunk)
        return Coded(codes, tuple(column.chunk(0).dictionary.to_pylist()))

    def texts(self, name: str) -> Iterator[tuple[int, str]]:
        """(row, text) of the rows that have one, in a column that is mostly null."""
        if not self._files or self._only_value(name) == (None,):
            return
        for first, chunk in self._chunks(name):
            rows = chunk.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist()
            yield from ((first + row, chunk[row].as_py()) for row in rows)

    def coverage(self, gone: NDArray[np.bool_] | None) -> tuple[Coverage, ...]:
        """What the rows that are not gone say to cover."""
        said = [(row, coverage_from(json.loads(text))) for row, text in self.texts("coverage")]
        kept = [found for row, found in said if found and (gone is None or not gone[row])]
        return tuple(sorted(kept, key=lambda c: (c.begin_us, c.end_us, c.format or "")))

    def superseded(self) -> NDArray[np.bool_] | None:
        """True for the rows that a later event corrects; None when nothing is corrected."""
        gone = {name for _, name in self.texts("supersedes")}
        if not gone:
            return None
        import numpy as np
        import pyarrow as pa
        from pyarrow import compute

        mask = np.zeros(self._count, bool)
        wanted = pa.array(sorted(gone))
        for first, chunk in self._chunks("id"):
            found = compute.is_in(chunk, value_set=wanted)  # type: ignore[attr-defined] - made at run time
            mask[first : first + len(chunk)] = found.to_numpy(zero_copy_only=False)
        return mask


def _more_domains(months: _Months, words: dict[str, Coded]) -> MoreDomains:
    """The further domains; a word that no first domain has joins the words of its kind."""
    import numpy as np

    known = {kind: {w: at for at, w in enumerate(words[kind].names)} for kind in DOMAIN_KINDS}
    found: list[tuple[int, int, int]] = []
    for row, text in months.texts("more_domains"):
        for kind, name in json.loads(text):
            code = known[kind].setdefault(name, len(known[kind]))
            found.append((row, DOMAIN_KINDS.index(kind), code))
    for kind in DOMAIN_KINDS:
        words[kind] = Coded(words[kind].codes, tuple(known[kind]))
    table = np.array(found, np.int64).reshape(-1, 3)
    return MoreDomains(
        row=table[:, 0], kind=table[:, 1].astype(np.int8), code=table[:, 2].astype(np.int32)
    )
