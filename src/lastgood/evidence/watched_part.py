"""Incidents of a job whose script was not changed: seen and named from outside, and never verified.

Such a job is watched (`observe`), or also ended and started again as a whole from its own checkpoints (`act`). Nobody
but the script knows its state, so no restored state can be compared, and a report that called this a broken promise
would be as wrong as one that called it kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from lastgood.evidence.incident_part import Drill, title_of
from lastgood.evidence.late_verdicts import FOUND_AFTERWARDS, late_words
from lastgood.evidence.report import Check, Headline, IncidentCard, Note
from lastgood.evidence.supervisor_deaths import (
    NO_DEATHS,
    SupervisorDeaths,
    deaths_checks,
    deaths_words,
)
from lastgood.evidence.wording import instant_text
from lastgood.ledger.incident import Incident

WATCHED_MODES: Final = ("observe", "act")
"""How `run.start` says that a job was looked at from outside."""
OUTCOMES: Final = {
    "resolved": "went on by itself",
    "ended": "ended with the job",
    "restarted": "was started again from the job's own checkpoints",
    "escalated": "was handed to a person",
}
"""How an incident closes that nobody may verify -> what that means."""
_NOTES: Final = {
    "resolved": "The ranks moved again by themselves.",
    "ended": "The job ended with it.",
    "restarted": "The whole job was ended and started again; what state it came back with is for the job to say.",
    "escalated": "It was handed to a person.",
}
UNCOMPARED: Final = "No state was compared: only a script that calls lastgood.start has one."
_UNTOUCHED: Final = frozenset(("onset", "detect", "diagnose", "close"))
"""Moments that every watched incident has; the others stand only where they are on record."""
_ALWAYS: Final = frozenset(("detection", "diagnosis", "blast radius", "lost steps"))


def watched_headline(
    incidents: Sequence[Incident],
    *,
    mode: str,
    drill: Drill,
    ending: str,
    deaths: SupervisorDeaths = NO_DEATHS,
) -> Headline:
    """What was seen and who was named; recovery is judged only where it was asked for."""
    faults = [i for i in incidents if not i.is_planned]
    count = len(faults) + len(drill.missed)
    unwatched, extra = deaths_words(deaths), deaths_checks(deaths)
    if not count:
        told = f"No fault was seen, but {unwatched}" if unwatched else "No fault was seen"
        state = "unknown" if unwatched else "nothing"
        return Headline(state=state, sentence=f"{told}; {ending}.", checks=extra)
    checks = (*_checks(faults, drill, mode), *extra)
    states = {check.state for check in checks}
    state = "not_held" if "not_held" in states else "unknown" if "unknown" in states else "held"
    noun = f"{'injected ' if drill.is_injected else ''}fault{'' if count == 1 else 's'}"
    seen = f"{len(faults)} of {count} {noun}" if drill.missed else f"{count} {noun}"
    were = "was" if count == 1 else "were"
    hands = ", and nothing was touched" if mode == "observe" else ""
    sentence = f"{seen} {were} seen{hands}: {_ends(faults)}."
    if unwatched:
        sentence += f" {unwatched[0].upper()}{unwatched[1:]}."
    return Headline(state=state, sentence=sentence, checks=checks)


def _ends(faults: Sequence[Incident]) -> str:
    """How many ended in which way, in the order of the table."""
    parts = []
    for outcome, words in OUTCOMES.items():
        count = sum(i.outcome == outcome for i in faults)
        if count:
            parts.append(f"{count} {words if count == 1 else words.replace('was ', 'were ', 1)}")
    still = sum(i.is_open for i in faults)
    late = sum(i.outcome == FOUND_AFTERWARDS for i in faults)
    others = len(faults) - still - late - sum(i.outcome in OUTCOMES for i in faults)
    if late:
        parts.append(late_words(faults))
    if still:
        parts.append(f"{still} {'is' if still == 1 else 'are'} still open")
    if others:
        parts.append(f"{others} closed without a word on how")
    return ", ".join(parts) or "none of them is on record"


def _checks(faults: Sequence[Incident], drill: Drill, mode: str) -> list[Check]:
    count, total = len(faults), len(faults) + len(drill.missed)
    named = sum(bool(i.ranks) for i in faults)
    detected = Check(
        question="Detected",
        state="not_held" if drill.missed else "held",
        detail=f"{count} of {total}",
    )
    culprit = Check(
        question="Culprit named",
        state="held" if named == count else "unknown",
        detail=f"{named} of {count}",
    )
    if mode == "observe":
        told = "not asked for: observe mode touches nothing"
        return [
            detected,
            culprit,
            Check(question="Recovered", state="nothing", detail=told),
        ]
    again = sum(i.outcome in {"restarted", "resolved"} for i in faults)
    going = sum(i.is_open for i in faults)
    state = "held" if again == count else "unknown" if again + going == count else "not_held"
    told = "not possible: only a script that calls lastgood.start has a state to compare"
    return [
        detected,
        culprit,
        Check(question="Going again", state=state, detail=f"{again} of {count}"),
        Check(question="Verified", state="nothing", detail=told),
    ]


def incident_words(incidents: Sequence[Incident]) -> tuple[str, ...]:
    """Who failed where and when, and how it ended, of the last fault; nothing without one. Each has its card below."""
    faults = [i for i in incidents if not i.is_planned]
    if not faults:
        return ()
    last = faults[-1]
    if late := late_words(faults):
        return (f"{late[:1].upper()}{late[1:]}.",)
    at_us = last.onset_us or last.detected_us
    at = "" if at_us is None else f" at {instant_text(at_us, with_date=False)[:8]} UTC"
    ended = OUTCOMES.get(last.outcome or "", "is still open" if last.is_open else "closed")
    what = title_of(last, has_many_hosts=True)
    if len(faults) > 1:
        what = f"{len(faults)} incidents, the last: {what[:1].lower()}{what[1:]}"
    return (f"{what}{at}; it {ended}.",)


def watched_cards(
    cards: Sequence[IncidentCard], incidents: Sequence[Incident], *, mode: str
) -> tuple[IncidentCard, ...]:
    """The cards without the rows that such an incident cannot have."""
    return tuple(
        _watched(card, incident, mode) for card, incident in zip(cards, incidents, strict=True)
    )


def _watched(card: IncidentCard, incident: Incident, mode: str) -> IncidentCard:
    if (
        incident.is_planned
        or incident.verification is not None
        or incident.outcome == FOUND_AFTERWARDS
    ):
        return card
    moments = tuple(m for m in card.moments if m.at_us is not None or m.name in _UNTOUCHED)
    figures = tuple(
        r for r in card.figures if r.figure.value is not None or r.figure.name in _ALWAYS
    )
    notes = card.notes
    if not incident.is_open:
        hands = "Only watched: nothing was stopped or put back. " if mode == "observe" else ""
        told = f"{hands}{_NOTES.get(incident.outcome or '', '')} {UNCOMPARED}"
        notes = (Note(text=told.strip()),)
    return msgspec.structs.replace(card, moments=moments, figures=figures, notes=notes)
