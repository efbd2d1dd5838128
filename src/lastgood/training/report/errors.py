"""Errors in the training section: what the user's code raised, on which ranks and in which step, each with one trace.

Equal errors of several ranks or attempts are one row. An error that a peer's end raised in the group says nothing of
this script and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.base.figures import measured
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.incident_part import ranks_text
from lastgood.evidence.report import Cell, Column, Note, Section, Table
from lastgood.evidence.wording import instant_text
from lastgood.ledger.event import Event, time_of
from lastgood.training.report.steps import of_run
from lastgood.training.trace_place import innermost_place

NAME: Final = "errors"
TITLE: Final = "What the script raised"
TRACES_MAX: Final = 5
LINES_MAX: Final = 40
"""Of a trace the last lines say most."""
_TITLES: Final = ("Error", "Times", "Ranks", "Last seen", "Where", "What")


def errors_section(events: Sequence[Event], run: str, *, as_of_us: int) -> tuple[Section, ...]:
    """The errors in the order of their last time, the newest first; nothing where there is none."""
    groups: dict[tuple[str, str, str], list[Event]] = {}
    for event in errors_of(events, run):
        place = innermost_place(str(event.body["trace"]))
        groups.setdefault((str(event.body["type"]), _first_line(event), place), []).append(event)
    if not groups:
        return ()
    newest = sorted(groups.items(), key=lambda item: time_of(item[1][-1]), reverse=True)
    rows: list[tuple[Cell, ...]] = []
    for number, ((type_name, told, place), same) in enumerate(newest, start=1):
        last = same[-1]
        where = ", ".join(part for part in (str(last.body.get("where", "")), place) if part)
        count = measured(f"error {number} times", len(same), "", source="events of kind observation", as_of_us=as_of_us)  # fmt: skip
        ranks = ranks_text([rank for event in same for rank in event.ranks])
        error = f"{type_name}: {told}" if told else type_name
        rows.append(
            (f"error\u00a0{number}", count, ranks, instant_text(time_of(last)), where, error)
        )
    columns = tuple(Column(title=title, is_number=title == "Times") for title in _TITLES)
    traces = [_trace(number, same[-1]) for number, (_, same) in enumerate(newest, start=1)]
    more = len(traces) - TRACES_MAX
    notes = (
        (Note(text=f"The traces of {more} older ones are in the ledger only."),) if more > 0 else ()
    )
    return (
        Section(
            name=NAME,
            title=TITLE,
            lead="Equal errors of several ranks are one row; the trace is that of the last time.",
            tables=(
                Table(name=NAME, title="Errors", columns=columns, rows=tuple(rows)),
                *traces[:TRACES_MAX],
            ),
            notes=notes,
        ),
    )


def errors_of(events: Sequence[Event], run: str) -> list[Event]:
    """Every error of user code that came with its trace, in order of time."""
    return [
        event
        for event in of_run(events, run, EventKind.OBSERVATION)
        if event.body.get("trace") and "type" in event.body and event.body.get("raised") != "group_error"
    ]  # fmt: skip


def _first_line(event: Event) -> str:
    return next(iter(str(event.body.get("message", "")).splitlines()), "")


def _trace(number: int, event: Event) -> Table:
    lines = str(event.body["trace"]).rstrip().splitlines()
    shown = lines[-LINES_MAX:]
    more = len(lines) - len(shown)
    return Table(
        name=f"trace-{number}",
        title=f"Error {number}: trace of rank {ranks_text(event.ranks)}",
        columns=(Column(title="Line", is_number=False), Column(title="Trace", is_number=False)),
        rows=tuple((str(at), line) for at, line in enumerate(shown, start=more + 1)),
        note=f"{more} lines before these are in the ledger." if more else "",
        is_folded=True,
    )
