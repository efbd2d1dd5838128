"""The entries of a log that people keep by hand: a Markdown table or list, blocks of `key: value`, CSV, or a YAML list.

Headings are free within reason (`start`, `Begin`, `down since`), and may come in any order. What is between the
entries, such as headings and prose, is no entry. An entry that is broken costs itself only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from lastgood.ledger.importers.json_scan import Broken
from lastgood.ledger.importers.source import Item, Line
from lastgood.ledger.importers.table_rows import read_records

HEADINGS: dict[str, tuple[str, ...]] = {
    "start": ("start", "started", "begin", "began", "beginning", "from", "down", "downsince", "onset", "opened", "since",
              "time", "when", "starttime", "begintime", "von", "timestamp"),
    "stop": ("stop", "stopped", "end", "ended", "until", "to", "up", "upagain", "resolved", "closed", "fixed", "restored",
             "finish", "finished", "endtime", "stoptime", "bis", "recovered"),
    "date": ("date", "day", "datum"),
    "what": ("what", "whathappened", "description", "summary", "event", "issue", "problem", "title", "incident",
             "details", "symptom", "fault"),
    "cause": ("cause", "rootcause", "reason", "why", "component", "culprit"),
    "host": ("host", "hosts", "node", "nodes", "server", "machine", "hostname", "where", "system"),
    "device": ("gpu", "device"),
    "rack": ("rack",),
    "class": ("class", "kind", "type"),
    "duration": ("duration", "length", "howlong", "outage", "downtime"),
    "notes": ("notes", "note", "comment", "comments", "action", "fix", "remarks", "remark", "resolution", "followup"),
    "id": ("id", "ticket", "number", "no", "incidentid", "case"),
}  # fmt: skip
_FIELD_OF = {name: field for field, names in HEADINGS.items() for name in names}
HEADING_CHARS_MAX = 80
LINES_LOOKED_AT = 2_000
CHUNK_LINES_MAX = 2_000
"""Lines of one entry of a YAML list, or of one item of a Markdown list."""
CHUNK_BYTES_MAX = 128 * 1024

BULLET = re.compile(r"(\s{0,8})(?:[-*+]|\d{1,4}[.)])\s+(\S.*)")
_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?"
_DAY = (
    r"(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}|\d{1,2}/\d{1,2}/\d{4}"
    r"|(?:[A-Z][a-z]{2,8}\.? \d{1,2}|\d{1,2}\.? [A-Z][a-z]{2,8}\.?)(?:,? \d{4})?)"
)
_TIME = rf"{_DAY}(?:(?:T|,? +){_CLOCK}(?:\s?(?:Z|UTC|\+\d\d:?\d\d|-\d\d:?\d\d(?!\d)))?)?"
_RANGE = re.compile(
    rf"(?P<start>{_TIME})(?:\s*(?:-|–|—|→|->|\.\.+|to\b|until\b|till\b|bis\b)\s*"
    rf"(?P<stop>{_TIME}|{_CLOCK}|open\b|ongoing\b|now\b|\?))?\s*[:,;|–—\-]*\s*(?P<what>.*)",
    re.DOTALL,
)
UNIT = r"(weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
"""A unit of time as people write it; its first letter says which."""
_AMOUNT = r"\d{1,9}(?:\.\d{1,6})?\s?" + UNIT.replace("(weeks", "(?:weeks")
_LENGTH = re.compile(
    rf"\(\s*(?:~|approx\.?|about)?\s*({_AMOUNT}(?:,?\s?{_AMOUNT}){{0,3}})\s*\)\s*[:,;|–—\-]*\s*",
    re.IGNORECASE,
)
KEY = re.compile(r"\s{0,8}([A-Za-z][A-Za-z _\-]{0,30}):(?:\s+(\S.*))?\s*")
HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.+)")
RULE = re.compile(r"\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)*\|?")
_CAUSE = re.compile(r"\(?\b(?:root )?cause\s*[:=]\s*([^.;)\n]{1,200})\)?", re.IGNORECASE)
_YAML_ITEM = re.compile(r"(\s*)-\s+(?:\S.*)?$|(\s*)-\s*$")
_NOT_AN_ENTRY = None


def field_of(heading: str) -> str | None:
    """The field that a heading means; None for one that we do not use."""
    plain = re.sub(r"\([^()]*\)", "", heading[:HEADING_CHARS_MAX].lower())
    return _FIELD_OF.get(re.sub(r"[^a-z]", "", plain))


def shape_of(text: str) -> str | None:
    """`table`, `yaml`, `csv`, `block` or `list`: how the entries of this log are written; None when there are none."""
    lines = [line for line in text.splitlines()[:LINES_LOOKED_AT] if line.strip()]
    for line, below in pairwise(lines):
        if "|" in line and RULE.fullmatch(below.strip()) and is_header(cells(line)):
            return "table"
    for line in lines:
        key = re.match(r"\s*-\s+([A-Za-z ]{2,20})\s*:(?:\s|$)", line)
        if key is not None and field_of(key[1]) in {"start", "date", "what"}:
            return "yaml"
    if lines and is_header(re.split(r"[,;\t]", lines[0])):
        return "csv"
    if any(_is_start(line) for line in lines):
        return "block"
    bullets = [match for line in lines if (match := BULLET.fullmatch(line)) is not None]
    return "list" if any(_RANGE.match(plain(match[2])) for match in bullets) else None


def has_other_shapes(text: str) -> bool:
    """True when a log that begins as CSV goes on as something else."""
    header, *lines = [line for line in text.splitlines()[:LINES_LOOKED_AT] if line.strip()]
    delimiter = next((sign for sign in ",;\t" if sign in header), ",")
    if '"' not in text and any(delimiter not in line for line in lines):
        return True
    return any(
        line.startswith(("|", "#"))
        or _is_start(line)
        or ((bullet := BULLET.fullmatch(line)) is not None and _RANGE.match(plain(bullet[2])))
        for line in lines
    )


def _is_start(line: str) -> bool:
    """True for `start: 2026-11-02 03:14` on a line of its own."""
    key = KEY.fullmatch(line)
    return (
        key is not None
        and field_of(key[1]) == "start"
        and _RANGE.match(plain(key[2] or "")) is not None
    )


def is_header(cells: Sequence[str]) -> bool:
    """True for headings that mean a start, and a what or a cause."""
    fields = {field_of(cell) for cell in cells}
    return bool(fields & {"start", "date"}) and bool(fields & {"what", "cause"})


def entry_of(header: Sequence[str | None], cells: Sequence[str]) -> dict[str, str]:
    """Fields from cells; two columns with one meaning are joined."""
    entry: dict[str, str] = {}
    for field, cell in zip(header, cells, strict=False):
        if field is not None and cell.strip():
            entry[field] = f"{entry[field]}; {cell.strip()}" if field in entry else cell.strip()
    return entry


# --- CSV ----------------------------------------------------------------------------------------------


def csv_entries(lines: Iterable[Line], delimiter: str) -> Iterator[Item]:
    """Each row of a log that is CSV throughout, also over several lines."""
    header: list[str | None] | None = None
    for record in read_records(lines, delimiter=delimiter):
        value: Any = None
        if record.problem is not None:
            value = Broken(record.problem)
        elif header is None:
            header = [field_of(name) for name in record.fields]
        elif len(record.fields) < len(header) or any(
            f.strip() for f in record.fields[len(header) :]
        ):
            value = Broken("a row with more or fewer fields than the header")
        else:
            value = entry_of(header, record.fields)
        yield Item(record.number, record.raw, value)


# --- Markdown -----------------------------------------------------------------------------------------


def has_room(lines: list[Line]) -> bool:
    """True while an entry may have one more line."""
    return len(lines) < CHUNK_LINES_MAX and (
        len(lines) < 2 or sum(len(line.raw) for line in lines) < CHUNK_BYTES_MAX
    )


def row_entry(header: list[str | None], cells: list[str]) -> dict[str, str] | Broken | None:
    """The entry of a table's row; None in a table that is of something else."""
    if len(cells) != len(header):
        return Broken("a row with more or fewer cells than its table")
    if "start" not in header and "date" not in header:
        return _NOT_AN_ENTRY
    return entry_of(header, cells) or _NOT_AN_ENTRY


def cells(text: str) -> list[str]:
    r"""The cells of a table row; `\|` is a character of its cell."""
    inner = text.strip().removeprefix("|").removesuffix("|")
    return [plain(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", inner)]


def text_entry(text: str) -> dict[str, str] | Broken | None:
    """The entry in `2026-11-02 03:14 - 05:00: what (cause: why)`; None for a text that does not begin with a time."""
    found = _RANGE.match(text)
    if found is None:
        return None
    if re.search(rf"{_CLOCK}-\d\d:\d\d$", found["start"]):
        return Broken("a dash that may be a zone or a range: write spaces around it")
    entry = {"start": found["start"], "what": found["what"]}
    length = _LENGTH.match(found["what"])
    if length is not None and not found["stop"]:
        entry |= {"duration": length[1], "what": found["what"][length.end() :]}
    if found["stop"]:
        entry["stop"] = found["stop"]
    cause = _CAUSE.search(found["what"])
    if cause is not None:
        entry["cause"] = cause[1].strip()
    return {key: value for key, value in entry.items() if value}


def plain(text: str) -> str:
    """Without the marks of bold and code."""
    return re.sub(r"\*\*|__|`", "", text).strip()


# --- blocks of `key: value` ---------------------------------------------------------------------------


def block_fields(lines: Sequence[Line]) -> set[str]:
    """The fields that the keys of these lines mean."""
    keys = (KEY.fullmatch(line.text) for line in lines)
    return {field for key in keys if key is not None and (field := field_of(key[1])) is not None}


def block_value(lines: Sequence[Line], field: str) -> str:
    """The value under a key of this meaning; empty without one."""
    keys = (KEY.fullmatch(line.text) for line in lines)
    return next((key[2] or "" for key in keys if key is not None and field_of(key[1]) == field), "")


def block_entry(lines: list[Line], heading: str) -> Item:
    """The entry of `key: value` lines; None without a start or a date."""
    pairs = [match.groups() for line in lines if (match := KEY.fullmatch(line.text)) is not None]
    entry = entry_of(
        [field_of(key) for key, _ in pairs], [plain(value or "") for _, value in pairs]
    )
    raw = b"\n".join(line.raw for line in lines)
    if not {"start", "date"} & entry.keys():
        return Item(lines[0].number, raw, _NOT_AN_ENTRY)
    if heading:
        entry.setdefault("what", heading)
    return Item(lines[0].number, raw, entry)


# --- YAML ---------------------------------------------------------------------------------------------


def yaml_entry(lines: list[Line], indent: int) -> Item:
    """The entry of one item of a YAML list, read as a document of its own."""
    from lastgood.contract.yaml_reader import parse_document

    first = lines[0]
    raw = b"\n".join(line.raw for line in lines)
    text = "\n".join(
        line.text[indent:] if not line.text[:indent].strip() else line.text for line in lines
    )
    document = parse_document(text.encode("utf-8", "replace"), source="entry")
    if document.problems:
        problem = document.problems[0]
        return Item(
            first.number, raw, Broken(f"not YAML: found {problem.found}, needs {problem.needs}")
        )
    value = document.value
    element = value[0] if isinstance(value, list) and len(value) == 1 else None
    if not isinstance(element, dict):
        return Item(first.number, raw, _NOT_AN_ENTRY)
    keys = [field_of(str(key)) for key in element]
    return Item(first.number, raw, entry_of(keys, [_scalar(item) for item in element.values()]))


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(_scalar(item) for item in value)
    return str(value) if isinstance(value, str | int | float) else ""
