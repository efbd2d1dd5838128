"""A column map proposed from the first rows of a table, with what it is unsure of.

Nothing is imported by a guess: a person reads the proposal, mends it and gives it back with `--map`. Every line that
rests on a name alone, or on values that do not all fit, says so.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lastgood.contract.yaml_reader import shorten
from lastgood.ledger.importers.cause_words import class_of, find_cause
from lastgood.ledger.importers.handkept_entries import shape_of
from lastgood.ledger.importers.people_times import (
    TWO_DAYS,
    is_two_days,
    order_of,
    parse_people_time,
)
from lastgood.ledger.importers.source import Source, json_items
from lastgood.ledger.importers.table import preset_of
from lastgood.ledger.importers.table_map import load_preset_text
from lastgood.ledger.importers.table_rows import read_records, sniff_delimiter
from lastgood.ledger.importers.times import RowProblem, Times

SAMPLE_ROWS_MAX = 300
TIMES_LOOKED_AT = 60
WORDS_MAX = 40
"""Distinct words of a column that are worth a list of meanings."""
WORD_CHARS_MAX = 200
"""A key of YAML ends at 1,024 characters, however it is quoted; nobody writes a meaning beside a longer text than this."""

_NAMES: dict[str, tuple[str, ...]] = {
    "start": ("start", "starttime", "begin", "began", "from", "onset", "opened", "startsat", "startedat", "startdate",
              "downsince", "faultstart", "beginning", "started"),
    "stop": ("stop", "end", "endtime", "finish", "until", "to", "resolved", "closed", "endsat", "endedat", "enddate",
             "faultend", "stoptime", "restored", "fixed", "recovered", "ended", "finished"),
    "time": ("time", "timestamp", "ts", "date", "datetime", "when", "eventtime", "occurred", "occurredat", "createdat"),
    "duration_s": ("duration", "durations", "elapsed", "elapseds", "elapsedraw", "seconds", "durationseconds"),
    "host": ("host", "hostname", "node", "nodename", "nodeid", "server", "machine", "machineid", "instance", "ip"),
    "device": ("gpu", "gpuid", "gpuindex", "device", "deviceid", "pci", "pcibus", "busid", "uuid"),
    "rack": ("rack", "rackid", "cabinet"),
    "switch": ("switch", "switchid", "leaf", "tor"),
    "devices": ("gpunum", "gpus", "ngpus", "numgpus", "gpucount", "devices", "devicecount", "ngpu", "numgpu"),
    "id": ("id", "jobid", "jobidraw", "incidentid", "ticket", "ticketid", "eventid", "caseid", "uid"),
    "state": ("state", "status", "jobstate"),
    "exit_code": ("exitcode", "rc", "returncode"),
    "cause": ("cause", "rootcause", "component", "category", "reason", "faulttype", "errortype", "failuretype"),
    "label": ("label", "type", "class", "level", "kind", "severity"),
    "text": ("text", "message", "description", "desc", "what", "summary", "remark", "remarks", "note", "notes",
             "comment", "details"),
}  # fmt: skip
_TIMES = frozenset(("start", "stop", "time"))
_NUMBERS = frozenset(("duration_s", "devices", "exit_code"))
_MISSING = frozenset(("", "na", "n/a", "none", "null", "nan", "nat", "-", "unknown"))
_ZONED = re.compile(r"(Z|UTC|[+-]\d\d:?\d\d)$|^\d{10,19}(\.\d+)?$")
_COUNTED = frozenset(("num", "count", "number", "total", "time", "seconds"))
"""Words of a name that make it a count or a duration, whatever else is in it."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A proposed map, as the YAML that `--map` takes."""

    text: str
    unsure: tuple[str, ...]
    """What a person has to look at, one sentence each."""
    rows_seen: int


@dataclass(slots=True)
class _Column:
    name: str
    values: list[str]
    missing_count: int

    @property
    def time_share(self) -> float:
        """Share of its first values that are times."""
        looked = self.values[:TIMES_LOOKED_AT]
        return sum(map(_is_time, looked)) / len(looked) if looked else 0.0

    @property
    def number_share(self) -> float:
        return _share(self.values, _NUMBER)


@dataclass(frozen=True, slots=True)
class _Choice:
    column: str
    doubt: str = ""


def guess_file(path: Path) -> Guess:
    """A map for the table in this file; `-` is standard input.

    Raises:
        BadInput: The file cannot be read.
    """
    if str(path) == "-":
        return guess_map(Source("-", stream=sys.stdin.buffer))
    with closing(Source(path.name, path=path)) as source:
        return guess_map(source)


def guess_map(source: Source) -> Guess:
    """A map for this table, from its first rows and the names of its columns."""
    preset = preset_of(source.head)
    if preset is not None:
        text = load_preset_text(preset)
        return Guess(
            text=text,
            unsure=(
                f"the columns are those of the preset {preset}: --map {preset} does the same as this",
            ),
            rows_seen=0,
        )
    head = source.head.lstrip()
    is_json = head[:1] in {b"[", b"{"}
    text = head.decode("utf-8", "replace")
    delimiter = "," if is_json else sniff_delimiter(text)
    found = _json_rows(source) if is_json else _csv_rows(source, delimiter)
    rows = list(itertools.islice(found, SAMPLE_ROWS_MAX))
    columns = _columns(rows)
    guess = _write(
        _choose(columns), columns, rows, rest=found, is_json=is_json, delimiter=delimiter
    )
    unsure = [*guess.unsure, *_lists(rows)]
    if not is_json and shape_of(text) == "csv":
        unsure.append(
            "it may be a hand-kept log, which needs no map: lastgood import handkept FILE"
        )
    return replace(guess, unsure=tuple(unsure))


def _lists(rows: list[Mapping[str, Any]]) -> list[str]:
    """Lists of objects inside the rows, which a map can go down into."""
    names = {
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    return [
        f"{shorten(name)} holds a list: write each: {shorten(name)} for one event per element"
        for name in sorted(names)
    ]


def _json_rows(source: Source) -> Iterator[Mapping[str, Any]]:
    for item in json_items(source):
        if isinstance(item.value, dict):
            yield item.value


def _csv_rows(source: Source, delimiter: str) -> Iterator[Mapping[str, Any]]:
    header: tuple[str, ...] = ()
    for record in read_records(source.lines(), delimiter=delimiter):
        if record.problem:
            continue
        if not header:
            header = tuple(name.strip() for name in record.fields)
            continue
        yield dict(zip(header, record.fields, strict=False))


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for row in rows:
        for name, value in _flat(row):
            column = columns.setdefault(name, _Column(name, [], 0))
            text = str(value).strip()
            if text.lower() in _MISSING:
                column.missing_count += 1
            else:
                column.values.append(text)
    return columns


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and before.count(".") < 2:
            yield from _flat(value, f"{before}{key}.")
        elif not isinstance(value, list):
            yield f"{before}{key}", value


def _choose(columns: dict[str, _Column]) -> dict[str, _Choice]:
    chosen: dict[str, _Choice] = {}
    taken: set[str] = set()
    for field, names in _NAMES.items():
        ranked = sorted(
            (score, name)
            for name, column in columns.items()
            if name not in taken and (score := _score(field, names, column)) > 0
        )
        if not ranked:
            continue
        best = ranked[-1][1]
        others = [name for score, name in ranked[:-1] if score >= ranked[-1][0] - 20]
        chosen[field] = _Choice(best, _doubt(field, names, columns[best], others))
        taken.add(best)
    return chosen


def _score(field: str, names: tuple[str, ...], column: _Column) -> int:
    """How well a column fits a field: its name first, then what its values look like."""
    name, words = _plain(column.name), re.findall(r"[a-z]+", _snake(column.name))
    if name in names:
        score = 100 - names.index(name)
    elif any(word in names for word in words):
        score = 50
    else:
        return 0
    if field in _TIMES:
        return score if column.time_share >= 0.5 or not column.values else 0
    if field in _NUMBERS:
        return score if column.number_share >= 0.5 else 0
    if _COUNTED & set(words) and field not in _NUMBERS:
        return 0
    # A column of times is a time, whatever word is in its name.
    return 0 if column.values and column.time_share > 0.9 and field != "id" else score


def _doubt(field: str, names: tuple[str, ...], column: _Column, others: list[str]) -> str:
    doubts = []
    if _plain(column.name) not in names:
        doubts.append("only part of the name fits")
    if others:
        doubts.append("it could also be " + ", ".join(shorten(name) for name in others))
    if field in _TIMES and column.time_share < 1 and column.values:
        doubts.append(f"{1 - column.time_share:.0%} of its values are no time that can be read")
    seen = len(column.values) + column.missing_count
    if column.missing_count and field in {"start", "time", "host", "id"}:
        doubts.append(f"{column.missing_count} of {seen} rows have none")
    if field == "id" and len(set(column.values)) < len(column.values):
        doubts.append("its values repeat, so rows with the same one become one event")
    if field in {"label", "text"} and not doubts:
        return ""
    return "; ".join(doubts)


# --- writing ------------------------------------------------------------------------------------------


def _write(
    chosen: dict[str, _Choice],
    columns: dict[str, _Column],
    rows: list[Mapping[str, Any]],
    *,
    rest: Iterator[Mapping[str, Any]],
    is_json: bool,
    delimiter: str,
) -> Guess:
    unsure: list[str] = []
    kind = _kind(chosen, unsure)
    chosen = {name: choice for name, choice in chosen.items() if _is_used(name, kind)}
    if "cause" in chosen and len(_distinct(columns[chosen["cause"].column])) > WORDS_MAX:
        free = chosen.pop("cause")
        chosen.setdefault(
            "text", _Choice(free.column, "too many different words to be a list of causes")
        )
    lines = [f"rows: {kind}", f"format: {'json' if is_json else 'csv'}"]
    if not is_json:
        lines.append(f"delimiter: {_quoted(delimiter)}")
    times = [columns[c.column] for name, c in chosen.items() if name in _TIMES]
    if any(not _ZONED.search(value) for column in times for value in column.values):
        lines.append(
            "# zone: Europe/Berlin   # unsure: the times name no zone; write the one they were written in"
        )
        unsure.append("the times name no zone; write zone, or give --zone")
    lines += _dates(times, rest, unsure)
    lines.append("columns:")
    for name, choice in chosen.items():
        doubt = f"   # unsure: {choice.doubt}" if choice.doubt else ""
        lines.append(f"  {name}: {_quoted(choice.column)}{doubt}")
        if choice.doubt:
            unsure.append(f"{name} is {shorten(choice.column)}: {choice.doubt}")
    lines += _words(kind, chosen, columns, unsure)
    lines += _left_over(chosen, columns)
    if not rows:
        unsure.append("no row could be read")
    return Guess(text="\n".join(lines) + "\n", unsure=tuple(unsure), rows_seen=len(rows))


def _kind(chosen: dict[str, _Choice], unsure: list[str]) -> str:
    if "start" in chosen and "state" in chosen and ({"id", "devices"} & chosen.keys()):
        if "id" not in chosen:
            unsure.append("no column looks like the name of a job: write id by hand")
        return "job"
    if "start" in chosen:
        return "fault"
    if "time" not in chosen:
        unsure.append("no column looks like a time: write start (and stop) or time by hand")
    return "signal"


def _is_used(name: str, kind: str) -> bool:
    if name == "time":
        return kind == "signal"
    if name in {"start", "stop", "duration_s"}:
        return kind != "signal"
    return name not in {"state", "exit_code"} or kind == "job"


def _words(
    kind: str, chosen: dict[str, _Choice], columns: dict[str, _Column], unsure: list[str]
) -> list[str]:
    """What the words of the file may mean: class from the state of jobs, cause from the words for parts."""
    if kind == "job":
        return _state_words(columns[chosen["state"].column], unsure)
    classes: dict[str, str] = {}
    lines: list[str] = []
    if "cause" in chosen:
        column = columns[chosen["cause"].column]
        words = _distinct(column)
        classes = {word: found for word in words if (found := class_of(word)) is not None}
        if classes:
            lines += [f"  class: {_quoted(column.name)}", "words:", "  class:"]
            lines += [f"    {_quoted(word)}: {found}   # unsure" for word, found in classes.items()]
            lines.append('    "*": fail_stop   # unsure')
        # A column without a single word has no list of words: an empty one would be no YAML of ours.
        lines += ([] if classes else ["words:"]) + ["  cause:"] if words else []
        for word in words:
            lines.append(f"    {_quoted(word)}: {find_cause(word) or 'unknown'}   # unsure")
        unsure.append("what the words for causes mean is a guess")
    if classes:
        unsure.append("which rows are planned or slow is a guess from their words")
        return [*lines, "defaults: {class: fail_stop}"]
    unsure.append("every row is taken for a failure that stopped something (class fail_stop)")
    return [
        *lines,
        "defaults: {class: fail_stop}   # unsure: planned rows need words.class, or ignore",
    ]


def _state_words(column: _Column, unsure: list[str]) -> list[str]:
    lines = [f"  class: {_quoted(column.name)}", "words:", "  class:"]
    for word in _distinct(column):
        failed = re.search(r"fail|error|timeout|oom|out_of_memory|crash", word.lower())
        lines.append(f"    {_quoted(word)}: {'fail_stop' if failed else 'null'}   # unsure")
    unsure.append("which states are failures is a guess from their words")
    return [*lines, '    "*": null', "defaults: {cause: unknown, cause_status: unknown}"]


def _left_over(chosen: dict[str, _Choice], columns: dict[str, _Column]) -> list[str]:
    used = {choice.column for choice in chosen.values()}
    left = [shorten(name) for name in columns if name not in used]
    return ["# columns that are not used: " + ", ".join(left)] if left else []


def _distinct(column: _Column) -> list[str]:
    """The words that are worth a line of a map; a text too long for a key of YAML is none."""
    words = Counter(value for value in column.values if len(value) <= WORD_CHARS_MAX)
    return [word for word, _ in words.most_common(WORDS_MAX + 1)]


def _quoted(text: str) -> str:
    """A YAML scalar on one line, whatever is in it."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.\-]*", text) and text not in {"null", "true", "false"}:
        return text
    escaped = "".join(
        {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n"}.get(char)
        or (char if char.isprintable() else f"\\U{ord(char):08x}")
        for char in text
    )
    return f'"{escaped}"'


def _snake(name: str) -> str:
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _plain(name: str) -> str:
    """`Start Time`, `start_time` and `faults.startTime` are one name."""
    return re.sub(r"[^a-z]", "", name.rpartition(".")[2].lower())


def _is_time(text: str) -> bool:
    """True for a time, of two days too; a small number is a count, and none."""
    try:
        parse_people_time(text, _TIMES_ANYWHERE)
    except RowProblem as problem:
        return problem.reason == TWO_DAYS
    return True


def _dates(
    columns: list[_Column], rest: Iterator[Mapping[str, Any]], unsure: list[str]
) -> list[str]:
    """The order of day and month, when a date can be two days: as the other dates of the whole file decide it."""
    values = [value for column in columns for value in column.values]
    order = order_of("\n".join(values))
    if order is None and not any(map(is_two_days, values)):
        return []
    if order is None:
        names = {column.name for column in columns}
        later = (str(value) for row in rest for name, value in _flat(row) if name in names)
        order = next(filter(None, map(order_of, itertools.chain(values, later))), None)
        if order is not None and any(order_of(value) not in {None, order} for value in values):
            order = None  # the dates contradict each other
    if order is not None:
        return [f"dates: {order}"]
    unsure.append(
        "03/04/2026 can be two days, and no date of the file decides: write dates; such rows are rejected until then"
    )
    return ["# dates: month-first   # unsure: or day-first; write the one that is meant"]


_TIMES_ANYWHERE = Times(zone="UTC", year=2000)


def _share(values: list[str], pattern: re.Pattern[str]) -> float:
    return sum(bool(pattern.fullmatch(v)) for v in values) / len(values) if values else 0.0
