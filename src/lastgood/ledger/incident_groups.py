"""Which events make one incident: what they declare (`links.incident`) always comes first, then the rule's gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lastgood.contract.taxonomy import EventKind, FailureClass, Role
from lastgood.ledger.event import Event, time_of
from lastgood.ledger.grouping import SITE, Rule

BYSTANDERS = frozenset((Role.CASCADE, Role.TEARDOWN, Role.CONTEXT))
"""Roles that follow from a failure and are no failure of their own."""


def group_events(events: Sequence[Event], rule: Rule) -> dict[str, list[Event]]:
    """Incident name -> its events; `events` in order of time."""
    groups: dict[str, list[Event]] = {}
    recent: dict[str, tuple[str, int]] = {}  # domain id -> incident and time of its last event
    for event, declared in declared_incidents(events):
        name = declared or _planned_name(event, groups)
        if name is None and rule.gap_us is not None and _is_failure(event):
            name = _by_gap(event, rule, recent)
        if name is not None:
            groups.setdefault(name, []).append(event)
    return groups


def declared_incidents(events: Iterable[Event]) -> Iterator[tuple[Event, str | None]]:
    """Each event, in order of time, with the incident that it declares.

    A run that is started again counts its incidents from 1 again: a name that is opened anew after another start is
    another incident. A remark that only comes after that start still belongs to the first one.
    """
    starts: Counter[str | None] = Counter()
    opened: dict[str, int] = {}  # declared name -> the start of its run in which it was opened last
    current: dict[str, str] = {}
    for event in events:
        if event.kind == EventKind.RUN_START:
            starts[event.run] += 1
        declared = event.incident
        if declared is not None and event.kind == EventKind.INCIDENT_OPEN:
            start = starts[event.run]
            if opened.setdefault(declared, start) != start:
                current[declared] = f"{declared} (start {start})"
                opened[declared] = start
        yield event, current.get(declared, declared) if declared is not None else None


def _planned_name(event: Event, groups: dict[str, list[Event]]) -> str | None:
    """A planned stop without a declared incident is one of its own, from its begin to its run's next end."""
    if event.kind == EventKind.PLANNED_BEGIN:
        return f"planned:{event.id}"
    if event.kind != EventKind.PLANNED_END:
        return None
    for name, members in reversed(groups.items()):
        if name.startswith("planned:") and members[0].run == event.run and len(members) == 1:
            return name
    return None


def _is_failure(event: Event) -> bool:
    return (
        event.class_ is not None
        and event.class_ != FailureClass.PLANNED
        and event.role not in BYSTANDERS
    )


def _by_gap(event: Event, rule: Rule, recent: dict[str, tuple[str, int]]) -> str:
    now_us = time_of(event)
    places = [d.id for d in event.domain if d.kind == rule.gap_kind] or [f"event:{event.id}"]
    if rule.gap_kind == SITE:
        places = [SITE]
    near = [
        recent[place][0]
        for place in places
        if place in recent and now_us - recent[place][1] <= (rule.gap_us or 0)
    ]
    name = near[0] if near else f"gap:{event.id}"
    for place in places:
        recent[place] = (name, now_us)
    return name
