"""Incidents whose starts follow each other on one domain, counted as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lastgood.ledger.grouping import SITE, Rule

if TYPE_CHECKING:
    from lastgood.ledger.incident import Incident


def merge_starts(incidents: Sequence[Incident], rule: Rule) -> list[Incident]:
    """Incidents (by begin) of which those that start soon after the one before on their domain count as one.

    A merged incident speaks with the words and durations of its first member, who started it, and is over when the
    last of them is. Planned stops are merged with nothing, and on a domain that an incident does not name it is alone.
    """
    members: list[list[Incident]] = []
    recent: dict[str, tuple[list[Incident], int]] = {}
    for incident in incidents:
        named = (d.id for d in incident.domain if d.kind == rule.merge_kind)
        place = SITE if rule.merge_kind == SITE else next(named, None)
        if place is None or incident.is_planned:
            members.append([incident])
            continue
        group, last_us = recent.get(place, ([], 0))
        if not group or incident.began_us - last_us > (rule.merge_us or 0):
            group = []
            members.append(group)
        group.append(incident)
        recent[place] = (group, incident.began_us)
    return [_merged(group) if len(group) > 1 else group[0] for group in members]


def _merged(group: Sequence[Incident]) -> Incident:
    """One incident of several, in order of their begin."""
    lost = [i.lost_device_us for i in group if i.lost_device_us is not None]
    steps = [i.lost_steps for i in group if i.lost_steps is not None]
    return replace(
        group[0],
        correlated=any(i.correlated for i in group),
        correlated_by=tuple(dict.fromkeys(d for i in group for d in i.correlated_by)),
        domain=tuple(dict.fromkeys(d for i in group for d in i.domain)),
        closed_us=max((i.closed_us for i in group if i.closed_us is not None), default=None)
        if not any(i.is_open for i in group)
        else None,
        lost_steps=sum(steps) if steps else None,
        lost_device_us=sum(lost) if lost else None,
        notes=tuple(dict.fromkeys(note for i in group for note in i.notes)),
        event_ids=tuple(name for i in group for name in i.event_ids),
    )
