"""Silent corruption that somebody found afterwards and recorded: an incident of the run, though no detector saw it.

Such a verdict takes steps back that had been accepted, so a report that counts only what the detectors saw would call
the run held on the same page on which it counts those steps as lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.evidence.report import Note
from lastgood.evidence.wording import instant_text
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.executions import known_since_us, read_executions
from lastgood.ledger.incident import Incident

FOUND_AFTERWARDS: Final = "found afterwards"
"""The outcome of such an incident: it was closed by no recovery."""
SYMPTOM: Final = "silent corruption"
_KINDS: Final = frozenset(
    (EventKind.RECORD, EventKind.ANNOTATION, EventKind.OBSERVATION, EventKind.CORRECTION)
)


def with_late_verdicts(times: RunTimes, events: Sequence[Event], run: str) -> RunTimes:
    """The run's times with an incident for each verdict of silent corruption that stands outside of any incident."""
    own = [e for e in in_effect(events) if e.run == run and time_of(e) <= times.wall.as_of_us]
    late = [
        e
        for e in own
        if e.kind in _KINDS
        and e.class_ == FailureClass.SDC
        and e.incident is None
        # A remark of a detector says what it saw; a person's record, or a step, is a verdict.
        and (e.kind == EventKind.RECORD or e.first_divergent_step is not None)
    ]
    if not late:
        return times
    found = [_incident(e, own, number) for number, e in enumerate(late, start=1)]
    together = [*times.incidents, *found]
    together.sort(key=lambda i: (i.onset_us or i.opened_us or 0, i.id))
    return replace(times, incidents=tuple(together))


def _incident(verdict: Event, events: Sequence[Event], number: int) -> Incident:
    known_us, step = known_since_us(verdict), verdict.first_divergent_step
    lost, began_us = (None, None) if step is None else _taken_back(verdict, events)
    reason = verdict.body.get("reason") or verdict.body.get("text")
    notes = [f"recorded {instant_text(known_us)}" + (f": {reason}" if reason else "")]
    if step is not None:
        notes.append(f"wrong from step {step:,} on")
    return Incident(
        id=f"{verdict.run}/recorded-{number}",
        run=verdict.run,
        class_=verdict.class_,
        symptom=SYMPTOM,
        domain=verdict.domain,
        ranks=tuple(verdict.ranks),
        onset_us=began_us if began_us is not None else known_us,
        opened_us=known_us,
        detected_us=known_us,
        closed_us=known_us,
        lost_steps=lost,
        first_divergent_step=step,
        outcome=FOUND_AFTERWARDS,
        injected=False,
        notes=tuple(notes),
        event_ids=(verdict.id,),
    )


def _taken_back(verdict: Event, events: Sequence[Event]) -> tuple[int, int | None]:
    """How many steps stood until the verdict took them, and when the first of them began."""
    known_us = known_since_us(verdict)
    before = [e for e in events if known_since_us(e) <= known_us and e is not verdict]
    standing = [
        e
        for e in read_executions(before, known_us).items
        if not e.is_lost and e.step >= (verdict.first_divergent_step or 0)
    ]
    return len(standing), min((e.start_us for e in standing), default=None)


def late_words(incidents: Sequence[Incident]) -> str:
    """What they are, for the middle of a sentence; empty without one."""
    late = [i for i in incidents if i.outcome == FOUND_AFTERWARDS]
    steps = [i.first_divergent_step for i in late if i.first_divergent_step is not None]
    if not late:
        return ""
    return "silent corruption was found afterwards" + (f", from step {min(steps):,} on" if steps else "")  # fmt: skip


def late_notes(incidents: Sequence[Incident]) -> tuple[Note, ...]:
    """What needs a look: accepted work that is accepted no more."""
    found = []
    for i in incidents:
        if i.outcome != FOUND_AFTERWARDS:
            continue
        step, lost = i.first_divergent_step, i.lost_steps
        where = "" if step is None else f" from step {step:,} on"
        counts = (
            "step that had been accepted counts"
            if lost == 1
            else "steps that had been accepted count"
        )
        taken = "" if lost is None else f" {lost:,} {counts} as lost."
        text = f"Silent corruption{where} is on record.{taken} Use no checkpoint and no result from there on."
        found.append(Note(level="warning", text=text))
    return tuple(dict.fromkeys(found))
