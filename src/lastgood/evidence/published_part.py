"""A published table beside what its own counts give: reported next to recomputed, and an interval on every rate.

Nothing here is ours: counts are *reported*, and arithmetic on reported counts stays reported. Only the interval's ends
rest on an assumption (independent interruptions at a constant rate), and they say so.
"""

from __future__ import annotations

from typing import Final

from lastgood.base.figures import Figure, FigureKind, combine
from lastgood.base.units import US_PER_H
from lastgood.budget.published.facts import PublishedRow, PublishedTable
from lastgood.evidence.report import Check, Column, FigureRow, Headline, Note, Section, Table
from lastgood.ledger.ettr import mean_time_to_interruption

LEVEL: Final = 0.95
POISSON: Final = "independent interruptions at a constant rate"


def published_section(table: PublishedTable) -> Section:
    """The section of one published table: totals, shares as printed and recomputed, rates with intervals."""
    wrong = [row for row in table.rows if not table.agrees(row)]
    return Section(
        name="published",
        title=table.title,
        headline=_headline(table, wrong),
        lead=f"{table.source}. Scope: {table.scope}, up to {table.devices_max:,} devices.",
        figures=_figures(table),
        tables=(_shares(table), _rates(table)),
        notes=_notes(table),
    )


def _headline(table: PublishedTable, wrong: list[PublishedRow]) -> Headline:
    totals = table.totals
    hours = table.window_hours / totals.unexpected
    sentence = (
        f"{totals.all} interruptions in {table.window_hours // 24} days: {totals.planned} planned and "
        f"{totals.unexpected} unexpected, one unexpected every {hours:.2f} h."
    )
    adds = totals.planned + totals.unexpected == totals.all and table.counted == totals.unexpected
    counts = Check(
        question="Do the counts add up?",
        state="held" if adds else "not_held",
        detail=f"{totals.planned} + {totals.unexpected} = {totals.all}, and the rows add to {table.counted}",
    )
    shares = Check(
        question="Do the shares follow?",
        state="not_held" if wrong else "held",
        detail="; ".join(_disagreement(table, row) for row in wrong)
        or "each printed share is its count, rounded",
    )
    return Headline(
        state="not_held" if wrong or not adds else "held",
        sentence=sentence,
        checks=(counts, shares),
    )


def _disagreement(table: PublishedTable, row: PublishedRow) -> str:
    return (
        f"row {row.component}: printed {row.percent} %, but {row.count} of {table.totals.unexpected} is "
        f"{table.percent_of(row.count):.1f} % ({row.percent} % would be {table.count_behind(row)})"
    )


def _figures(table: PublishedTable) -> tuple[FigureRow, ...]:
    """The totals, the mean time, and each share that the text prints beside what the counts give."""
    totals = table.totals
    rows = [
        FigureRow(
            is_key=True, label="Interruptions", figure=_count(table, "interruptions", totals.all)
        ),
        FigureRow(is_key=True, label="Planned", figure=_count(table, "planned", totals.planned)),
        FigureRow(
            is_key=True, label="Unexpected", figure=_count(table, "unexpected", totals.unexpected)
        ),
        FigureRow(
            is_key=True,
            label="Mean time between unexpected",
            figure=_mean_time(table, totals.unexpected),
        ),
        FigureRow(is_key=True, label="Mean time between all", figure=_mean_time(table, totals.all)),
    ]
    for share in table.printed:
        printed = _reported(table, f"{share.name}, reported", float(share.percent), "%")
        count = table.in_category(share.category)
        rows += [
            FigureRow(
                is_key=True,
                label=f"{_capital(share.name)}, reported",
                figure=printed,
                note=f"as printed: what the printed shares of the {share.category} rows add to",
            ),
            FigureRow(
                is_key=True,
                label=f"{_capital(share.name)}, recomputed",
                figure=_share(table, f"{share.name}, recomputed", count),
                note=f"from the counts: {count} of {totals.unexpected} is {table.percent_of(count):.1f} %",
            ),
        ]
    return tuple(rows)


def _shares(table: PublishedTable) -> Table:
    rows = tuple(
        (
            row.component,
            _count(table, row.component, row.count),
            _reported(table, f"{row.component}, printed", float(row.percent), "%"),
            _share(table, f"{row.component}, recomputed", row.count),
            "yes" if table.agrees(row) else "NO",
        )
        for row in table.rows
    )
    columns = (
        Column(title="Component", is_number=False),
        Column(title="Count"),
        Column(title="Printed"),
        Column(title="From count"),
        Column(title="Agrees", is_number=False),
    )
    note = (
        f"The counts add to {table.counted}; the printed shares add to {table.percent_printed_sum:.1f} %. "
        "From count: recomputed and rounded to the printed decimals."
    )
    return Table(name="shares", title="Shares", columns=columns, rows=rows, note=note)


def _rates(table: PublishedTable) -> Table:
    groups = [("all unexpected", table.totals.unexpected)]
    groups += [
        (f"category {name}", table.in_category(name))
        for name in dict.fromkeys(row.category for row in table.rows)
    ]
    groups += [(row.component, row.count) for row in table.rows]
    rows = tuple((name, *_rate_cells(table, name, count)) for name, count in groups)
    columns = (
        Column(title="Group", is_number=False),
        Column(title="Count"),
        Column(title="Mean time", unit="h"),
        Column(title="95 % from", unit="h"),
        Column(title="95 % to", unit="h"),
    )
    note = (
        f"Mean wall time between interruptions of the job; the interval is Garwood's and assumes {POISSON}, "
        "which no real fleet that we know of keeps: read it as the least that is uncertain."
    )
    return Table(
        name="rates", title="Mean time between interruptions", columns=columns, rows=rows, note=note
    )


def _rate_cells(table: PublishedTable, name: str, count: int) -> tuple[Figure, ...]:
    mean = _mean_time(table, count, name=name)
    assert mean.interval, "every group here has at least one event"
    ends = (("low", mean.interval.lo), ("high", mean.interval.hi))
    bounds = (
        combine(
            [_count(table, name, count)],
            lambda _, value=value: value,
            name=f"{name}, {word}",
            unit="us",
            source=mean.interval.method,
            assumptions=[POISSON],
        )
        for word, value in ends
    )
    return _count(table, name, count), mean, *bounds


def _notes(table: PublishedTable) -> tuple[Note, ...]:
    symptoms = [row for row in table.rows if row.symptom]
    notes = [
        Note(
            text="Reported and recomputed stand side by side; which of the two is the slip, only the authors can say."
        ),
        Note(
            text="One operator, one job, one fleet: these are no rates of a component in general."
        ),
    ]
    notes += [
        Note(text=f"{row.component} is a symptom ({row.symptom}); its cause is unknown.")
        for row in symptoms
    ]
    return tuple(notes)


def _reported(table: PublishedTable, name: str, value: float, unit: str) -> Figure:
    return Figure(name=name, value=value, unit=unit, kind=FigureKind.REPORTED, source=table.source)


def _count(table: PublishedTable, name: str, count: int) -> Figure:
    return _reported(table, f"count of {name}", count, "")


def _share(table: PublishedTable, name: str, count: int) -> Figure:
    """A share from two reported counts, to the decimals that the source prints: still reported, now recomputed."""
    parts = [_count(table, name, count), _count(table, "unexpected", table.totals.unexpected)]
    return combine(
        parts,
        lambda part, whole: round(100.0 * part / whole, 1),
        name=name,
        unit="%",
        source=f"recomputed from the counts of {table.source}",
        n=table.totals.unexpected,
    )


def _mean_time(table: PublishedTable, count: int, *, name: str = "") -> Figure:
    return mean_time_to_interruption(
        count,
        table.window_hours * US_PER_H,
        source=f"window over count, {table.source}" + (f", {name}" if name else ""),
        exposure=f"{table.window_hours:,} h of wall time",
        level=LEVEL,
        kind=FigureKind.REPORTED,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
