"""Any table of faults, signals or jobs: CSV or JSON, read through a column map.

The map says what a row is. A *fault* has a start and an end and becomes an incident; a *signal* has one moment and
becomes an observation; a *job* becomes the start and the end of an attempt, so that a scheduler's export gives
exposure and failures; an *exposure* says from when to when a node was at risk. A file with the header of a published data set gets its preset without being told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, Options, RowProblem
from lastgood.ledger.importers.people_times import (
    TWO_DAYS,
    is_missing,
    is_still_open,
    parse_people_time,
)
from lastgood.ledger.importers.source import Item, Source
from lastgood.ledger.importers.table_cells import LIST_MAX, Values, micros, text_of, texts_of, whole
from lastgood.ledger.importers.table_items import read_rows
from lastgood.ledger.importers.table_rows import sniff_delimiter
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
            read_rows(source, column_map, context), _Parser(source, context, column_map).parse
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
        values: Values = row.value
        if self._is_left_out(values):
            self._context.ignore(row, "rows that the column map leaves out")
        elif self._map.rows == "signal":
            yield self._signal(row, values)
        elif self._map.rows == "fault":
            yield from self._fault(row, values)
        elif self._map.rows == "exposure":
            yield from self._exposure(row, values)
        else:
            yield from self._job(row, values)

    def _is_left_out(self, values: Values) -> bool:
        for column, words in self._map.only.items():
            if text_of(values, column) not in words:
                return True
        return any(text_of(values, column) in words for column, words in self._map.ignore.items())

    def _signal(self, row: Item, values: Values) -> Event:
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

    def _fault(self, row: Item, values: Values) -> Iterator[Event]:
        begin = self._time(values, "start")
        begin_us, inferred = begin
        end = self._end(values, begin)
        fields = self._fields(values)
        if fields.get("class_") is None and "class" in self._map.words:
            self._context.ignore(row, "rows that the map's words do not class as a failure")
            return
        # Without an id of its own a fault is known by when it began, where, and what it was called.
        known = self._identity(values) or (
            begin.name_us, str(fields.get("host")), str(fields.get("device")), str(fields["body"].get("label")),
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

    def _exposure(self, row: Item, values: Values) -> Iterator[Event]:
        """A node, or a device, is at risk from its start to its stop."""
        begin = self._time(values, "start")
        end = self._end(values, begin)
        fields = self._fields(values)
        host, device = fields["host"], fields["device"]
        if host is None and device is None:
            raise RowProblem("no host or device that is at risk")
        devices = fields.get("devices") or (1 if device else self._context.options.devices_per_node)
        if devices is None or devices < 1:
            raise RowProblem("no number of devices: map devices, or give --devices-per-node")
        stamps = [(EventKind.EXPOSURE_JOIN, begin)]
        if end is not None:
            stamps.append((EventKind.EXPOSURE_LEAVE, end))
        for kind, moment in stamps:
            yield self._context.event(
                kind,
                row=row,
                identity=(str(host), str(device), begin.name_us),
                t_us=moment.t_us,
                inferred=moment.is_inferred,
                host=host,
                device=device,
                devices=devices,
                body={"basis": "device" if device else "node"},
            )

    def _job(self, row: Item, values: Values) -> Iterator[Event]:
        columns = self._columns
        if is_still_open(self._joined(values, "start")):
            self._context.ignore(row, "jobs that never started")
            return
        begin = self._time(values, "start")
        begin_us, inferred = begin
        end = self._end(values, begin)
        fields = self._fields(values)
        identity = self._identity(values)
        run = text_of(values, columns.run) or (str(identity[0]) if identity else None)
        if run is None:
            raise RowProblem("a job without a name")
        attempt = (
            values.number
            if columns.attempt is None
            else whole(text_of(values, columns.attempt), "attempt")
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
            identity=(run, str(attempt), begin.name_us),
            t_us=begin_us,
            inferred=inferred,
            body={key: value for key, value in body.items() if key == "label"},
            **shared,
        )
        if end is None:
            return
        state = self._word(values, "state")
        exit_code = text_of(values, columns.exit_code)
        body |= {"state": state or _FOLLOWED} if columns.state else {}
        body |= {"exit_code": exit_code} if exit_code is not None else {}
        if fields.get("class_") is None:
            fields = {}  # a job that ended well has no cause
        yield self._context.event(
            EventKind.ATTEMPT_END,
            row=row,
            identity=(run, str(attempt), begin.name_us),
            t_us=end.t_us,
            inferred=end.is_inferred,
            body=body,
            **shared,
            **fields,
        )

    # --- cells ------------------------------------------------------------------------------------------

    def _time(self, values: Values, name: str) -> ParsedTime:
        text = self._joined(values, name)
        if text is None or is_missing(text):
            raise RowProblem(f"no {name}")
        found = self._read(text)
        self._context.coverage(found.t_us)
        return found

    def _read(self, text: str) -> ParsedTime:
        try:
            return parse_people_time(text, self._times, order=self._map.dates)
        except RowProblem as problem:
            if problem.reason == TWO_DAYS:
                self._context.note(
                    "some dates can be two days: say which in the column map (dates: day-first, or dates: month-first)"
                )
            raise

    def _end(self, values: Values, begin: ParsedTime) -> ParsedTime | None:
        """The end, from its column or from the duration; None while it is open."""
        text = self._joined(values, "stop")
        if text is not None and not is_still_open(text):
            end = self._read(text)
        else:
            seconds = text_of(values, self._columns.duration_s)
            if seconds is None or is_missing(seconds):
                return None
            end = begin.later(micros(seconds))
        if end.t_us < begin.t_us:
            raise RowProblem("an end before its start")
        self._context.coverage(end.t_us)
        return end

    def _joined(self, values: Values, name: str) -> str | None:
        """A time, of one column or of a day and a clock; None when a part of it is missing."""
        parts = [text_of(values, column) for column in getattr(self._columns, name)]
        if not parts or any(part is None for part in parts):
            return None
        return " ".join(part for part in parts if part is not None)

    def _identity(self, values: Values) -> tuple[str | int, ...]:
        names = [
            text for column in self._columns.id if (text := text_of(values, column)) is not None
        ]
        if len(names) < len(self._columns.id):
            raise RowProblem("a row without its id")
        return (*names, values.number) if names and self._map.each else tuple(names)

    def _fields(self, values: Values) -> dict[str, Any]:
        columns = self._columns
        hosts = [name for column in columns.host for name in texts_of(values, column)][:LIST_MAX]
        host = hosts[0] if hosts else self._context.options.host
        device = text_of(values, columns.device)
        shared = [("host", name) for name in hosts[1:]]
        for kind in ("rack", "switch"):
            name = text_of(values, getattr(columns, kind))
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

    def _devices(self, values: Values) -> int | None:
        columns = self._columns
        if columns.device_list is not None:
            return len(texts_of(values, columns.device_list)) or None
        text = text_of(values, columns.devices)
        return None if text is None else whole(text, "devices")

    def _body(self, values: Values) -> dict[str, Any]:
        label = [
            text for column in self._columns.label if (text := text_of(values, column)) is not None
        ]
        text = [
            found for column in self._columns.text if (found := text_of(values, column)) is not None
        ]
        body: dict[str, Any] = {}
        if label and not ("label" in self._map.last_only and not values.is_last):
            body["label"] = "/".join(label)
        if text:
            body["text"] = "\n".join(text)
        return body

    def _word(self, values: Values, name: str) -> str | None:
        """A field in our words: what the map says the file's word means, else the word itself, else the default."""
        if name in self._map.last_only and not values.is_last:
            return None
        column = _column(self._columns, name)
        text = text_of(values, column)
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
