"""A column map: a small file that says which column of a table holds what.

    rows: fault                  # fault: start and stop | signal: one moment | job: start, stop, state | exposure: node at risk
    zone: Europe/Berlin          # of times that name no zone
    columns:
      start: begin_of_fault
      stop: end_of_fault
      host: server
      label: [component, remark]
    words:
      class: {maintenance: planned, "*": fail_stop}
      cause: {DIMM: host.memory, PSU: host.power}

Every problem of a map is reported at once with its line. Presets are maps that ship with lastgood, written to the
published schema of a data set; the data sets themselves were not read.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import Cause, CauseStatus, FailureClass, Role, Symptom
from lastgood.contract.values import nearest
from lastgood.contract.yaml_reader import Document, KeyPath, parse_document
from lastgood.ledger.importers.people_times import ORDERS

PRESETS = ("acme-seren", "acme-kalos", "helios", "philly")
MAP_BYTES_MAX = 64 * 1024
ROWS = ("fault", "signal", "job", "exposure")
FORMATS = ("csv", "json")
_FIELD_AXES: dict[str, tuple[str, ...]] = {
    "class": tuple(FailureClass),
    "cause": tuple(Cause),
    "cause_status": tuple(CauseStatus),
    "symptom": tuple(Symptom),
    "role": tuple(Role),
}

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column holds what; a dotted name goes down into nested JSON."""

    id: Names = ()
    start: Names = ()
    stop: Names = ()
    duration_s: str | None = None
    time: Names = ()
    host: Names = ()
    device: str | None = None
    rack: str | None = None
    switch: str | None = None
    devices: str | None = None
    """A number of accelerators."""
    device_list: str | None = None
    """A list whose length is that number."""
    run: str | None = None
    attempt: str | None = None
    state: str | None = None
    exit_code: str | None = None
    class_: str | None = None
    cause: str | None = None
    cause_status: str | None = None
    symptom: str | None = None
    role: str | None = None
    label: Names = ()
    text: Names = ()


_LISTS = frozenset(("id", "start", "stop", "time", "host", "label", "text"))
"""Fields that may have several columns: a day and a clock are one time, two names one label."""
_FIELD_NAMES = tuple(f.name.rstrip("_") for f in fields(Columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """A checked column map."""

    name: str
    rows: str
    columns: Columns
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    path: tuple[str, ...] = ()
    """Keys down to the array of rows, in JSON."""
    each: str | None = None
    """A list inside each row: one event per element, which still sees the columns of its row."""
    last_only: tuple[str, ...] = ()
    """Fields that hold for the last element of that list only."""
    zone: str | None = None
    dates: str | None = None
    """What 03/04/2026 is: `day-first` or `month-first`."""
    words: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """Per field, what the words of the file mean in ours; `*` for every other word."""
    defaults: dict[str, str] = field(default_factory=dict)
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ignore: dict[str, tuple[str, ...]] = field(default_factory=dict)
    note: str | None = None


def load_column_map(path: str | Path) -> ColumnMap:
    """The map in a file, or the preset of that name. Raises `Problems` with all that is wrong at once."""
    if str(path) in PRESETS:
        return load_preset(str(path))
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAP_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(
            "the column map cannot be read",
            where=str(path),
            found=error.strerror,
            needs="a YAML file, or a preset: " + ", ".join(PRESETS),
            next="write one with: lastgood import table FILE --guess",
        ) from error
    return parse_column_map(raw, source=str(path))


def load_preset(name: str) -> ColumnMap:
    """A map that ships with lastgood."""
    return parse_column_map(load_preset_text(name).encode(), source=name)


def load_preset_text(name: str) -> str:
    """The file of a preset, to be copied and changed."""
    if name not in PRESETS:
        raise BadInput("there is no such preset", found=name, needs="one of " + ", ".join(PRESETS))
    folder = resources.files("lastgood.ledger.importers").joinpath("presets")
    return folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def parse_column_map(raw: bytes, *, source: str) -> ColumnMap:
    """The map in these bytes. Raises `Problems` with all that is wrong at once."""
    if not raw.strip():
        raise BadInput(
            "the column map is empty",
            where=source,
            needs="rows and columns",
            next="write one with: lastgood import table FILE --guess",
        )
    document = parse_document(raw, source=source)
    if document.value is None:
        document.raise_problems()
    if not isinstance(document.value, dict):
        document.add((), found="no mapping", needs="a mapping with rows and columns")
        document.raise_problems()
    document.raise_problems()
    assert isinstance(document.value, dict), "anything else was raised"
    reader = _Reader(document, document.value)
    column_map = reader.column_map(source)
    document.raise_problems()
    return column_map


class _Reader:
    """Reads the keys of a map; everything that is wrong is noted, and reading goes on."""

    def __init__(self, document: Document, value: dict[str, Any]) -> None:
        self._document = document
        self._value = value

    def column_map(self, name: str) -> ColumnMap:
        """The map, as far as it can be read."""
        value = self._value
        self._known((), value, _KEYS)
        rows = self._word("rows", ROWS, is_needed=True) or ROWS[0]
        path = self._name((), value, "path")
        column_map = ColumnMap(
            name=name,
            rows=rows,
            columns=self._columns(rows),
            format=self._word("format", FORMATS),
            delimiter=self._name((), value, "delimiter"),
            encoding=self._name((), value, "encoding"),
            path=() if path is None else tuple(path.split(".")),
            each=self._name((), value, "each"),
            last_only=self._names((), value, "last_only"),
            zone=self._zone(),
            dates=self._word("dates", ORDERS),
            words=self._words(),
            defaults=self._defaults(),
            only=self._filters("only"),
            ignore=self._filters("ignore"),
            note=self._name((), value, "note"),
        )
        self._check(column_map)
        return column_map

    def _columns(self, rows: str) -> Columns:
        given = self._mapping("columns")
        if given is None:
            self._document.add((), found="no columns", needs="columns: which column holds what")
            return Columns()
        self._known(("columns",), given, _FIELD_NAMES)
        found: dict[str, Any] = {}
        for name in _FIELD_NAMES:
            read = self._names if name in _LISTS else self._name
            if given.get(name) is not None:
                found["class_" if name == "class" else name] = read(("columns",), given, name)
        columns = Columns(**found)
        # A misspelt key has been reported with the word that was meant.
        is_whole = all(key in _FIELD_NAMES for key in given)
        if rows == "signal" and not columns.time and is_whole:
            self._document.add(
                ("columns",), found="no time", needs="time: the column with the moment"
            )
        if rows != "signal" and not columns.start and is_whole:
            self._document.add(
                ("columns",), found="no start", needs="start: the column with the begin"
            )
        if rows == "exposure" and not columns.host and columns.device is None and is_whole:
            self._document.add(
                ("columns",),
                found="neither host nor device",
                needs="host: the column that names a node",
            )
        if rows == "job" and not columns.id and columns.run is None and is_whole:
            self._document.add(
                ("columns",), found="neither id nor run", needs="id: the column that names a job"
            )
        return columns

    def _words(self) -> dict[str, dict[str, str | None]]:
        found: dict[str, dict[str, str | None]] = {}
        for name, meanings in (self._mapping("words") or {}).items():
            path = ("words", name)
            if name not in _FIELD_NAMES:
                self._unknown(path, name, _FIELD_NAMES)
                continue
            if not isinstance(meanings, dict):
                self._document.add(
                    path, found=_shown(meanings), needs="a mapping: word of the file: word of ours"
                )
                continue
            found[name] = {}
            for word, meaning in meanings.items():
                text = None if meaning is None else self._text((*path, word), meaning)
                self._check_word((*path, word), name, text)
                found[name][word] = text
        return found

    def _defaults(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, word in (self._mapping("defaults") or {}).items():
            path = ("defaults", name)
            if name not in _FIELD_AXES:
                self._unknown(path, name, tuple(_FIELD_AXES))
                continue
            text = self._text(path, word)
            self._check_word(path, name, text)
            if text is not None:
                found[name] = text
        return found

    def _filters(self, key: str) -> dict[str, Names]:
        given = self._mapping(key) or {}
        return {column: self._names((key,), given, column) for column in given}

    def _zone(self) -> str | None:
        from lastgood.ledger.importers.times import parse_zone

        zone = self._name((), self._value, "zone")
        if zone is None:
            return None
        try:
            parse_zone(zone)
        except BadInput:
            self._document.add(
                ("zone",), found=zone, needs="an IANA name or an offset", write="Europe/Berlin"
            )
            return None
        return zone

    # --- one value --------------------------------------------------------------------------------------

    def _known(self, path: KeyPath, given: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in given:
            if key not in keys:
                self._unknown((*path, key), key, tuple(keys))

    def _unknown(self, path: KeyPath, key: str, keys: Names) -> None:
        self._document.add(
            path,
            found=f"the unknown key {key}",
            needs="one of " + ", ".join(keys),
            write=nearest(key, keys),
        )

    def _mapping(self, key: str) -> dict[str, Any] | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._document.add((key,), found=_shown(value), needs="a mapping")
            return {}
        return value

    def _word(self, key: str, words: Names, *, is_needed: bool = False) -> str | None:
        value = self._value.get(key)
        if value is None and not is_needed:
            return None
        if value not in words:
            found = "nothing" if value is None else _shown(value)
            self._document.add((key,), found=found, needs="one of " + ", ".join(words))
            return None
        return value

    def _name(self, path: KeyPath, given: Mapping[str, Any], key: str) -> str | None:
        return None if given.get(key) is None else self._text((*path, key), given[key])

    def _names(self, path: KeyPath, given: Mapping[str, Any], key: str) -> Names:
        value = given.get(key)
        items = value if isinstance(value, list) else [] if value is None else [value]
        texts = [self._text((*path, key), item) for item in items]
        return tuple(text for text in texts if text is not None)

    def _text(self, path: KeyPath, value: Any) -> str | None:
        """A state may be called 7 and a column 3: numbers are words here."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        self._document.add(path, found=_shown(value), needs="text")
        return None

    def _check(self, column_map: ColumnMap) -> None:
        """What no single key shows."""
        delimiter, encoding = column_map.delimiter, column_map.encoding
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            self._document.add(("delimiter",), found=repr(delimiter), needs="one character")
        if encoding is not None and not _is_encoding(encoding):
            self._document.add(
                ("encoding",), found=encoding, needs="a name such as latin-1 or cp1252"
            )
        for name in column_map.last_only:
            if name not in _FIELD_NAMES:
                self._unknown(("last_only",), name, _FIELD_NAMES)

    def _check_word(self, path: KeyPath, name: str, meaning: str | None) -> None:
        words = _FIELD_AXES.get(name)
        if words is not None and meaning is not None and meaning not in words:
            self._document.add(
                path,
                found=meaning,
                needs="one of " + ", ".join(words),
                write=nearest(meaning, words),
            )


_KEYS = tuple(f.name for f in fields(ColumnMap) if f.name != "name")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else str(value)


def _is_encoding(name: str) -> bool:
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    # One whose lines do not end in the byte of a line feed cannot be read by lines; and hex is no text.
    return getattr(codec, "_is_text_encoding", True) and not codec.name.startswith(
        ("utf-16", "utf-32")
    )
