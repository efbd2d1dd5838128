"""How good the imported records are: what was read, what was refused and why, what is unknown.

The table of an import is kept in the ledger beside the time that the file covers, so that a report months later still
says how many rows were rejected. What an older import did not write down is shown as not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.base.figures import Figure, FigureKind
from lastgood.evidence.rates_answers import counted
from lastgood.evidence.rates_study import FleetStudies, exposure_words
from lastgood.evidence.report import Cell, Column, FigureRow, Note, Section, Table
from lastgood.evidence.wording import instant_text
from lastgood.ledger.event import Event
from lastgood.ledger.life import PROGRESS_FORMATS

FILES_MAX: Final = 20
REASONS_MAX: Final = 12
CODES_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """What one import said about one file."""

    name: str
    format: str
    begin_us: int
    end_us: int
    is_declared: bool
    quality: dict[str, Any] | None
    """The table of its import as plain data; None where it was not kept."""


def imported_files(events: Iterable[Event]) -> list[ImportedFile]:
    """The imported files that can tell of failures, in the order of import; none where all only tell of progress.

    A log of steps holds no failure by its nature: a count of zero from it would be a rate from silence.
    """
    files = files_on_record(events)
    return [] if all(file.format in PROGRESS_FORMATS for file in files) else files


def files_on_record(events: Iterable[Event]) -> list[ImportedFile]:
    """The files that the annotations of a ledger name, in the order in which they were imported."""
    found = []
    for event in events:
        said = event.body.get("coverage")
        if not isinstance(said, dict):
            continue
        begin, end = said.get("begin_us"), said.get("end_us")
        if not isinstance(begin, int) or not isinstance(end, int):
            continue
        locator = event.source.locator if event.source and event.source.locator else ""
        quality = event.body.get("quality")
        found.append(
            ImportedFile(
                name=locator.partition("#")[0] or "not named",
                format=str(said.get("format") or "not named"),
                begin_us=begin,
                end_us=end,
                is_declared=bool(said.get("declared")),
                quality=quality if isinstance(quality, dict) else None,
            )
        )
    return found


def quality_section(studies: FleetStudies, files: Sequence[ImportedFile]) -> Section:
    """The data-quality page: files, layers, unknown."""
    return Section(
        name="data-quality",
        title="How good the records are",
        lead="A number is only as good as its records. What they do not say is counted here and never as good.",
        figures=_figures(studies),
        tables=import_tables(files),
        notes=_notes(studies, files),
    )


def import_tables(files: Sequence[ImportedFile]) -> tuple[Table, ...]:
    """The rows of each file, and why some were rejected if any were."""
    reasons = _reasons_table(files)
    return (_files_table(files), reasons) if reasons.rows else (_files_table(files),)


def quality_gaps(files: Sequence[ImportedFile]) -> tuple[str, ...]:
    """What the import could not take, as answers to *what do we not know*."""
    rejected = sum(_rows(f, "rejected") or 0 for f in files)
    losses: dict[str, int] = {}
    for file in files:
        known = (file.quality or {}).get("known_losses")
        for what, count in known.items() if isinstance(known, dict) else ():
            losses[what] = losses.get(what, 0) + int(count)
    gaps = (
        [f"What {counted(rejected, 'rejected row')} {'says' if rejected == 1 else 'say'}."]
        if rejected
        else []
    )
    gaps += [
        f"{counted(count, 'record')} known to be lost: {what}."
        for what, count in sorted(losses.items())
    ]
    return tuple(gaps)


def _figures(studies: FleetStudies) -> tuple[FigureRow, ...]:
    records, whole = studies.records, studies.all
    unread = sum(records.unread_codes.values())

    def row(label: str, name: str, value: int, note: str = "") -> FigureRow:
        figure = Figure(
            name=name,
            value=value,
            unit="",
            kind=FigureKind.MEASURED,
            source="events of the ledger in effect",
            as_of_us=records.end_us,
        )
        return FigureRow(label=label, figure=figure, note=note)

    rows = [
        row("Events in effect", "events in effect", records.event_count, "layer: events"),
        row(
            "Incidents counted",
            "incidents counted",
            whole.sample.count,
            f"layer: incidents, grouped by {records.rule}",
        ),
        row("Incidents without a known cause", "without cause", whole.sample.unknown_causes or 0),
        row("Events with a code that no table lists", "unlisted codes", unread, _codes(studies)),
        row("Incidents outside the window", "outside", records.outside_count),
        row("Planned stops, not counted", "planned", records.planned_count),
        row("Injected faults, not counted", "injected", records.injected_count),
    ]
    return tuple(rows)


def _codes(studies: FleetStudies) -> str:
    codes = studies.records.unread_codes
    if not codes:
        return ""
    shown = ", ".join(f"{code} ({n:,})" for code, n in list(codes.items())[:CODES_MAX])
    return f"nobody knows what they are: {shown}" + (
        " and others" if len(codes) > CODES_MAX else ""
    )


def _files_table(files: Sequence[ImportedFile]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            file.name,
            file.format,
            f"{instant_text(file.begin_us)[:10]} to {instant_text(file.end_us)[:10]}",
            *(_count(name, _rows(file, name)) for name in _COLUMNS),
        )
        for file in files[:FILES_MAX]
    ]
    if len(files) > 1:
        totals = [sum(_rows(f, name) or 0 for f in files) for name in _COLUMNS]
        rows.append(
            (
                "all files",
                None,
                None,
                *(_count(n, t) for n, t in zip(_COLUMNS, totals, strict=True)),
            )
        )
    columns = (
        Column(title="File", is_number=False),
        Column(title="Format", is_number=False),
        Column(title="Covers", is_number=False),
        Column(title="Read", unit="rows"),
        Column(title="Accepted", unit="rows"),
        Column(title="Ignored", unit="rows"),
        Column(title="Rejected", unit="rows"),
    )
    left_out = len(files) - FILES_MAX
    return Table(
        name="files",
        title="Imported files",
        columns=columns,
        rows=tuple(rows),
        note=f"{left_out:,} more files are in the sum." if left_out > 0 else "",
    )


_COLUMNS: Final = ("read", "accepted", "ignored", "rejected")


def _rows(file: ImportedFile, name: str) -> int | None:
    rows = (file.quality or {}).get("rows")
    value = rows.get(name) if isinstance(rows, dict) else None
    return value if isinstance(value, int) else None


def _count(name: str, value: int | None) -> Figure:
    return Figure(
        name=f"rows {name}",
        value=value,
        unit="rows",
        kind=FigureKind.MEASURED,
        source="table of the import, kept in the ledger",
    )


def _reasons_table(files: Sequence[ImportedFile]) -> Table:
    """Why rows were rejected, with the first place of each reason."""
    found: dict[str, list[Any]] = {}
    for file in files:
        said = (file.quality or {}).get("rejected")
        for item in said if isinstance(said, list) else ():
            if isinstance(item, dict) and isinstance(item.get("count"), int):
                examples = item.get("examples") or [{}]
                own = found.setdefault(str(item.get("reason")), [0, str(examples[0].get("at", ""))])
                own[0] += item["count"]
    order = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))[:REASONS_MAX]
    rows = tuple((reason, _count("rejected", count), at or None) for reason, (count, at) in order)
    columns = (
        Column(title="Rejected because", is_number=False),
        Column(title="Count", unit="rows"),
        Column(title="First at", is_number=False),
    )
    return Table(name="rejected", title="Rejected rows", columns=columns, rows=rows)


def _notes(studies: FleetStudies, files: Sequence[ImportedFile]) -> tuple[Note, ...]:
    from lastgood.evidence.rates_part import window_words

    notes = [
        Note(text=f"Window of observation: {window_words(studies)}."),
        Note(text=f"At risk: {exposure_words(studies.records.exposure)}."),
    ]
    if any(file.quality is None for file in files):
        notes.append(
            Note(
                level="missing",
                text="Some imports did not keep the table of their rows in the ledger.",
            )
        )
    notes += [Note(text=text) for text in dict.fromkeys(_said(files, "notes"))]
    notes += [
        Note(level="warning", text=text) for text in dict.fromkeys(_said(files, "file_problems"))
    ]
    inferred = sum(_number(f, "inferred_times") for f in files)
    corrected = sum(_number(f, "clock_corrections") for f in files)
    if inferred:
        notes.append(Note(text=f"{inferred:,} times lack a zone or a year and are inferred."))
    if corrected:
        notes.append(Note(text=f"{corrected:,} times were corrected for their clock."))
    return tuple(notes)


def _said(files: Sequence[ImportedFile], key: str) -> list[str]:
    lists = ((f.quality or {}).get(key) for f in files)
    return [str(text) for found in lists if isinstance(found, list) for text in found][:REASONS_MAX]


def _number(file: ImportedFile, key: str) -> int:
    value = (file.quality or {}).get(key)
    return value if isinstance(value, int) else 0
