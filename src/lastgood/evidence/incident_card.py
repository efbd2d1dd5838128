"""The card of one incident: what was seen of whom, its timeline, and durations that the timeline adds up to.

The timeline holds every record that moved the incident on (`ledger.phases`), also those that a second try left behind.
The durations are sums over it, and so are the bars of wall time: one source for all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lastgood.base.figures import DEVICE_TIME, measured
from lastgood.contract.taxonomy import DomainKind, EventKind
from lastgood.evidence.incident_part import (
    CLASS_TITLES,
    Drill,
    Injection,
    is_closed_well,
    ranks_words,
    title_of,
)
from lastgood.evidence.incident_times import to_next_step_us
from lastgood.evidence.late_verdicts import FOUND_AFTERWARDS
from lastgood.evidence.report import FigureRow, IncidentCard, Moment, Note, Verification
from lastgood.ledger.incident import Incident
from lastgood.ledger.phases import spent_us
from lastgood.ledger.walltime import WallState, WallTime

SOURCE: Final = "events of the incident"
WHOLE: Final = "fault to next accepted step"
"""Name of the time that holds all the others, and the step behind them."""
_SOURCES: Final = {
    WHOLE: "onset of the incident to the end of the first accepted step behind its close"
}
_NAMES: Final = {
    EventKind.DETECT: "detect",
    EventKind.DIAGNOSE: "diagnose",
    EventKind.ISOLATE: "isolate",
    EventKind.RESTORE_BEGIN: "restoring",
    EventKind.RESTORE: "restore",
    EventKind.VERIFY: "verify",
    EventKind.INCIDENT_CLOSE: "close",
}
_ORDER: Final = ("onset", *_NAMES.values())
_PHASES: Final = {
    "diagnosis": (WallState.DOWN_DIAGNOSE,),
    "isolation": (WallState.DOWN_ISOLATE,),
    "recovery": (WallState.DOWN_RESTART, WallState.RESTORE),
    "verification": (WallState.DOWN_VERIFY,),
}
"""A duration on a card -> the states of wall time that it is the sum of."""
GAP_US_MIN: Final = 10_000
"""A last step that ended closer to the onset than this is no moment that anybody would tell apart from it."""
OUTCOMES: Final = {"escalated": "handed to a person"}
"""Outcomes that a reader would not understand by their own name."""


def incident_cards(
    incidents: Sequence[Incident],
    *,
    drill: Drill,
    as_of_us: int,
    wall: WallTime | None = None,
    has_many_hosts: bool = True,
) -> tuple[IncidentCard, ...]:
    """One card per incident in order of onset, numbered as on the wall-time strip.

    Args:
        wall: The partition of the run, which tells when an incident began to cost time.
        has_many_hosts: False for a run on one host, of which it says nothing that its ranks share that host.
    """
    began = {} if wall is None else _without_progress(wall)
    return tuple(
        _card(
            number, incident, drill, as_of_us, began,
            has_many_hosts=has_many_hosts, whole_us=to_next_step_us(incident, wall),
        )
        for number, incident in enumerate(incidents, start=1)
    )  # fmt: skip


def _without_progress(wall: WallTime) -> dict[int, int]:
    """Detection -> since when no step had been completed: the bounds of each stretch of `down.detect`."""
    return {s.end_us: s.start_us for s in wall.spans if s.state is WallState.DOWN_DETECT}


def _card(
    number: int,
    incident: Incident,
    drill: Drill,
    as_of_us: int,
    began: Mapping[int, int],
    *,
    has_many_hosts: bool,
    whole_us: int | None,
) -> IncidentCard:
    check, injection = incident.verification, drill.injections.get(incident.id)
    return IncidentCard(
        number=number,
        id=incident.id,
        title=title_of(incident, has_many_hosts=has_many_hosts),
        is_injected=drill.covers(incident),
        facts=_facts(incident, injection, has_many_hosts=has_many_hosts),
        moments=_moments(incident, began),
        figures=_figures(incident, injection, as_of_us, whole_us=whole_us),
        verification=Verification(
            test=check.test, result=check.result, evidence=check.evidence or ""
        )
        if check
        else None,
        outcome=outcome_of(incident),
        evidence=tuple(note for note in incident.notes if check is None or note != check.test),
        notes=_notes(incident),
    )


def outcome_of(incident: Incident) -> str:
    """How it ended, in a word or a few."""
    if incident.outcome is not None:
        return OUTCOMES.get(incident.outcome, incident.outcome)
    return "still open" if incident.is_open else "closed"


def _facts(
    incident: Incident, injection: Injection | None, *, has_many_hosts: bool
) -> tuple[tuple[str, str], ...]:
    shared = [f"{d.kind} {d.id}" for d in incident.domain if d.kind != DomainKind.RANK]
    by = ", ".join(f"{d.kind} {d.id}" for d in incident.correlated_by)
    status = incident.cause_status or "unknown"
    is_known = incident.cause is not None and incident.cause != "unknown"
    cause = f"{incident.cause} ({status})" if is_known else "not known"
    injected: tuple[tuple[str, str], ...] = ()
    if injection is not None:
        injected = (("Injected fault", injection.fault),)
        if injection.is_culprit_right is not None:
            injected += (("Right rank named", "yes" if injection.is_culprit_right else "no"),)
    correlated = (("Correlated", f"yes, by {by}" if incident.correlated else "no"),)
    return (
        *injected,
        ("Class", CLASS_TITLES.get(incident.class_ or "", incident.class_ or "not stated")),
        ("Symptom", (incident.symptom or "not stated").replace("_", " ")),
        ("Cause", cause),
        ("Ranks at fault", ranks_words(incident.ranks)),
        ("Fault domain", ", ".join(shared) or "not stated"),
        *(correlated if has_many_hosts else ()),
    )


# --- times --------------------------------------------------------------------------------------------


def _stamps(incident: Incident) -> list[tuple[str, int | None, str]]:
    """Name, time and remark of each moment; those that every fault should have and this one lacks without a time."""
    found: list[tuple[str, int | None, str]] = [("onset", incident.onset_us, "")]
    if incident.moments:
        found += [(_NAMES[EventKind(m.kind)], m.at_us, m.detail) for m in incident.moments]
    else:
        times = (
            incident.detected_us,
            incident.diagnosed_us,
            incident.isolated_us,
            None,
            incident.restored_us,
            incident.verified_us,
            incident.closed_us,
        )
        found += [(n, t, "") for n, t in zip(_ORDER[1:], times, strict=True) if t is not None]
    for name in _ORDER[1:]:
        if name != "restoring" and all(name != other for other, _, _ in found):
            before = [at for at, s in enumerate(found) if _ORDER.index(s[0]) < _ORDER.index(name)]
            found.insert(before[-1] + 1, (name, None, ""))
    return found


def _moments(incident: Incident, began: Mapping[int, int]) -> tuple[Moment, ...]:
    onset_us = incident.onset_us
    made: list[Moment] = []
    since_us = began.get(incident.detected_us or -1)
    if since_us is not None and onset_us is not None and onset_us - since_us >= GAP_US_MIN:
        told = "down.detect counts from here"
        made.append(Moment(name="last step", at_us=since_us, since_onset_us=since_us - onset_us, detail=told))  # fmt: skip
    seen: set[str] = set()
    for name, at_us, detail in _stamps(incident):
        again = "again" if name in seen else ""
        seen.add(name)
        since_onset_us = None if at_us is None or onset_us is None else at_us - onset_us
        told = ", ".join(part for part in (again, detail) if part)
        made.append(Moment(name=name, at_us=at_us, since_onset_us=since_onset_us, detail=told))
    return tuple(made)


def _lasted(incident: Incident, name: str, folded_us: int | None) -> int | None:
    """The sum over the timeline where it has the phase; what a phase lacks that never ended stays unknown."""
    spent = spent_us(incident.moments)
    states = _PHASES[name]
    if folded_us is None or not any(state in spent for state in states):
        return folded_us
    return sum(spent.get(state, 0) for state in states)


def _figures(
    incident: Incident, injection: Injection | None, as_of_us: int, *, whole_us: int | None
) -> tuple[FigureRow, ...]:
    since_us = detect_us = None
    if injection and injection.at_us is not None and incident.detected_us is not None:
        since_us = incident.detected_us - injection.at_us
    detect_us = incident.detect_us
    if incident.moments and incident.onset_us is not None and detect_us is not None:
        detect_us = incident.moments[0].at_us - incident.onset_us
    injected = (("Detected after the injection", "detection after injection", since_us, "us"),)
    diagnose_us = _lasted(incident, "diagnosis", incident.diagnose_us)
    isolate_us = _lasted(incident, "isolation", incident.isolate_us)
    recover_us = _lasted(incident, "recovery", incident.recover_us)
    verify_us = _lasted(incident, "verification", incident.verify_us)
    rows = (
        ("Detection", "detection", detect_us, "us"),
        *(injected if injection is not None else ()),
        ("Diagnosis", "diagnosis", diagnose_us, "us"),
        ("Isolation", "isolation", isolate_us, "us"),
        ("Recovery", "recovery", recover_us, "us"),
        ("Verification", "verification", verify_us, "us"),
        ("Fault to next accepted step", WHOLE, whole_us, "us"),
        ("Blast radius", "blast radius", incident.blast_radius, "ranks"),
        ("Lost steps", "lost steps", incident.lost_steps, ""),
        ("Lost device time", "lost device time", incident.lost_device_us, DEVICE_TIME),
        ("Age of the restored state", "checkpoint age", incident.checkpoint_age_us, "us"),
        ("First divergent step", "first divergent step", incident.first_divergent_step, ""),
    )
    return tuple(
        FigureRow(
            label=label,
            figure=measured(
                name, value, unit, source=_SOURCES.get(name, SOURCE), as_of_us=as_of_us
            ),
        )
        for label, name, value, unit in rows
    )


def _notes(incident: Incident) -> tuple[Note, ...]:
    if incident.is_open:
        text = "No record closes this incident: its times are lower bounds."
        return (Note(text=text, level="warning"),)
    if incident.is_planned or is_closed_well(incident):
        return ()
    if incident.outcome == FOUND_AFTERWARDS:
        text = "Found after the steps had been accepted; no record says that a verified state took their place."
        return (Note(text=text, level="warning"),)
    text = "Closed without an accepted verification of the restored state."
    return (Note(text=text, level="warning"),)
