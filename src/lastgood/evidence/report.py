"""What a report is: plain data that a machine can store, compare and draw in more than one way.

A builder turns events and a contract into sections; `terminal.py` and `html.py` draw them, `bundle.py`
stores them, `recompute.py` builds them again from the stored ledger and compares leaf by leaf. So nothing
here may depend on the moment of drawing: the one time that a report knows is `as_of_us`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from lastgood.base.canonical import with_hex_floats
from lastgood.base.figures import Figure, FigureKind

REPORT_SCHEMA = "lastgood.report/1"
ADDED = frozenset(("answers",))
"""Fields that came after the first release: left out while empty, so that a bundle from before stays equal."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One report over one run: sections in reading order and the block that lets a stranger repeat it."""

    title: str
    subject: str
    """What it is about, as written in the ledger: the run's name."""
    as_of_us: int
    """Wall time (microseconds UTC) up to which records were read; every value holds as of then."""
    sections: tuple[Section, ...]
    reproduction: Reproduction
    schema: str = REPORT_SCHEMA


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a report; parts nest once, so a workload returns a single section."""

    name: str
    """A short fixed word, used as anchor and as the path of its figures: `stops`."""
    title: str
    lead: str = ""
    """One or two sentences that say how to read what follows."""
    headline: Headline | None = None
    answers: tuple[Words, ...] = ()
    """Questions that every reader has, as titles, with their answers: they stand at the top of the page."""
    is_injected: bool = False
    """True when the failures in it were caused on purpose: they are never field incidence."""
    figures: tuple[FigureRow, ...] = ()
    words: tuple[Words, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    cards: tuple[IncidentCard, ...] = ()
    notes: tuple[Note, ...] = ()
    parts: tuple[Section, ...] = ()


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in one sentence, and the checks that it rests on."""

    state: str
    """`held`, `not_held`, `unknown` or `nothing` (no incident to judge); unknown is never held."""
    sentence: str
    checks: tuple[Check, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its answer: `held`, `not_held` or `unknown`."""

    question: str
    state: str
    detail: str


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A number that stands by itself, with the words a reader needs beside it."""

    label: str
    figure: Figure
    note: str = ""
    is_key: bool = False
    """True for the few numbers that stand at the top of the page."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences under a small title, such as one part of a contract."""

    title: str
    sentences: tuple[str, ...]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a column, with the unit of what stands below it."""

    title: str
    unit: str = ""
    """Printed in the header; the cells then carry the bare value."""
    is_number: bool = True


Cell = Figure | str | None
"""A number with its provenance, words, or nothing to say here (drawn as a dash)."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells under headers that carry the units. The first column names the row."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    is_folded: bool = False
    """True for a table that few readers want: the page folds it, paper and terminal show it."""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What a chart draws, of one kind throughout; printed as a table beside the chart."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    """Text, integers, floats or None, one per column."""
    kind: FigureKind


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart by its form and its data; `charts.py` turns it into a Vega-Lite spec."""

    name: str
    title: str
    form: str
    """`strip` (state, begin, end), `waterfall` (label, amount, role) or `line` (x, y per series)."""
    alt: str
    """What the picture shows, in words, for those who cannot see it."""
    data: Data
    caption: str = ""
    marks: tuple[Mark, ...] = ()


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered instant on a chart's time axis, in the axis unit: where an incident began."""

    at: float
    label: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One point of an incident's timeline; a time of None means that no record tells."""

    name: str
    at_us: int | None
    since_onset_us: int | None
    detail: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The check that closed an incident, as the ledger holds it."""

    test: str
    result: str
    evidence: str


class IncidentCard(msgspec.Struct, frozen=True, kw_only=True):
    """One incident from onset to close, with what verified it."""

    number: int
    """Counts from 1 in order of onset; the same number stands on the wall-time strip."""
    id: str
    title: str
    is_injected: bool
    facts: tuple[tuple[str, str], ...]
    """Class, symptom, cause, ranks and so on: label and words."""
    moments: tuple[Moment, ...]
    figures: tuple[FigureRow, ...]
    verification: Verification | None
    outcome: str
    evidence: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence beside the numbers: `info`, `missing` (not declared, not recorded) or `warning`."""

    text: str
    level: str = "info"


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """What a stranger needs to get the same numbers: the ledger's root, the version, the command."""

    ledger: str
    root: str
    """Root of the Merkle tree over the ledger, hex."""
    size: int
    """Events under that root."""
    origin: str
    version: str
    command: str


def plain(report: Report) -> dict[str, Any]:
    """The report as dicts, lists, strings and numbers; floats stay floats."""
    return _plain(report)


def canonical_plain(report: Report) -> object:
    """The same with every float as a hex string: the form that can be hashed and stored."""
    return with_hex_floats(plain(report))


class Named(NamedTuple):
    """A figure, where it stands in its report, and what a reader sees beside it."""

    path: str
    """Such as `training/stops/classes/1/1`: section, part, table, row, column."""
    label: str
    """Such as `fail-stop, Count`."""
    figure: Figure
    run: str | None = None
    """The run that the report is about; None for the fleet."""


def figures_in(report: Report) -> list[tuple[str, Figure]]:
    """Every figure of a report with its path (`training/stops/classes/3/1`), in reading order."""
    return [(found.path, found.figure) for found in named_figures(report)]


def named_figures(report: Report) -> list[Named]:
    """Every figure of a report with its path and its label, in reading order."""
    found: list[Named] = []
    for section in report.sections:
        found.extend(_figures_of_section(section, section.name))
    return found


def _figures_of_section(section: Section, path: str) -> list[Named]:
    found = [Named(f"{path}/{row.figure.name}", row.label, row.figure) for row in section.figures]
    for table in section.tables:
        for i, row in enumerate(table.rows):
            head = row[0] if row and isinstance(row[0], str) else str(i + 1)
            found += [
                Named(f"{path}/{table.name}/{i}/{j}", f"{head}, {table.columns[j].title}", c)
                for j, c in enumerate(row)
                if isinstance(c, Figure)
            ]
    for card in section.cards:
        place = f"{path}/incident-{card.number}"
        found += [
            Named(f"{place}/{row.figure.name}", f"incident {card.number}, {row.label}", row.figure)
            for row in card.figures
        ]
    for part in section.parts:
        found.extend(_figures_of_section(part, f"{path}/{part.name}"))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        names = (n for n in value.__struct_fields__ if n not in ADDED or getattr(value, n))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # a StrEnum member becomes its plain text
    return value
