"""A column map: a small file that says which column of a table holds what.

    rows: fault                  # fault: start and stop | signal: one moment | job: start, stop, state
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

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import Cause, CauseStatus, FailureClass, Role, Symptom
from lastgood.contract.values import nearest
from lastgood.contract.yaml_reader import Document, KeyPath, parse_document

PRESETS = ("acme-seren", "acme-kalos", "helios", "philly")
MAP_BYTES_MAX = 64 * 1024

Rows = Literal["fault", "signal", "job"]
_FIELD_AXES: dict[str, type] = {
    "class": FailureClass,
    "cause": Cause,
    "cause_status": CauseStatus,
    "symptom": Symptom,
    "role": Role,
}


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class _Written(BaseModel):
    """What a person writes: no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(_Written):
    """Which column holds what; a dotted name goes down into nested JSON."""

    id: Names = ()
    start: str | None = None
    stop: str | None = None
    duration_s: str | None = None
    time: str | None = None
    host: Names = ()
    device: str | None = None
    rack: str | None = None
    switch: str | None = None
    devices: str | None = None
    device_list: str | None = None
    run: str | None = None
    attempt: str | None = None
    state: str | None = None
    exit_code: str | None = None
    class_: str | None = Field(None, alias="class")
    cause: str | None = None
    cause_status: str | None = None
    symptom: str | None = None
    role: str | None = None
    label: Names = ()
    text: Names = ()


class _Map(_Written):
    """The file."""

    rows: Rows
    format: Literal["csv", "json"] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    path: str | None = None
    each: str | None = None
    last_only: Names = ()
    zone: str | None = None
    columns: Columns
    words: dict[str, dict[str, str | None]] = Field(default_factory=dict)
    defaults: dict[str, str] = Field(default_factory=dict)
    only: dict[str, Names] = Field(default_factory=dict)
    ignore: dict[str, Names] = Field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """A checked column map."""

    name: str
    rows: Rows
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
    if name not in PRESETS:
        raise BadInput("there is no such preset", found=name, needs="one of " + ", ".join(PRESETS))
    folder = resources.files("lastgood.ledger.importers").joinpath("presets")
    return parse_column_map(folder.joinpath(f"{name}.yaml").read_bytes(), source=name)


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
    written = _validate(document)
    document.raise_problems()
    assert written is not None, "a document without problems is a map"
    _check(written, document)
    document.raise_problems()
    return ColumnMap(
        name=source,
        rows=written.rows,
        columns=written.columns,
        format=written.format,
        delimiter=written.delimiter,
        encoding=written.encoding,
        path=tuple(written.path.split(".")) if written.path else (),
        each=written.each,
        last_only=written.last_only,
        zone=written.zone,
        words=written.words,
        defaults=written.defaults,
        only=written.only,
        ignore=written.ignore,
        note=written.note,
    )


# --- checking -----------------------------------------------------------------------------------------

_FIELD_NAMES = tuple(info.alias or name for name, info in Columns.model_fields.items())
_NEEDS = {
    "string_type": "text",
    "tuple_type": "one name or a list of names",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "missing": "this key",
    "dataclass_type": "a mapping",
}


def _validate(document: Document) -> _Map | None:
    value = document.value
    assert isinstance(value, dict)
    try:
        return _Map.model_validate(_with_texts(value))
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            _add(problem, document)
    return None


def _with_texts(value: dict[str, Any]) -> dict[str, Any]:
    """Words and defaults as text: a state may be called 7, and a column may be called 3."""
    plain = dict(value)
    for key in ("words", "only", "ignore"):
        if isinstance(plain.get(key), dict):
            plain[key] = {k: _texts(v) for k, v in plain[key].items()}
    if isinstance(plain.get("columns"), dict):
        plain["columns"] = _texts(plain["columns"])
    return plain


def _texts(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    return [_texts(item) for item in value] if isinstance(value, list) else value


def _add(problem: Any, document: Document) -> None:
    path: KeyPath = tuple(part for part in problem["loc"] if part != "[key]")
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = _FIELD_NAMES if path[:1] == ("columns",) else tuple(_Map.model_fields)
        document.add(
            path,
            found=f"the unknown key {path[-1]}",
            needs="one of " + ", ".join(known),
            write=nearest(str(path[-1]), known),
        )
        return
    found = "nothing" if kind == "missing" else str(problem["input"])
    if kind == "literal_error":
        words = problem["ctx"]["expected"].replace("'", "")
        document.add(path, found=found, needs=f"one of {words}")
        return
    document.add(path, found=found, needs=_NEEDS.get(kind, problem["msg"].lower()))


def _check(written: _Map, document: Document) -> None:
    """What no single key shows: columns that these rows need, and words that taxonomy v1 does not have."""
    columns = written.columns
    if written.rows == "signal" and columns.time is None:
        document.add(("columns",), found="no time", needs="time: the column with the moment")
    if written.rows != "signal" and columns.start is None:
        document.add(("columns",), found="no start", needs="start: the column with the begin")
    if written.rows == "job" and not columns.id and columns.run is None:
        document.add(
            ("columns",), found="neither id nor run", needs="id: the column that names a job"
        )
    if written.delimiter is not None and len(written.delimiter) != 1:
        document.add(("delimiter",), found=repr(written.delimiter), needs="one character")
    if written.encoding is not None and not _is_encoding(written.encoding):
        document.add(
            ("encoding",), found=written.encoding, needs="a name such as latin-1 or cp1252"
        )
    for name, meanings in written.words.items():
        if name not in _FIELD_NAMES:
            document.add(
                ("words", name),
                found=f"the unknown field {name}",
                needs="one of " + ", ".join(_FIELD_NAMES),
                write=nearest(name, _FIELD_NAMES),
            )
        for word, meaning in meanings.items():
            _check_word(("words", name, word), name, meaning, document)
    for name, meaning in written.defaults.items():
        if name not in _FIELD_AXES:
            document.add(("defaults", name), found=name, needs="one of " + ", ".join(_FIELD_AXES))
        _check_word(("defaults", name), name, meaning, document)


def _check_word(path: KeyPath, name: str, meaning: str | None, document: Document) -> None:
    axis = _FIELD_AXES.get(name)
    if axis is None or meaning is None:
        return
    words = [str(word) for word in axis]  # type: ignore[attr-defined]
    if meaning not in words:
        document.add(
            path, found=meaning, needs="one of " + ", ".join(words), write=nearest(meaning, words)
        )


def _is_encoding(name: str) -> bool:
    import codecs

    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return not name.lower().replace("_", "-").startswith(("utf-16", "utf-32"))
