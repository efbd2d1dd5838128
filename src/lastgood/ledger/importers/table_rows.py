"""Rows of a CSV file as people make them: quoted line breaks, a byte order mark, any delimiter, broken rows.

Streams: a record is put together from lines, and only as many lines are held as one record may have. A quote that is
never closed costs one row and not the rest of the file.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lastgood.ledger.importers.source import LINE_BYTES_MAX, Line

RECORD_LINES_MAX = 200
"""Lines that one record may have; a quote that is open for longer is a stray one."""
RECORD_BYTES_MAX = 1_048_576
DELIMITERS = (",", ";", "\t", "|")
_SNIFF_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The fields of one record, or what is wrong with it."""

    number: int
    """Line (1-based) on which it begins."""
    raw: bytes
    fields: tuple[str, ...] = ()
    problem: str | None = None
    is_damaged: bool = False


def sniff_delimiter(text: str) -> str:
    """The delimiter that splits the first lines into the same number of fields, most fields first; a comma when none does."""
    lines = [line for line in text.splitlines()[:_SNIFF_LINES] if line.strip()]
    best, best_score = ",", 0.0
    for delimiter in DELIMITERS:
        counts = [len(_split(line, delimiter)[0]) for line in lines]
        if not counts or counts[0] < 2:
            continue
        alike = sum(count == counts[0] for count in counts) / len(counts)
        score = alike * 100 + min(counts[0], 50) / 100
        if score > best_score:
            best, best_score = delimiter, score
    return best


def read_records(
    lines: Iterable[Line], *, delimiter: str, encoding: str | None = None
) -> Iterator[Record]:
    """Each record of the lines. Empty lines between records are no records.

    `encoding` decodes the raw bytes anew, for files that are not UTF-8.
    """
    source = _Pushback(lines, encoding)
    for line in source:
        if not line.text.strip():
            continue
        fields, is_open = _split(line.text, delimiter)
        if not is_open:
            yield Record(
                number=line.number,
                raw=line.raw,
                fields=tuple(fields),
                problem=_CUT if line.is_cut else None,
                is_damaged=line.is_damaged,
            )
            continue
        yield _read_quoted(line, source, delimiter)


_CUT = "the line is longer than one line may be"


def _read_quoted(first: _Text, source: _Pushback, delimiter: str) -> Record:
    """A record that goes on over line breaks inside quotes; a stray quote gives the lines back."""
    taken, bytes_count = [first], len(first.raw)
    for line in source:
        taken.append(line)
        bytes_count += len(line.raw)
        # Only a line with a quote can close the field.
        if '"' in line.text:
            fields, is_open = _split("\n".join(part.text for part in taken), delimiter)
            if not is_open:
                return Record(
                    number=first.number,
                    raw=b"\n".join(part.raw for part in taken),
                    fields=tuple(fields),
                    problem=_CUT if any(part.is_cut for part in taken) else None,
                    is_damaged=any(part.is_damaged for part in taken),
                )
        if len(taken) >= RECORD_LINES_MAX or bytes_count > RECORD_BYTES_MAX:
            break
    source.give_back(taken[1:])
    return Record(number=first.number, raw=first.raw, problem="a quote that is never closed")


def _split(text: str, delimiter: str) -> tuple[list[str], bool]:
    """The fields, and whether a quoted field is still open at the end."""
    if '"' not in text:
        return text.split(delimiter), False
    try:
        (row,) = csv.reader([text], delimiter=delimiter, strict=True)
    except csv.Error as error:
        if "unexpected end" in str(error):
            return [], True
    except ValueError:  # a line break outside quotes: several records in what should be one
        return [], True
    else:
        return row, False
    try:
        rows = list(csv.reader([text], delimiter=delimiter))
    except csv.Error:
        return [], True
    return (rows[0], False) if len(rows) == 1 else ([], True)


@dataclass(frozen=True, slots=True)
class _Text:
    number: int
    raw: bytes
    text: str
    is_damaged: bool
    is_cut: bool


class _Pushback:
    """Lines that can be given back, decoded as the file's owner says, without the byte order mark."""

    def __init__(self, lines: Iterable[Line], encoding: str | None) -> None:
        self._lines = iter(lines)
        self._encoding = encoding
        self._waiting: deque[_Text] = deque()

    def __iter__(self) -> Iterator[_Text]:
        return self

    def __next__(self) -> _Text:
        if self._waiting:
            return self._waiting.popleft()
        line = next(self._lines)
        text, is_damaged = line.text, line.is_damaged
        if self._encoding is not None:
            text = line.raw.decode(self._encoding, "replace")
            is_damaged = "\ufffd" in text
        if line.number == 1:
            text = text.removeprefix("\ufeff")
        return _Text(
            line.number, line.raw, text, is_damaged, is_cut=len(line.raw) >= LINE_BYTES_MAX
        )

    def give_back(self, lines: list[_Text]) -> None:
        self._waiting.extendleft(reversed(lines))
