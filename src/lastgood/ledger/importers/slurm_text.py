"""What Slurm's text outputs share: rows with a delimiter inside a field, host lists, TRES and GRES strings.

`sacct -P` writes fields as they are: a job name may hold the delimiter, a submit line may hold a line break. Such a row
is put together again when only one reading of it fits the columns, and refused when none or several do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lastgood.ledger.importers.json_scan import Broken, Item
from lastgood.ledger.importers.source import Line

NO_COUNT = "a count of accelerators that cannot be: the row is kept without it, and its exposure is unknown"
DELIMITERS = ("\x1f", "|", "\t", ";", ",")
"""In the order of how safe they are; the manual's own is `|`."""
ROW_LINES_MAX = 64
"""A row that spans more lines is broken."""
SURPLUS_MAX = 200
"""Delimiters that a field of free text may hold."""
HOSTS_MAX = 100_000
"""A host list that names more is refused: nobody has such a cluster, and a range can be written in ten bytes."""

BRACKETS_MAX = 8
TEXT_MAX = 65_536
"""Longer host lists and resource strings are refused: a pattern over a megabyte of brackets takes hours."""

_GRES_GPU = re.compile(r"(?:^|,)\s*(?:gres[/:])?gpu(?::([A-Za-z][\w.\-]*))?[:=](-?\d[\w.]*)")
_TRES_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([^,]*)")


class Layout(NamedTuple):
    """The columns of a table."""

    delimiter: str
    columns: tuple[str, ...]

    def split(self, text: str) -> list[str]:
        """The fields of a line. `-p` ends every row with one more delimiter, which is no field."""
        fields = text.split(self.delimiter)
        if len(fields) == len(self.columns) + 1 and not fields[-1]:
            fields.pop()
        return fields


class Table(NamedTuple):
    """How the rows of one output look."""

    header: Callable[[str], Layout | None]
    """The columns when a line is a header."""
    bare: Callable[[str], Layout | None]
    """The columns when a table without a header begins with this line."""
    fits: Callable[[dict[str, str]], bool]
    """Whether fields look right for their columns."""
    free: frozenset[str]
    """Columns with text of a person, which may hold anything."""

    def has_row(self, text: str, layout: Layout) -> bool:
        """True when a line is a whole row by itself, so that what came before it is not its beginning."""
        if text.count(layout.delimiter) + 1 < len(layout.columns):
            return False
        return any(self.fits(reading) for reading in self._readings(layout.split(text), layout))

    def row(self, line: Line, layout: Layout) -> Item:
        """The row that these fields make in the only way that fits."""
        fields = layout.split(line.text)
        if len(fields) == len(layout.columns):
            return Item(line.number, line.raw, dict(zip(layout.columns, fields, strict=True)))
        readings = [r for r in self._readings(fields, layout) if self.fits(r)]
        typed = [c for c in layout.columns if c not in self.free]
        if readings and all(r[c] == readings[0][c] for r in readings for c in typed):
            return Item(line.number, line.raw, readings[0])
        if readings:
            return _broken(line, "a delimiter inside a field: several readings fit the columns")
        return _broken(line, "the number of fields is not that of the columns")

    def _readings(self, fields: list[str], layout: Layout) -> Iterator[dict[str, str]]:
        """Each way to lay the fields over the columns: surplus ones belong to one column of free text."""
        columns = layout.columns
        surplus = len(fields) - len(columns)
        if surplus == 0:
            yield dict(zip(columns, fields, strict=True))
        elif 0 < surplus <= SURPLUS_MAX:
            for at, column in enumerate(columns):
                if column in self.free:
                    merged = layout.delimiter.join(fields[at : at + surplus + 1])
                    laid = [*fields[:at], merged, *fields[at + surplus + 1 :]]
                    yield dict(zip(columns, laid, strict=True))


def header_of(text: str, known: frozenset[str], *, must: str) -> Layout | None:
    """The columns when this line is a header: it names the column `must`, and most of its fields are known ones."""
    if must not in text.lower():
        return None  # asked for every line: most are told apart here
    for delimiter in DELIMITERS:
        fields = [field.strip() for field in text.split(delimiter)]
        if fields and not fields[-1]:
            fields.pop()
        lower = [field.lower() for field in fields]
        if len(fields) > 1 and must.lower() in lower:
            hits = sum(field in known for field in lower)
            if hits * 2 >= len(fields):
                return Layout(delimiter, tuple(lower))
    return None


def read_rows(lines: Iterable[Line], table: Table) -> Iterator[Item]:
    """The rows of a table that may begin with a header, have none, or have another one in the middle."""
    layout: Layout | None = None
    held: list[Line] = []
    for line in lines:
        if not held and not line.text.strip():
            continue
        header = table.header(line.text)
        if header is not None or layout is None:
            if held and layout is not None:
                yield _cut(held, layout)
            held, layout = [], header or table.bare(line.text)
            if layout is None:
                yield _broken(line, "no header, and not in the documented order of columns")
            if header is not None or layout is None:
                continue
        if held and table.has_row(line.text, layout):
            yield _cut(held, layout)
            held = []
        held.append(line)
        if sum(part.text.count(layout.delimiter) for part in held) + 1 >= len(layout.columns):
            yield table.row(_joined(held), layout)
            held = []
        elif len(held) >= ROW_LINES_MAX:
            yield _cut(held, layout)
            held = []
    if held and layout is not None:
        yield _cut(held, layout)


def _broken(line: Line, reason: str) -> Item:
    return Item(line.number, line.raw, Broken(reason))


def _cut(held: Sequence[Line], layout: Layout) -> Item:
    found = len(layout.split(_joined(held).text))
    return _broken(_joined(held), f"the row is cut: {found} of {len(layout.columns)} fields")


def _joined(lines: Sequence[Line]) -> Line:
    """Several lines as one."""
    if len(lines) == 1:
        return lines[0]
    return Line(
        number=lines[0].number,
        raw=b"\n".join(line.raw for line in lines),
        text="\n".join(line.text for line in lines),
        is_damaged=any(line.is_damaged for line in lines),
    )


# --- values -------------------------------------------------------------------------------------------


def expand_hosts(text: str, *, limit: int = HOSTS_MAX) -> tuple[str, ...]:
    """The hosts of a Slurm host list such as `gpu-[0001-0003,0007],login1`.

    Raises:
        ValueError: A bracket that is not closed, a range that goes backwards, or more hosts than the limit.
    """
    if len(text) > TEXT_MAX:
        raise ValueError("a host list that is too long")
    hosts: list[str] = []
    for part in _parts(text):
        if part.lower() in {"none assigned", "(null)", "none", "unknown"}:
            continue
        for host in _expand(part, limit):
            hosts.append(host)
            if len(hosts) > limit:
                raise ValueError(f"a host list of more than {limit} hosts")
    return tuple(hosts)


def _parts(text: str) -> Iterator[str]:
    """The pieces between commas outside brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
        if depth not in (0, 1):
            raise ValueError("a host list with unbalanced brackets")
    if depth:
        raise ValueError("a host list with an open bracket")
    if text[begin:].strip():
        yield text[begin:].strip()


def _expand(part: str, limit: int) -> Iterator[str]:
    if part.count("[") > BRACKETS_MAX:
        raise ValueError("a host list with too many brackets")
    before, bracket, rest = part.partition("[")
    if not bracket:
        if part:
            yield part
        return
    inside, _, after = rest.partition("]")
    tails = list(itertools.islice(_expand(after, limit), limit + 1)) or [""]
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        if not dash:
            numbers: Iterable[str] = (low,)
        else:
            first, last = int(low), int(high)
            if last < first or last - first >= limit:
                raise ValueError(f"a host range that cannot be: {piece[:40]}")
            numbers = (str(n).zfill(len(low)) for n in range(first, last + 1))
        for number in numbers:
            for tail in tails:
                yield f"{before}{number}{tail}"


def gpus_of_tres(text: str) -> int | None:
    """Accelerators in a TRES string such as `billing=8,gres/gpu=8,gres/gpu:h100=8`; None when it names none.

    The untyped entry is the sum of the typed ones, so it decides when both are there.
    """
    typed = untyped = None
    if len(text) > TEXT_MAX:
        raise ValueError("a list of resources that is too long")
    for match in _TRES_GPU.finditer(text):
        count = _count(match[2])
        if match[1]:
            typed = (typed or 0) + count
        else:
            untyped = count
    return typed if untyped is None else untyped


def gpus_of_gres(text: str) -> int | None:
    """Accelerators in a GRES string such as `gpu:h100:8(S:0-1),nic:4`; None when it names none."""
    if len(text) > TEXT_MAX:
        raise ValueError("a list of resources that is too long")
    found = [
        _count(match[2]) for match in _GRES_GPU.finditer(re.sub(r"\([^()]{0,200}\)", "", text))
    ]
    return sum(found) if found else None


def _count(text: str) -> int:
    text = text.strip()
    if len(text) > 9 or not (text.isascii() and text.isdigit()):
        raise ValueError(f"an impossible count of accelerators: {text[:40]!r}")
    return int(text)
