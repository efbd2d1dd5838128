"""The rows of a table, CSV or JSON, as the items that a column map is applied to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.json_scan import Broken, part_of
from lastgood.ledger.importers.source import Item, Source, json_items
from lastgood.ledger.importers.table_cells import Values, down
from lastgood.ledger.importers.table_rows import read_records, sniff_delimiter

if TYPE_CHECKING:
    from lastgood.ledger.importers.table_map import ColumnMap


def read_rows(source: Source, column_map: ColumnMap, context: Context) -> Iterator[Item]:
    """Each row with its values; a list that the map goes down into gives a row per element."""
    is_json = (
        source.head.lstrip()[:1] in {b"[", b"{"}
        if column_map.format is None
        else column_map.format == "json"
    )
    if is_json:
        for item in json_items(source, *column_map.path):
            yield from _elements(item, column_map)
        return
    yield from _csvread_rows(source, column_map, context)


def _elements(item: Item, column_map: ColumnMap) -> Iterator[Item]:
    if isinstance(item.value, Broken):
        yield item
        return
    if not isinstance(item.value, dict):
        yield Item(item.number, item.raw, Broken("a row that is no object"))
        return
    if column_map.each is None:
        yield Item(item.number, item.raw, Values(item.value, item.value, 1, is_last=True))
        return
    inner = down(item.value, column_map.each)
    if not isinstance(inner, list):
        yield Item(item.number, item.raw, Broken(f"no list under {column_map.each}"))
        return
    if not inner:
        yield Item(item.number, item.raw, None)
    for place, element in enumerate(inner, 1):
        value: Any = Broken("an element that is no object")
        if isinstance(element, dict):
            value = Values(element, item.value, place, is_last=place == len(inner))
        yield part_of(item, element, value)


def _csvread_rows(source: Source, column_map: ColumnMap, context: Context) -> Iterator[Item]:
    delimiter = column_map.delimiter or sniff_delimiter(source.head.decode(errors="replace"))
    header: tuple[str, ...] | None = None
    for record in read_records(source.lines(), delimiter=delimiter, encoding=column_map.encoding):
        if record.problem is not None:
            yield Item(record.number, record.raw, Broken(record.problem))
        elif header is None:
            header = _header(record.fields, column_map)
        else:
            yield Item(record.number, record.raw, _by_header(header, record.fields))
    if header is None:
        context.note("the table has no header line")


def _header(fields: Sequence[str], column_map: ColumnMap) -> tuple[str, ...]:
    """The names of the columns; a map that names none of them belongs to another file."""
    header = tuple(name.strip() for name in fields)
    columns = column_map.columns
    needed = columns.time if column_map.rows == "signal" else columns.start
    missing = [name for name in needed if name not in header]
    if missing:
        columns = ", ".join(header)[:120]
        raise RowProblem(
            "the column map does not fit the table", f"no column {missing[0]} in line 1: {columns}"
        )
    return header


def _by_header(header: tuple[str, ...], fields: Sequence[str]) -> Values | Broken:
    if len(fields) != len(header):
        extra = fields[len(header) :]
        if len(fields) < len(header) or any(field.strip() for field in extra):
            return Broken("a row with more or fewer fields than the header")
    row = dict(zip(header, fields, strict=False))
    return Values(row, row, 1, is_last=True)
