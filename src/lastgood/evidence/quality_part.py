"""How good the records are: what is missing, late, contradicted or unknown. Unknown has a number of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lastgood.base.figures import Figure, measured
from lastgood.evidence.report import Column, FigureRow, Note, Section, Table
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect
from lastgood.ledger.walltime import WallState

SOURCE = "events of the ledger"


def quality_section(events: Sequence[Event], times: RunTimes) -> Section:
    """Shares of what is unknown, and the counts behind them."""
    wall = times.wall
    return Section(
        name="quality",
        title="How good the records are",
        lead="A number is only as good as its records. What they do not say is counted here and never as good.",
        figures=_figures(events, times),
        tables=(_kinds(events, wall.as_of_us),),
        notes=_notes(events, times),
    )


def _figures(events: Sequence[Event], times: RunTimes) -> tuple[FigureRow, ...]:
    wall, as_of_us = times.wall, times.wall.as_of_us
    faults = [i for i in times.incidents if not i.is_planned]
    without_cause = sum(not i.cause or i.cause_status == "unknown" for i in faults)
    delays = [
        e.t_recorded_us - e.t_observed_us
        for e in events
        if e.t_recorded_us is not None and e.t_observed_us is not None
    ]

    def row(
        label: str,
        name: str,
        value: float | None,
        unit: str,
        *,
        n: int | None = None,
        note: str = "",
    ) -> FigureRow:
        return FigureRow(
            label=label,
            figure=measured(name, value, unit, source=SOURCE, n=n, as_of_us=as_of_us),
            note=note,
        )

    return (
        row("Unknown time", "unknown time", wall.totals_us[WallState.UNKNOWN], "us"),
        row("Time that rests on a rule", "inferred time", wall.inferred_us, "us"),
        row("Incidents without a known cause", "without cause", without_cause, "", n=len(faults)),
        row("Contradicting records, clamped", "clamped", wall.clamped_count, ""),
        row(
            "Superseded by a correction",
            "superseded",
            len(events) - len(in_effect(events)),
            "",
            n=len(events),
        ),
        row(
            "Without versions",
            "without versions",
            sum(not e.versions for e in events),
            "",
            n=len(events),
        ),
        row(
            "Without a topology",
            "without topology",
            sum(e.topology is None for e in events),
            "",
            n=len(events),
        ),
        row(
            "Longest time from seen to written",
            "longest delay",
            max(delays, default=None),
            "us",
            n=len(delays),
        ),
    )


def _kinds(events: Sequence[Event], as_of_us: int) -> Table:
    """How many events of each kind were read."""
    counts = Counter(event.kind for event in events)

    def count(name: str, value: int) -> Figure:
        return measured(name, value, "", source=SOURCE, as_of_us=as_of_us)

    rows = [(kind, count(kind, number)) for kind, number in sorted(counts.items())]
    rows.append(("all", count("all events", len(events))))
    columns = (Column(title="Kind of event", is_number=False), Column(title="Count"))
    return Table(
        name="kinds", title="Events read", columns=columns, rows=tuple(rows), is_folded=True
    )


def _notes(events: Sequence[Event], times: RunTimes) -> tuple[Note, ...]:
    notes: list[Note] = []
    clocks = {e.clock.id for e in events if e.clock and e.clock.id}
    if len(clocks) > 1:
        notes.append(
            Note(
                text=f"Times come from {len(clocks)} clocks; durations across them carry the offset between them."
            )
        )
    open_count = sum(i.is_open for i in times.incidents)
    if open_count:
        notes.append(
            Note(
                level="warning",
                text=f"{open_count} incident{'s are' if open_count > 1 else ' is'} still open: medians leave {'them' if open_count > 1 else 'it'} out.",
            )
        )
    outside = sum(e.run is None for e in events)
    if outside:
        notes.append(
            Note(
                text=f"{outside} records without a run's name fell into its time (prologs, health checks); they are listed, not counted as incidents."
            )
        )
    return tuple(notes)
