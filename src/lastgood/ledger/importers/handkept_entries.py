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

_BULLET = re.compile(r"(\s{0,8})(?:[-*+]|\d{1,4}[.)])\s+(\S.*)")
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
_KEY = re.compile(r"\s{0,8}([A-Za-z][A-Za-z _\-]{0,30}):(?:\s+(\S.*))?\s*")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.+)")
_RULE = re.compile(r"\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)*\|?")
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
        if "|" in line and _RULE.fullmatch(below.strip()) and _is_header(_cells(line)):
            return "table"
    for line in lines:
        key = re.match(r"\s*-\s+([A-Za-z ]{2,20})\s*:(?:\s|$)", line)
        if key is not None and field_of(key[1]) in {"start", "date", "what"}:
            return "yaml"
    if lines and _is_header(re.split(r"[,;\t]", lines[0])):
        return "csv"
    if any(_is_start(line) for line in lines):
        return "block"
    bullets = [match for line in lines if (match := _BULLET.fullmatch(line)) is not None]
    return "list" if any(_RANGE.match(_plain(match[2])) for match in bullets) else None


def _is_start(line: str) -> bool:
    """True for `start: 2026-11-02 03:14` on a line of its own."""
    key = _KEY.fullmatch(line)
    return (
        key is not None
        and field_of(key[1]) == "start"
        and _RANGE.match(_plain(key[2] or "")) is not None
    )


def read_entries(lines: Iterable[Line], shape: str, *, delimiter: str = ",") -> Iterator[Item]:
    """Each entry as a row whose value is a mapping of fields; what is no entry has the value None."""
    if shape == "csv":
        return _csv_entries(lines, delimiter)
    if shape == "block":
        return _block_entries(lines)
    return _yaml_entries(lines) if shape == "yaml" else _markdown_entries(lines)


def _is_header(cells: Sequence[str]) -> bool:
    fields = {field_of(cell) for cell in cells}
    return bool(fields & {"start", "date"}) and bool(fields & {"what", "cause"})


def _entry(header: Sequence[str | None], cells: Sequence[str]) -> dict[str, str]:
    """Fields from cells; two columns with one meaning are joined."""
    entry: dict[str, str] = {}
    for field, cell in zip(header, cells, strict=False):
        if field is not None and cell.strip():
            entry[field] = f"{entry[field]}; {cell.strip()}" if field in entry else cell.strip()
    return entry


# --- CSV ----------------------------------------------------------------------------------------------


def _csv_entries(lines: Iterable[Line], delimiter: str) -> Iterator[Item]:
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
            value = _entry(header, record.fields)
        yield Item(record.number, record.raw, value)


# --- Markdown -----------------------------------------------------------------------------------------


def _markdown_entries(lines: Iterable[Line]) -> Iterator[Item]:
    header: list[str | None] | None = None
    bullet: list[Line] = []
    for line in lines:
        text = line.text.strip()
        is_item = _BULLET.fullmatch(line.text) is not None and "|" not in line.text[:2]
        if bullet and text and not is_item and line.text[:1].isspace() and _has_room(bullet):
            bullet.append(line)
            continue
        if bullet:
            yield _bullet_entry(bullet)
            bullet = []
        if is_item:
            bullet = [line]
        elif text.startswith("|") or (header is not None and "|" in text):
            cells = _cells(text)
            if _RULE.fullmatch(text):
                yield Item(line.number, line.raw, _NOT_AN_ENTRY)
            elif header is None or _is_header(cells):
                header = [field_of(cell) for cell in cells]
                yield Item(line.number, line.raw, _NOT_AN_ENTRY)
            else:
                yield Item(line.number, line.raw, _row_entry(header, cells))
        else:
            header = None
            if text:
                yield Item(line.number, line.raw, _NOT_AN_ENTRY)
    if bullet:
        yield _bullet_entry(bullet)


def _has_room(lines: list[Line]) -> bool:
    return len(lines) < CHUNK_LINES_MAX and (
        len(lines) < 2 or sum(len(line.raw) for line in lines) < CHUNK_BYTES_MAX
    )


def _row_entry(header: list[str | None], cells: list[str]) -> dict[str, str] | Broken | None:
    if len(cells) != len(header):
        return Broken("a row with more or fewer cells than its table")
    if "start" not in header and "date" not in header:
        return _NOT_AN_ENTRY
    return _entry(header, cells) or _NOT_AN_ENTRY


def _cells(text: str) -> list[str]:
    r"""The cells of a table row; `\|` is a character of its cell."""
    inner = text.strip().removeprefix("|").removesuffix("|")
    return [_plain(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", inner)]


def _bullet_entry(lines: list[Line]) -> Item:
    first = lines[0]
    match = _BULLET.fullmatch(first.text)
    assert match is not None, "a bullet was recognised before"
    text = _plain(" ".join([match[2], *(line.text.strip() for line in lines[1:])]))
    raw = b"\n".join(line.raw for line in lines)
    found = _RANGE.match(text)
    if found is None:
        return Item(first.number, raw, _NOT_AN_ENTRY)
    if re.search(rf"{_CLOCK}-\d\d:\d\d$", found["start"]):
        return Item(
            first.number,
            raw,
            Broken("a dash that may be a zone or a range: write spaces around it"),
        )
    entry = {"start": found["start"], "what": found["what"]}
    length = _LENGTH.match(found["what"])
    if length is not None and not found["stop"]:
        entry |= {"duration": length[1], "what": found["what"][length.end() :]}
    if found["stop"]:
        entry["stop"] = found["stop"]
    cause = _CAUSE.search(found["what"])
    if cause is not None:
        entry["cause"] = cause[1].strip()
    return Item(first.number, raw, {key: value for key, value in entry.items() if value})


def _plain(text: str) -> str:
    """Without the marks of bold and code."""
    return re.sub(r"\*\*|__|`", "", text).strip()


# --- blocks of `key: value` ---------------------------------------------------------------------------


def _block_entries(lines: Iterable[Line]) -> Iterator[Item]:
    """Each run of `key: value` lines that has a start; the heading above it says what happened, if nothing else does."""
    heading = ""
    block: list[Line] = []
    for line in lines:
        if _KEY.fullmatch(line.text) is not None and _has_room(block):
            block.append(line)
            continue
        if block:
            yield _block_entry(block, heading)
            block = []
        found = _HEADING.fullmatch(line.text[:1_000])
        if found is not None:
            heading = _plain(re.sub(r"<[^<>]*>", "", found[1]))
        if line.text.strip():
            yield Item(line.number, line.raw, _NOT_AN_ENTRY)
    if block:
        yield _block_entry(block, heading)


def _block_entry(lines: list[Line], heading: str) -> Item:
    pairs = [match.groups() for line in lines if (match := _KEY.fullmatch(line.text)) is not None]
    entry = _entry([field_of(key) for key, _ in pairs], [_plain(value or "") for _, value in pairs])
    raw = b"\n".join(line.raw for line in lines)
    if not {"start", "date"} & entry.keys():
        return Item(lines[0].number, raw, _NOT_AN_ENTRY)
    if heading:
        entry.setdefault("what", heading)
    return Item(lines[0].number, raw, entry)


# --- YAML ---------------------------------------------------------------------------------------------


def _yaml_entries(lines: Iterable[Line]) -> Iterator[Item]:
    """Each element of the list as a document of its own, so that a broken one costs itself only."""
    indent: int | None = None
    chunk: list[Line] = []
    for line in lines:
        match = _YAML_ITEM.match(line.text)
        depth = None if match is None else len(match[1] if match[1] is not None else match[2])
        if depth is not None and (indent is None or depth == indent):
            indent = depth
            if chunk:
                yield _yaml_entry(chunk, indent)
            chunk = [line]
        elif chunk and _has_room(chunk):
            chunk.append(line)
        elif line.text.strip():
            yield Item(line.number, line.raw, _NOT_AN_ENTRY)
    if chunk:
        yield _yaml_entry(chunk, indent or 0)


def _yaml_entry(lines: list[Line], indent: int) -> Item:
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
    return Item(first.number, raw, _entry(keys, [_scalar(item) for item in element.values()]))


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(_scalar(item) for item in value)
    return str(value) if isinstance(value, str | int | float) else ""
