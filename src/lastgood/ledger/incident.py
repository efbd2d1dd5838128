"""From events to incidents: what belongs together, by a rule with a name.

The unit of every count is the incident and not the log line: one broken switch writes thousands of lines. How lines
become incidents changes the count twofold on real fleets, so the rule is declared, has parameters, and is printed
beside every number that rests on it: `incident_groups` gathers the events, `incident_merge` counts starts in a row as
one, `correlated` marks those that share a fault domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.ledger.correlated import mark_correlated
from lastgood.ledger.event import Domain, Event, Verification, in_effect, time_of
from lastgood.ledger.grouping import LINKS, Rule
from lastgood.ledger.incident_groups import BYSTANDERS, group_events
from lastgood.ledger.incident_merge import merge_starts
from lastgood.ledger.phases import Moment, moments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One failure (or planned stop) with its times and what it cost. Null means not known."""

    id: str
    run: str | None = None
    attempt: int | None = None
    class_: str | None = None
    symptom: str | None = None
    cause: str | None = None
    cause_status: str | None = None
    correlated: bool = False
    correlated_by: tuple[Domain, ...] = ()
    """The shared domains that make it correlated."""
    domain: tuple[Domain, ...] = ()
    ranks: tuple[int, ...] = ()
    """The ranks at fault."""
    blast_radius: int | None = None
    """How many ranks had to stop or roll back because of it."""
    onset_us: int | None = None
    opened_us: int | None = None
    moments: tuple[Moment, ...] = ()
    """Every record that moved it on, from the detection to the close, also those that a second try left behind."""
    detected_us: int | None = None
    diagnosed_us: int | None = None
    isolated_us: int | None = None
    restored_us: int | None = None
    verified_us: int | None = None
    closed_us: int | None = None
    detect_us: int | None = None
    """Durations from here on: from onset to detection,"""
    diagnose_us: int | None = None
    """from detection to a named culprit,"""
    isolate_us: int | None = None
    """from the name to the culprit's removal,"""
    recover_us: int | None = None
    """from the removal to a restored state,"""
    verify_us: int | None = None
    """from the restored state to its verification."""
    lost_steps: int | None = None
    lost_device_us: int | None = None
    checkpoint_age_us: int | None = None
    first_divergent_step: int | None = None
    verification: Verification | None = None
    outcome: str | None = None
    """`recovered` or `escalated`; None while open."""
    injected: bool | None = None
    """True for a fault on purpose; None when the records do not say."""
    notes: tuple[str, ...] = ()
    event_ids: tuple[str, ...] = ()
    """The events that it was folded from, in order of time."""

    @property
    def is_open(self) -> bool:
        """True while no record closes it: its durations are lower bounds, not values."""
        return self.closed_us is None

    @property
    def is_planned(self) -> bool:
        """True for a stop that was known in advance."""
        return self.class_ == FailureClass.PLANNED

    @property
    def began_us(self) -> int:
        """The earliest time that is known of it."""
        for stamp_us in (self.onset_us, self.opened_us, self.detected_us):
            if stamp_us is not None:
                return stamp_us
        return 0


def fold_incidents(events: Iterable[Event], rule: Rule = LINKS) -> list[Incident]:
    """The incidents of these events under this rule, in order of their onset. Arrival order does not matter."""
    groups = group_events(in_effect(events), rule)
    incidents = [_fold(name, members) for name, members in groups.items()]
    incidents.sort(key=lambda i: (i.began_us, i.id))
    incidents = mark_correlated(incidents, groups, rule)
    return incidents if rule.merge_us is None else merge_starts(incidents, rule)


def _fold(name: str, events: Sequence[Event]) -> Incident:
    """One incident of its events, which are in order of time."""
    first, last_of = events[0], {event.kind: event for event in events}
    opened = next((e for e in events if e.kind == EventKind.INCIDENT_OPEN), None)
    detect = next((e for e in events if e.kind == EventKind.DETECT), None)
    closed = last_of.get(EventKind.INCIDENT_CLOSE) or last_of.get(EventKind.PLANNED_END)
    is_planned = first.kind == EventKind.PLANNED_BEGIN
    incident = Incident(
        id=name,
        run=_last(events, "run"),
        attempt=first.attempt,
        class_=_last(events, "class_") or (str(FailureClass.PLANNED) if is_planned else None),
        symptom=_last(events, "symptom"),
        cause=_last(events, "cause"),
        cause_status=_last(events, "cause_status"),
        domain=tuple(
            dict.fromkeys(d for e in events for d in e.domain if e.role not in BYSTANDERS)
        ),
        ranks=_culprits(events),
        blast_radius=_blast_radius(events),
        onset_us=_onset(opened or first, detect),
        moments=moments_of(events),
        opened_us=time_of(opened or first),
        detected_us=_seen(detect) if detect else (_seen(opened) if opened else None),
        diagnosed_us=_at(last_of.get(EventKind.DIAGNOSE)),
        isolated_us=_at(last_of.get(EventKind.ISOLATE)),
        restored_us=_at(last_of.get(EventKind.RESTORE)),
        verified_us=_verified(events),
        closed_us=_at(closed),
        lost_steps=_lost_steps(events),
        lost_device_us=_last(events, "lost_device_us"),
        checkpoint_age_us=_last(events, "checkpoint_age_us"),
        first_divergent_step=_last(events, "first_divergent_step"),
        verification=_last(events, "verification"),
        outcome=_outcome(events),
        injected=_injected(events),
        notes=_notes(events),
        event_ids=tuple(event.id for event in events),
    )
    return _with_durations(incident, events)


def _with_durations(incident: Incident, events: Sequence[Event]) -> Incident:
    """What the events state; else the difference of the two times, when both are known and in order."""
    unfinished = _unfinished(incident)

    def lasted(name: str, begin_us: int | None, end_us: int | None) -> int | None:
        if name in unfinished:
            return None
        stated = _last(events, name)
        if stated is not None:
            return stated
        if begin_us is None or end_us is None or end_us < begin_us:
            return None
        return end_us - begin_us

    if incident.is_planned:
        return incident
    return replace(
        incident,
        detect_us=lasted("detect_us", incident.onset_us, incident.detected_us),
        diagnose_us=lasted("diagnose_us", incident.detected_us, incident.diagnosed_us),
        isolate_us=lasted("isolate_us", incident.diagnosed_us, incident.isolated_us),
        recover_us=lasted("recover_us", incident.isolated_us, incident.restored_us),
        verify_us=lasted("verify_us", incident.restored_us, incident.verified_us),
    )


def _unfinished(incident: Incident) -> Sequence[str]:
    """Durations that an escalated incident cannot have: its last attempt never came to the end of that phase.

    What an earlier attempt took, or a zero in the closing record, would count as a fast recovery.
    """
    if incident.outcome != "escalated":
        return ()
    names = ("diagnose_us", "isolate_us", "recover_us", "verify_us")
    ends = (incident.diagnosed_us, incident.isolated_us, incident.restored_us, incident.verified_us)
    before_us = incident.detected_us
    for at, end_us in enumerate(ends):
        if end_us is None or (before_us is not None and end_us < before_us):
            return names[at:]
        before_us = end_us
    return ()


def _last(events: Sequence[Event], name: str):  # noqa: ANN202 - whatever the field holds
    return next((v for e in reversed(events) if (v := getattr(e, name)) is not None), None)


def _at(event: Event | None) -> int | None:
    return None if event is None else time_of(event)


def _seen(event: Event) -> int:
    """A detection happens when it is observed; its `t_occurred_us` is the onset."""
    return event.t_observed_us if event.t_observed_us is not None else time_of(event)


def _onset(first: Event, detect: Event | None) -> int | None:
    stamps = [e.t_occurred_us for e in (first, detect) if e and e.t_occurred_us is not None]
    return min(stamps, default=None)


def _culprits(events: Sequence[Event]) -> tuple[int, ...]:
    """The close decides, since others may have failed behind the diagnosis; before it the newest diagnosis, and
    before that whoever the first events name.
    """
    for event in reversed(events):
        if event.kind == EventKind.INCIDENT_CLOSE and event.ranks:
            return tuple(sorted(set(event.ranks)))
    for event in reversed(events):
        named = event.body.get("culprits") if event.kind == EventKind.DIAGNOSE else None
        if isinstance(named, list) and all(isinstance(rank, int) for rank in named):
            return tuple(sorted(set(named)))
    named = (e.ranks for e in events if e.ranks and e.role not in BYSTANDERS)
    return next(iter(named), ())


def _blast_radius(events: Sequence[Event]) -> int | None:
    """As stated; else every rank of the generation that had to be restored; else who was seen to stop.

    A rank whose process ended by itself was neither killed nor parked, and it stopped all the same.
    """
    stated = [e.body["blast_radius"] for e in events if isinstance(e.body.get("blast_radius"), int)]
    if stated:
        return stated[-1]
    restored = [
        len(event.body["workers"])
        for event in events
        if event.kind == EventKind.RESTORE_BEGIN and isinstance(event.body.get("workers"), dict)
    ]
    if restored:
        return max(restored)
    named = {rank for event in events for rank in event.ranks}
    killed, parked = _workers(events, "killed"), _workers(events, "parked")
    return len(parked - killed) + max(len(killed), len(named)) or None


def _workers(events: Sequence[Event], key: str) -> set[str]:
    lists = (e.body.get(key) for e in events if e.kind == EventKind.ISOLATE)
    return {str(worker) for names in lists if isinstance(names, list) for worker in names}


def _verified(events: Sequence[Event]) -> int | None:
    """The last verification that accepted the state."""
    accepted = [
        time_of(e)
        for e in events
        if e.kind == EventKind.VERIFY and e.verification and is_accepted(e.verification)
    ]
    return accepted[-1] if accepted else None


def is_accepted(verification: Verification) -> bool:
    """True when the test let the state pass: bit-equal, or within the noise that was measured before."""
    return is_accepted_result(verification.result)


def is_accepted_result(result: str) -> bool:
    """The same for the result alone."""
    return result in {"equal", "within_tolerance"}


def _lost_steps(events: Sequence[Event]) -> int | None:
    stated = [e.body["lost_steps"] for e in events if isinstance(e.body.get("lost_steps"), int)]
    return stated[-1] if stated else None


def _outcome(events: Sequence[Event]) -> str | None:
    stated = [e.body["outcome"] for e in events if isinstance(e.body.get("outcome"), str)]
    if stated:
        return stated[-1]
    if any(e.kind == EventKind.ESCALATE for e in events):
        return "escalated"
    return None


def _injected(events: Sequence[Event]) -> bool | None:
    stated = [e.body["injected"] for e in events if "injected" in e.body]
    return bool(stated[-1]) if stated else None


def _notes(events: Sequence[Event]) -> tuple[str, ...]:
    notes: list[str] = []
    for event in events:
        for key in ("evidence", "notes", "reason", "text"):
            value = event.body.get(key)
            items = value if isinstance(value, list) else [value]
            notes += [item for item in items if isinstance(item, str) and item]
    return tuple(dict.fromkeys(notes))
