"""Remarks in the training section: what was noted while nothing had to be done, such as a rank that does not end.

What another part tells is left out here: what belongs to an incident, numbers that looked wrong, the noise of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.incident_part import ranks_text
from lastgood.evidence.report import Cell, Column, Note, Section, Table
from lastgood.evidence.wording import instant_text
from lastgood.ledger.event import Event, time_of
from lastgood.training.report.checkpoints import LATE
from lastgood.training.report.integrity import ALERTS
from lastgood.training.report.steps import of_run

_TOLD_ELSEWHERE: Final = ("noise", "twin", "drill", "injected", "warning")
"""Marks of annotations that say something to another part, or to a person who starts a run."""
_UNTOLD: Final = ("text", "evidence", "stack_groups", "dumped")
_INSTANT_US_MIN: Final = 10**15
"""A number of microseconds beyond thirty years is a moment and no duration."""


def remarks_section(events: Sequence[Event], run: str) -> tuple[Section, ...]:
    """Every remark in order of time; nothing where there is none."""
    remarks = remarks_of(events, run)
    if not remarks:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (
            instant_text(time_of(event)),
            ranks_text(event.ranks) if event.ranks else None,
            said(event),
            _details(event),
        )
        for event in remarks
    ]
    columns = tuple(Column(title=t, is_number=False) for t in ("When", "Ranks", "Said", "More"))
    return (
        Section(
            name="remarks",
            title="Remarks",
            lead="What was noted while the run went on, and for which nothing was restarted.",
            tables=(Table(name="remarks", title="Remarks", columns=columns, rows=tuple(rows)),),
            notes=_first(remarks),
        ),
    )


def remarks_of(events: Sequence[Event], run: str) -> list[Event]:
    """The remarks of a run that no other part of its report tells."""
    return [e for e in of_run(events, run, EventKind.ANNOTATION) if _is_remark(e)]


def said(event: Event) -> str:
    """The remark, with what it rests on."""
    found = event.body.get("evidence")
    evidence = "; ".join(map(str, found)) if isinstance(found, list) else ""
    return f"{event.body['text']}{': ' if evidence else ''}{evidence}"


def _is_remark(event: Event) -> bool:
    body = event.body
    is_elsewhere = event.incident is not None or event.symptom in set(ALERTS)
    is_elsewhere = is_elsewhere or body.get("text") == LATE
    return isinstance(body.get("text"), str) and not (
        is_elsewhere or any(mark in body for mark in _TOLD_ELSEWHERE)
    )


def _details(event: Event) -> str | None:
    """The other fields that are words or numbers."""
    told = [
        f"{key.removesuffix('_us').replace('_', ' ')} {_value_text(key, value)}"
        for key, value in event.body.items()
        if key not in _UNTOLD and isinstance(value, (str, int)) and value != ""
    ]
    return "; ".join(told) or None


def _value_text(key: str, value: str | int) -> str:
    if not key.endswith("_us") or not isinstance(value, int):
        return str(value)
    return instant_text(value) if value > _INSTANT_US_MIN else format_duration(value)


def _first(remarks: Sequence[Event]) -> tuple[Note, ...]:
    """What the first screen says: of the remarks on ranks the one that has their stacks, else the newest."""
    on_ranks = [event for event in remarks if event.ranks]
    if not on_ranks:
        return ()
    shown = max(on_ranks, key=lambda e: (bool(e.body.get("stack_groups")), time_of(e)))
    more = len(remarks) - 1
    rest = f" ({more} more remark{'s' if more > 1 else ''}: --full)" if more else ""
    return (Note(level="warning", text=f"Remark: {said(shown)}{rest}."),)
