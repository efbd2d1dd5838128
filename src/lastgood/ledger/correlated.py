"""Which incidents are correlated: two or more members of one shared fault domain failed within a window.

Two ranks of one host, two hosts of one rack. It says nothing about the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lastgood.contract.taxonomy import DomainKind
from lastgood.ledger.event import Domain, Event
from lastgood.ledger.grouping import Rule
from lastgood.ledger.incident_groups import BYSTANDERS

if TYPE_CHECKING:
    from lastgood.ledger.incident import Incident

_MEMBERS = (DomainKind.RANK, DomainKind.DEVICE, DomainKind.HOST, DomainKind.RACK)
"""Kinds that can be members of a larger domain, smallest first."""
_SHARED = (
    DomainKind.HOST, DomainKind.RACK, DomainKind.SWITCH, DomainKind.STORAGE, DomainKind.POWER, DomainKind.RELEASE,
    DomainKind.SITE,
)  # fmt: skip


@dataclass(slots=True)
class _Failed:
    """One member of a shared domain that failed."""

    member: Domain
    at_us: int
    incident: str


@dataclass(slots=True)
class _Shared:
    members: list[_Failed] = field(default_factory=list)


def mark_correlated(
    incidents: Sequence[Incident], groups: dict[str, list[Event]], rule: Rule
) -> list[Incident]:
    """The same incidents, those marked that share a domain; `groups` holds the events of each."""
    shared: dict[Domain, _Shared] = {}
    for incident in incidents:
        if incident.is_planned:
            continue
        for event in groups[incident.id]:
            if event.role in BYSTANDERS:
                continue
            for domain, member in _memberships(event):
                failed = _Failed(member, incident.began_us, incident.id)
                shared.setdefault(domain, _Shared()).members.append(failed)
    by: dict[str, set[Domain]] = {}
    for domain, failures in shared.items():
        for name in _together(failures.members, rule.correlated_us):
            by.setdefault(name, set()).add(domain)
    return [
        replace(
            i, correlated=True, correlated_by=tuple(sorted(by[i.id], key=lambda d: (d.kind, d.id)))
        )
        if i.id in by
        else i
        for i in incidents
    ]


def _memberships(event: Event) -> list[tuple[Domain, Domain]]:
    """(shared domain, member) pairs that the event states without doubt.

    With two hosts and two ranks in one event nobody says which rank lies where, so only a kind with a single id
    is taken to hold all the members.
    """
    kinds = {kind: [d for d in event.domain if d.kind == kind] for kind in DomainKind}
    smallest = next((kind for kind in _MEMBERS if kinds[kind]), None)
    if smallest is None:
        return []
    return [
        (kinds[kind][0], member)
        for kind in _SHARED
        if kind != smallest and len(kinds[kind]) == 1
        for member in kinds[smallest]
    ]


def _together(failures: list[_Failed], window_us: int) -> set[str]:
    """Incidents in which, within the window, at least two different members failed."""
    failures = sorted(failures, key=lambda f: (f.at_us, f.incident, f.member.kind, f.member.id))
    found: set[str] = set()
    start = 0
    for end in range(len(failures)):
        while failures[end].at_us - failures[start].at_us > window_us:
            start += 1
        near = failures[start : end + 1]
        if len({f.member for f in near}) > 1:
            found |= {f.incident for f in near}
    return found
