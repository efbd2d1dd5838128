"""Any table of faults, signals or jobs: CSV or JSON, read through a column map.

The map says what a row is. A *fault* has a start and an end and becomes an incident; a *signal* has one moment and
becomes an observation; a *job* becomes the start and the end of an attempt, so that a scheduler's export gives
exposure and failures. A file with the header of a published data set gets its preset without being told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, Options, RowProblem
from lastgood.ledger.importers.json_scan import Broken, part_of
from lastgood.ledger.importers.people_times import is_missing, is_still_open, parse_people_time
from lastgood.ledger.importers.source import Item, Source, json_items
from lastgood.ledger.importers.table_rows import read_records, sniff_delimiter
from lastgood.ledger.importers.times import ParsedTime, Times

if TYPE_CHECKING:
    from lastgood.ledger.importers.table_map import ColumnMap, Columns

_HEADERS: dict[str, tuple[bytes, ...]] = {
    "acme-kalos": (b"job_id", b"gpu_num", b"mem_per_pod_GB", b"fail_time"),
    "acme-seren": (b"job_id", b"gpu_num", b"gpu_time", b"node_num"),
    "helios": (b"job_id", b"vc,", b"gpu_num", b"submit_time"),
}
"""Columns by which the header of a preset is known, the narrowest first."""
NEEDS_MAP = "a table needs a column map (--map FILE, or the name of a preset)"
_NUMBER = re.compile(r"-?\d+")
_LIST_MAX = 10_000


class TableImporter:
    """Rows through a column map."""

    name = "table"
    version = "1"
    title = "any CSV or JSON table through a column map (presets: acme-seren, acme-kalos, helios, philly)"

    def recognises(self, head: Head) -> int:
        """Sure of a published schema; hesitant with anything that has a header line with a delimiter."""
        if preset_of(head.data) is not None:
            return 85
        first = head.text.lstrip("\ufeff\r\n ").partition("\n")[0]
        is_table = 2 <= first.count(sniff_delimiter(head.text)) <= 500 and not first.startswith(
            ("{", "[", "#")
        )
        return 22 if is_table and not any(char.isdigit() for char in first[:40]) else 0

    def ask(self, source: Source, options: Options) -> None:
        """Asks for a map where there is none, and the columns are not those of a preset.

        Raises:
            BadInput: With the command that writes one.
        """
        if options.column_map is None and source.head and preset_of(source.head) is None:
            place = source.path or source.name
            raise BadInput(
                "a table needs a column map",
                where=str(place),
                needs="--map FILE, or --map with the name of a preset",
                next=f"write one with: lastgood import table {place} --guess > map.yaml",
            )

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """The events of the rows, by the map of the options, else by the preset whose header this is."""
        column_map = _map_of(source, context)
        if column_map.note:
            context.note(column_map.note)
        yield from context.rows(
            _rows(source, column_map, context), _Parser(source, context, column_map).parse
        )


IMPORTER = TableImporter()


def preset_of(head: bytes) -> str | None:
    """The preset whose published schema the file begins with."""
    start = head.lstrip()
    if start[:1] in {b"[", b"{"}:
        is_philly = all(key in head for key in (b'"attempts"', b'"jobid"', b'"vc"'))
        return "philly" if is_philly else None
    header = start.partition(b"\n")[0]
    return next(
        (name for name, columns in _HEADERS.items() if all(c in header for c in columns)), None
    )


def _map_of(source: Source, context: Context) -> ColumnMap:
    from lastgood.ledger.importers.table_map import load_column_map, load_preset

    if context.options.column_map is not None:
        return load_column_map(context.options.column_map)
    preset = preset_of(source.head)
    if preset is not None:
        context.note(
            f"read through the preset {preset}, because the columns are those of its schema"
        )
        return load_preset(preset)
    raise RowProblem(
        NEEDS_MAP, f"write one with: lastgood import table {source.name} --guess > map.yaml"
    )


# --- rows ---------------------------------------------------------------------------------------------


class _Values(NamedTuple):
    """One row: the element, and the row that holds it when the map goes down into a list."""

    inner: Mapping[str, Any]
    outer: Mapping[str, Any]
    number: int
    """Place (1-based) in that list."""
    is_last: bool


def _rows(source: Source, column_map: ColumnMap, context: Context) -> Iterator[Item]:
    is_json = (
        source.head.lstrip()[:1] in {b"[", b"{"}
        if column_map.format is None
        else column_map.format == "json"
    )
    if is_json:
        for item in json_items(source, *column_map.path):
            yield from _elements(item, column_map)
        return
    yield from _csv_rows(source, column_map, context)


def _elements(item: Item, column_map: ColumnMap) -> Iterator[Item]:
    if isinstance(item.value, Broken):
        yield item
        return
    if not isinstance(item.value, dict):
        yield Item(item.number, item.raw, Broken("a row that is no object"))
        return
    if column_map.each is None:
        yield Item(item.number, item.raw, _Values(item.value, item.value, 1, is_last=True))
        return
    inner = _down(item.value, column_map.each)
    if not isinstance(inner, list):
        yield Item(item.number, item.raw, Broken(f"no list under {column_map.each}"))
        return
    if not inner:
        yield Item(item.number, item.raw, None)
    for place, element in enumerate(inner, 1):
        value: Any = Broken("an element that is no object")
        if isinstance(element, dict):
            value = _Values(element, item.value, place, is_last=place == len(inner))
        yield part_of(item, element, value)


def _csv_rows(source: Source, column_map: ColumnMap, context: Context) -> Iterator[Item]:
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
    needed = [columns.time] if column_map.rows == "signal" else [columns.start]
    missing = [name for name in needed if name is not None and name not in header]
    if missing:
        columns = ", ".join(header)[:120]
        raise RowProblem(
            "the column map does not fit the table", f"no column {missing[0]} in line 1: {columns}"
        )
    return header


def _by_header(header: tuple[str, ...], fields: Sequence[str]) -> _Values | Broken:
    if len(fields) != len(header):
        extra = fields[len(header) :]
        if len(fields) < len(header) or any(field.strip() for field in extra):
            return Broken("a row with more or fewer fields than the header")
    row = dict(zip(header, fields, strict=False))
    return _Values(row, row, 1, is_last=True)


# --- one row ------------------------------------------------------------------------------------------


class _Parser:
    """Rows of one file through one map."""

    def __init__(self, source: Source, context: Context, column_map: ColumnMap) -> None:
        self._context = context
        self._map = column_map
        self._columns = column_map.columns
        options = context.options
        # Only those that the map can give at all: a table has millions of rows.
        self._axes = [
            name
            for name in ("class", "cause", "cause_status", "symptom", "role")
            if name in column_map.defaults or _column(self._columns, name) is not None
        ]
        self._times = Times(
            zone=options.zone or column_map.zone, year=options.year, mtime_us=source.mtime_us
        )

    def parse(self, row: Item) -> Iterator[Event]:
        """One row."""
        if row.value is None:
            self._context.ignore(row, f"rows without {self._map.each}")
            return
        values: _Values = row.value
        if self._is_left_out(values):
            self._context.ignore(row, "rows that the column map leaves out")
        elif self._map.rows == "signal":
            yield self._signal(row, values)
        elif self._map.rows == "fault":
            yield from self._fault(row, values)
        else:
            yield from self._job(row, values)

    def _is_left_out(self, values: _Values) -> bool:
        for column, words in self._map.only.items():
            if _text(values, column) not in words:
                return True
        return any(_text(values, column) in words for column, words in self._map.ignore.items())

    def _signal(self, row: Item, values: _Values) -> Event:
        t_us, inferred = self._time(values, "time")
        identity = self._identity(values)
        return self._context.event(
            EventKind.OBSERVATION,
            row=row,
            identity=identity,
            t_us=t_us,
            inferred=inferred,
            **self._fields(values),
        )

    def _fault(self, row: Item, values: _Values) -> Iterator[Event]:
        begin_us, inferred = self._time(values, "start")
        end = self._end(values, begin_us)
        fields = self._fields(values)
        if fields.get("class_") is None and "class" in self._map.words:
            self._context.ignore(row, "rows that the map's words do not class as a failure")
            return
        # Without an id of its own a fault is known by when it began, where, and what it was called.
        known = self._identity(values) or (
            begin_us, str(fields.get("host")), str(fields.get("device")), str(fields["body"].get("label")),
        )  # fmt: skip
        incident = self._context.incident_id(*known)
        yield self._context.event(
            EventKind.INCIDENT_OPEN,
            row=row,
            identity=(incident,),
            t_us=begin_us,
            inferred=inferred,
            incident=incident,
            **fields,
        )
        if end is not None:
            yield self._context.event(
                EventKind.INCIDENT_CLOSE,
                row=row,
                identity=(incident,),
                t_us=end.t_us,
                inferred=end.is_inferred,
                incident=incident,
                host=fields.get("host"),
            )

    def _job(self, row: Item, values: _Values) -> Iterator[Event]:
        columns = self._columns
        if is_still_open(_text(values, columns.start)):
            self._context.ignore(row, "jobs that never started")
            return
        begin_us, inferred = self._time(values, "start")
        end = self._end(values, begin_us)
        fields = self._fields(values)
        identity = self._identity(values)
        run = _text(values, columns.run) or (str(identity[0]) if identity else None)
        if run is None:
            raise RowProblem("a job without a name")
        attempt = (
            values.number
            if columns.attempt is None
            else _whole(_text(values, columns.attempt), "attempt")
        )
        place = {
            "host": fields.pop("host"),
            "device": fields.pop("device"),
            "domain": fields.pop("domain"),
        }
        shared = {"run": run, "attempt": attempt, "devices": fields.pop("devices", None), **place}
        body = fields.pop("body")
        yield self._context.event(
            EventKind.ATTEMPT_START,
            row=row,
            identity=(run, str(attempt), begin_us),
            t_us=begin_us,
            inferred=inferred,
            body={key: value for key, value in body.items() if key == "label"},
            **shared,
        )
        if end is None:
            return
        state = self._word(values, "state")
        exit_code = _text(values, columns.exit_code)
        body |= {"state": state or _FOLLOWED} if columns.state else {}
        body |= {"exit_code": exit_code} if exit_code is not None else {}
        if fields.get("class_") is None:
            fields = {}  # a job that ended well has no cause
        yield self._context.event(
            EventKind.ATTEMPT_END,
            row=row,
            identity=(run, str(attempt), begin_us),
            t_us=end.t_us,
            inferred=end.is_inferred,
            body=body,
            **shared,
            **fields,
        )

    # --- cells ------------------------------------------------------------------------------------------

    def _time(self, values: _Values, name: str) -> ParsedTime:
        text = _text(values, getattr(self._columns, name))
        if is_missing(text) or text is None:
            raise RowProblem(f"no {name}")
        found = parse_people_time(text, self._times)
        self._context.coverage(found.t_us)
        return found

    def _end(self, values: _Values, begin_us: int) -> ParsedTime | None:
        """The end, from its column or from the duration; None while it is open."""
        columns = self._columns
        text = _text(values, columns.stop)
        if not is_still_open(text) and text is not None:
            end = parse_people_time(text, self._times)
        else:
            seconds = _text(values, columns.duration_s)
            if is_missing(seconds) or seconds is None:
                return None
            end = ParsedTime(begin_us + _micros(seconds), is_inferred=False)
        if end.t_us < begin_us:
            raise RowProblem("an end before its start")
        self._context.coverage(end.t_us)
        return end

    def _identity(self, values: _Values) -> tuple[str | int, ...]:
        names = [text for column in self._columns.id if (text := _text(values, column)) is not None]
        if len(names) < len(self._columns.id):
            raise RowProblem("a row without its id")
        return (*names, values.number) if names and self._map.each else tuple(names)

    def _fields(self, values: _Values) -> dict[str, Any]:
        columns = self._columns
        hosts = [name for column in columns.host for name in _texts(values, column)][:_LIST_MAX]
        host = hosts[0] if hosts else self._context.options.host
        device = _text(values, columns.device)
        shared = [("host", name) for name in hosts[1:]]
        for kind in ("rack", "switch"):
            name = _text(values, getattr(columns, kind))
            if name is not None:
                shared.append((kind, name))
        fields: dict[str, Any] = {
            "host": host,
            "device": f"{host}/{device}" if device and host else device,
            "domain": shared,
            "body": self._body(values),
        }
        for name in self._axes:
            word = self._word(values, name)
            if word is not None:
                fields["class_" if name == "class" else name] = word
        devices = self._devices(values)
        return fields if devices is None else {**fields, "devices": devices}

    def _devices(self, values: _Values) -> int | None:
        columns = self._columns
        if columns.device_list is not None:
            return len(_texts(values, columns.device_list)) or None
        text = _text(values, columns.devices)
        return None if text is None else _whole(text, "devices")

    def _body(self, values: _Values) -> dict[str, Any]:
        label = [
            text for column in self._columns.label if (text := _text(values, column)) is not None
        ]
        text = [
            found for column in self._columns.text if (found := _text(values, column)) is not None
        ]
        body: dict[str, Any] = {}
        if label and not ("label" in self._map.last_only and not values.is_last):
            body["label"] = "/".join(label)
        if text:
            body["text"] = "\n".join(text)
        return body

    def _word(self, values: _Values, name: str) -> str | None:
        """A field in our words: what the map says the file's word means, else the word itself, else the default."""
        if name in self._map.last_only and not values.is_last:
            return None
        column = _column(self._columns, name)
        text = _text(values, column)
        meanings = self._map.words.get(name)
        default = self._map.defaults.get(name)
        if text is None or is_missing(text):
            return default
        if meanings is None:
            return text
        if text in meanings:
            return meanings[text]
        if "*" in meanings:
            return meanings["*"]
        if name in {"class", "state"}:
            return text if name == "state" else default
        self._context.note(
            f"the map has no meaning for some words of {column}: their {name} is unknown"
        )
        return "unknown" if name in {"cause", "symptom", "cause_status", "role"} else default


def _column(columns: Columns, name: str) -> str | None:
    """The column of a field; `class` is a word of Python's."""
    return getattr(columns, "class_" if name == "class" else name)


_FOLLOWED = "followed by another attempt"


def _down(value: Any, path: str) -> Any:
    """The value under a dotted name; a list on the way gives the values of all its elements."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for part in path.split("."):
        if isinstance(value, list):
            inner = [
                element.get(part) for element in value[:_LIST_MAX] if isinstance(element, dict)
            ]
            value = [
                leaf for found in inner for leaf in (found if isinstance(found, list) else [found])
            ]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _found(values: _Values, column: str) -> Any:
    found = _down(values.inner, column)
    return (
        _down(values.outer, column) if found is None and values.outer is not values.inner else found
    )


def _text(values: _Values, column: str | None) -> str | None:
    """The cell as text; None when it is missing."""
    if column is None:
        return None
    found = values.inner.get(column)
    if found is None:
        found = _found(values, column)
    if not isinstance(found, str):
        if found is None or isinstance(found, list | dict):
            return None
        found = ("true" if found else "false") if isinstance(found, bool) else str(found)
    text = found.strip()
    return None if not text or (len(text) <= 4 and text.lower() in _NOTHING) else text


_NOTHING = frozenset(("none", "null", "nan", "nat"))


def _texts(values: _Values, column: str) -> list[str]:
    found = _found(values, column)
    items = found if isinstance(found, list) else [found]
    return [
        str(item)
        for item in items
        if isinstance(item, str | int) and not isinstance(item, bool) and str(item)
    ]


def _whole(text: str | None, what: str) -> int:
    plain = (text or "").removesuffix(".0")
    if not _NUMBER.fullmatch(plain) or len(plain) > 18:
        raise RowProblem(f"{what} is not a whole number", text)
    return int(plain)


def _micros(seconds: str) -> int:
    try:
        value = float(seconds)
    except ValueError:
        raise RowProblem("a duration that is no number", seconds) from None
    if not 0 <= value < 1e10:
        raise RowProblem("a duration that is no number of seconds", seconds)
    return round(value * 1_000_000)
