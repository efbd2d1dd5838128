"""A hand-kept log line by line, whatever shapes it mixes: tables, lists, blocks, YAML items, CSV, dated lines.

People begin with a table and go on with a list. So no shape is taken for the whole file: each line says by itself what
it belongs to. A line that begins with a date or with a key of an entry is never prose: it is read, or it is rejected
with its number, because an incident that is left out in silence makes a rate that is too low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from lastgood.ledger.importers import handkept_entries as shapes
from lastgood.ledger.importers.json_scan import Broken
from lastgood.ledger.importers.source import Item, Line
from lastgood.ledger.importers.table_rows import read_records

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?\s+)?"
_DATE = (
    rf"(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/]\d{{1,2}}[-/](?:\d{{4}}|\d\d)|\d{{1,2}}\.\d{{1,2}}\.\d{{4}}"
    rf"|{_MONTH} \d{{1,2}}(?:,? \d{{4}})?|\d{{1,2}}\.? {_MONTH}(?:,? \d{{4}})?)(?![\d\w-])"
)
_DATED = re.compile(rf"[^\w|]{{0,4}}{_WEEKDAY}{_DATE}|[^\w|]{{0,4}}\d{{4}}-\d\d-\d\dT\d\d:")
_DAY = re.compile(rf"[^\w]{{0,4}}{_WEEKDAY}({_DATE})")
_CLOCK = re.compile(r"\d{1,2}:\d\d(?![\d:]*\w)")
_MARKED_KEY = re.compile(r"([A-Za-z][A-Za-z _\-]{0,30})\s*:(?:\s|$)")
_OF_AN_ENTRY = frozenset(("start", "date", "stop", "what"))
_TELLS = frozenset(("what", "cause", "stop", "duration"))
_LOOKED_AT = 200
NO_ENTRY = "a line that begins with a date and is no entry: write it as - DATE TIME - TIME: what"
NO_START = "an entry without a start"
RESTATED = "a list item with a day only, and under its heading a block of that day that says more"
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WAITING_MAX = 1_000


def is_dated(text: str) -> bool:
    """True for a text that begins with a date, however it is marked."""
    return _DATED.match(text[:_LOOKED_AT].lstrip()) is not None


def read_mixed(lines: Iterable[Line]) -> Iterator[Item]:
    """Each entry as a row whose value is a mapping of fields; what is no entry has the value None."""
    return _Reader().read(lines)


class _Reader:
    """Collects the lines of one entry, and remembers the table and the heading that they stand under."""

    def __init__(self, *, has_yaml: bool = True) -> None:
        self._has_yaml = has_yaml
        self._kind = ""
        self._chunk: list[Line] = []
        self._indent = 0
        self._table: list[str | None] | None = None
        self._csv: tuple[str, list[str | None]] | None = None
        self._is_apart = False
        """There is a blank line before this one."""
        self._heading = self._day = ""
        self._held: Line | None = None
        """A heading that begins with a date: an entry must use it, or it is one that could not be read."""
        self._waiting: list[Item] = []
        """Items with a day only under this heading: a block of that day may say the same again, with its clock."""
        self._is_prose = False
        """The line before was prose, so that this one may be the rest of its sentence."""

    def read(self, lines: Iterable[Line]) -> Iterator[Item]:
        for line in lines:
            if self._goes_on(line):
                self._chunk.append(line)
                continue
            yield from self._finish()
            yield from self._begin(line)
        yield from self._finish()
        yield from self._release(is_used=False)
        yield from self._settle()

    def _goes_on(self, line: Line) -> bool:
        """True when the line belongs to the entry that is being collected."""
        if not self._chunk or not shapes.has_room(self._chunk):
            return False
        text = line.text
        if self._kind == "block":
            key = shapes.KEY.fullmatch(text)
            return key is not None and not (
                shapes.field_of(key[1]) == "start" and self._has_field("start")
            )
        if not text.strip():
            return self._kind == "yaml"
        indent = len(text) - len(text.lstrip())
        if self._kind == "yaml":
            return indent > self._indent or text.startswith("#")
        return (
            indent > 0
            and shapes.BULLET.fullmatch(text) is None
            and not text.lstrip().startswith("|")
        )

    def _has_field(self, name: str) -> bool:
        keys = (shapes.KEY.fullmatch(line.text) for line in self._chunk)
        return any(key is not None and shapes.field_of(key[1]) == name for key in keys)

    # --- one line -------------------------------------------------------------------------------------

    def _begin(self, line: Line) -> Iterator[Item]:
        text = line.text.strip()
        was_prose, self._is_prose = self._is_prose, False
        if not text:
            self._table, self._is_apart = None, True
            return
        is_apart, self._is_apart = self._is_apart, False
        is_table = "|" in text and (
            text.startswith("|") or self._table is not None or shapes.is_header(shapes.cells(text))
        )
        if is_table and shapes.BULLET.fullmatch(line.text) is None:
            yield self._table_row(line, text)
            return
        self._table = None
        heading = shapes.HEADING.fullmatch(line.text[:1_000])
        bullet = shapes.BULLET.fullmatch(line.text)
        if heading is not None:
            yield from self._under(line, shapes.plain(re.sub(r"<[^<>]*>", "", heading[1])))
        elif self._csv is not None and _is_row(text, *self._csv, is_apart=is_apart):
            yield self._csv_row(line)
        elif (header := _csv_header(text)) is not None:
            self._csv = header
            yield Item(line.number, line.raw, None)
        elif bullet is not None or text == "-":
            is_yaml = self._has_yaml and text[0] == "-" and _begins_yaml(text[1:].strip())
            self._collect(line, "yaml" if is_yaml else "item")
        elif shapes.KEY.fullmatch(line.text) is not None:
            self._collect(line, "block")
        elif is_dated(text):
            self._collect(line, "rest" if was_prose else "dated")
        else:
            self._is_prose = True
            yield Item(line.number, line.raw, None)

    def _collect(self, line: Line, kind: str) -> None:
        self._kind, self._chunk = kind, [line]
        self._indent = len(line.text) - len(line.text.lstrip())

    def _under(self, line: Line, heading: str) -> Iterator[Item]:
        """A heading: what it says may be the day, or the description, of the entries under it."""
        yield from self._release(is_used=False)
        yield from self._settle()
        self._csv = None
        self._heading = heading
        day = _DAY.match(heading)
        if day is not None:
            self._day = day[1]
        if day is not None and re.search(r"\w", heading[day.end() :]):
            self._held = line
        else:
            yield Item(line.number, line.raw, None)

    def _release(self, *, is_used: bool) -> Iterator[Item]:
        held, self._held = self._held, None
        if held is not None:
            yield Item(held.number, held.raw, None if is_used else Broken(
                "a heading that begins with a date, with no entry under it that uses it"
            ))  # fmt: skip

    # --- tables and CSV -------------------------------------------------------------------------------

    def _table_row(self, line: Line, text: str) -> Item:
        value: Any = None
        cells = shapes.cells(text)
        has_date = any(map(is_dated, cells))
        if shapes.RULE.fullmatch(text):
            pass
        elif shapes.is_header(cells) or (self._table is None and not has_date):
            self._table = [shapes.field_of(cell) for cell in cells]
        elif self._table is None:
            value = Broken("a row with a date, in a table without headings")
        else:
            value = shapes.row_entry(self._table, cells)
            if value is None and has_date:
                value = Broken("a row with a date, in a table whose headings name no start")
        return Item(line.number, line.raw, value)

    def _csv_row(self, line: Line) -> Item:
        assert self._csv is not None, "a header was read before"
        delimiter, header = self._csv
        value: Any = Broken("a row with more or fewer fields than the header")
        for record in read_records([line], delimiter=delimiter):
            if record.problem is not None:
                value = Broken(record.problem)
            elif len(record.fields) == len(header):
                value = shapes.entry_of(header, record.fields)
        return Item(line.number, line.raw, value)

    # --- what was collected ---------------------------------------------------------------------------

    def _finish(self) -> Iterator[Item]:
        chunk, self._chunk = self._chunk, []
        if not chunk:
            return
        if self._kind == "yaml" and not _is_yaml_entry(chunk):
            # Only a list whose first item looked like a key: read it again as such.
            reader = _Reader(has_yaml=False)
            reader._heading, reader._day = self._heading, self._day
            yield from reader.read(chunk)
        elif self._kind == "yaml":
            yield shapes.yaml_entry(chunk, self._indent)
        elif self._kind == "block":
            item = self._block(chunk)
            if isinstance(item.value, dict):
                yield from self._release(is_used=True)
                self._restate(item.value)
            yield item
        else:
            yield from self._item(chunk)

    def _block(self, chunk: list[Line]) -> Item:
        item = shapes.block_entry(chunk, self._heading)
        if isinstance(item.value, dict):
            is_told = "start" in item.value or (_TELLS & shapes.block_fields(chunk))
            return item if is_told else item._replace(value=Broken("a date without what happened"))
        fields = shapes.block_fields(chunk)
        is_part = "start" in fields or ("what" in fields and len(fields & (_TELLS | {"host"})) > 1)
        stop = shapes.block_value(chunk, "stop")
        is_part = is_part or is_dated(stop) or _CLOCK.match(stop) is not None
        return item._replace(value=Broken(NO_START)) if is_part else item

    def _item(self, chunk: list[Line]) -> Iterator[Item]:
        first = chunk[0]
        match = shapes.BULLET.fullmatch(first.text)
        text = first.text.strip() if match is None else match[2]
        text = shapes.plain(" ".join([text, *(line.text.strip() for line in chunk[1:])]))
        raw = b"\n".join(line.raw for line in chunk)
        if _CLOCK.match(text) is not None:
            if not self._day:
                yield Item(first.number, raw, Broken("an item with a clock and without a day"))
                return
            yield from self._release(is_used=True)
            text = f"{self._day} {text}"
        value: Any = shapes.text_entry(text)
        if value is None and is_dated(text):
            value = Broken("a date in a form that is not read: write YYYY-MM-DD HH:MM")
        elif self._kind in {"dated", "rest"} and not (self._kind == "dated" and _is_told(value)):
            value = Broken(NO_ENTRY)
        item = Item(first.number, raw, value)
        if isinstance(value, dict) and self._heading and _ISO_DAY.fullmatch(value["start"]):
            yield from self._settle(keep=_WAITING_MAX)
            self._waiting.append(item)
        else:
            yield item

    def _restate(self, block: dict[str, str]) -> None:
        """Items of the block's day say the same again: they are counted as that, and not as incidents."""
        day = (block.get("start") or block.get("date") or "")[:10]
        self._waiting = [
            item._replace(value=RESTATED)
            if isinstance(item.value, dict) and item.value["start"] == day
            else item
            for item in self._waiting
        ]

    def _settle(self, *, keep: int = 0) -> Iterator[Item]:
        waiting = self._waiting
        while len(waiting) > keep:
            yield waiting.pop(0)


def _is_told(value: Any) -> bool:
    """True for a dated line with a clock or an end, and with words: prose about a day has neither."""
    if not isinstance(value, dict) or "what" not in value:
        return False
    return (
        "stop" in value or "duration" in value or re.search(r"\d:\d\d", value["start"]) is not None
    )


def _begins_yaml(text: str) -> bool:
    return not text or text[0] == "{" or _MARKED_KEY.match(text) is not None


def _is_yaml_entry(chunk: list[Line]) -> bool:
    """True when a key of an entry is among those of the item."""
    first = chunk[0].text.lstrip()[1:].strip()
    if first.startswith("{"):
        return True
    texts = [first, *(line.text.strip() for line in chunk[1:])]
    keys = (_MARKED_KEY.match(text) for text in texts)
    return any(key is not None and shapes.field_of(key[1]) in _OF_AN_ENTRY for key in keys)


def _is_row(text: str, delimiter: str, header: list[str | None], *, is_apart: bool) -> bool:
    """True for a line of the CSV above; behind a blank line only when it has as many fields."""
    count = text.count(delimiter)
    return count > 0 and (not is_apart or count + 1 == len(header))


def _csv_header(text: str) -> tuple[str, list[str | None]] | None:
    for delimiter in ",;\t":
        names = text.split(delimiter)
        if len(names) > 1 and shapes.is_header(names):
            return delimiter, [shapes.field_of(name) for name in names]
    return None
