"""The hosts of a run in its report: whose records are there, how far they reach, and how their clocks stand.

A job that attached on several hosts has one spool for each of them. A spool that is missing or stops early hides what
happened there, and a clock that stands apart moves every time of its host: both are said beside the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lastgood.base.figures import measured
from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import DomainKind, EventKind
from lastgood.evidence.incident_part import ranks_text, ranks_words
from lastgood.evidence.report import Cell, Column, Note, Section, Table
from lastgood.ledger.event import Domain, Event, in_effect, time_of
from lastgood.ledger.incident import Incident

APART_US: Final = 1_000_000
"""A clock that stands further off than this is worth a warning: phases of an incident are shorter."""


@dataclass(slots=True)
class HostRecords:
    """What is on record of one host."""

    ranks: set[int] = field(default_factory=set)
    newest_us: int = 0
    has_end: bool = False
    offset: dict[str, Any] | None = None
    """How its clock stood against that of the host of rank 0, as the import measured it."""
    is_set_right: bool = False


def hosts_of(events: Sequence[Event]) -> dict[str, HostRecords]:
    """Each host whose ranks attached, by name; empty for a run whose records name none."""
    found: dict[str, HostRecords] = {}
    for event in in_effect(events):
        name, pids = event.body.get("host"), event.body.get("pids")
        if isinstance(name, str) and isinstance(pids, dict):
            host = found.setdefault(name, HostRecords())
            host.ranks |= _numbers(pids)
            host.is_set_right |= event.links is not None and event.links.supersedes is not None
    for event in in_effect(events):
        for host in found.values():
            _take(host, event)
        offset = event.body.get("clock_offset")
        if isinstance(offset, dict) and offset.get("host") in found:
            found[offset["host"]].offset = offset
    return found


def _take(host: HostRecords, event: Event) -> None:
    """What a host itself said: its words carry its own ranks."""
    codes, pids = event.body.get("exit_codes"), event.body.get("pids")
    for said in (codes, pids):
        if isinstance(said, dict) and _numbers(said) & host.ranks:
            host.newest_us = max(host.newest_us, time_of(event))
            host.has_end = said is codes
    if event.ranks and set(event.ranks) <= host.ranks:
        host.newest_us = max(host.newest_us, time_of(event))


def _numbers(named: dict[str, Any]) -> set[int]:
    return {int(rank) for rank in named if str(rank).isdecimal()}


def has_many_hosts(events: Sequence[Event]) -> bool:
    """True when the records of a run name more than one host."""
    names = {d.id for e in events for d in e.domain if d.kind == DomainKind.HOST}
    names |= {name for e in events if isinstance(name := e.body.get("host"), str)}
    return len(names) > 1


def with_hosts(incidents: Sequence[Incident], hosts: dict[str, HostRecords]) -> list[Incident]:
    """The incidents, each with the hosts of its ranks where its own records name none."""
    made = []
    for incident in incidents:
        known = any(d.kind == DomainKind.HOST for d in incident.domain)
        names = [n for n, h in sorted(hosts.items()) if h.ranks & set(incident.ranks)]
        more = () if known else tuple(Domain(kind=DomainKind.HOST, id=name) for name in names)
        made.append(replace(incident, domain=(*incident.domain, *more)) if more else incident)
    return made


def hosts_section(
    events: Sequence[Event], hosts: dict[str, HostRecords], *, start_us: int, as_of_us: int
) -> Section:
    """One row for each host, and a sentence for whatever its records lack."""
    rows: list[tuple[Cell, ...]] = []
    for name, host in sorted(hosts.items()):
        offset_us = (host.offset or {}).get("offset_us")
        source = "steps that this host and the host of rank 0 both saw end"
        off = measured(f"clock of {name}", offset_us, "us", source=source, n=(host.offset or {}).get("steps"), as_of_us=as_of_us)  # fmt: skip
        until_us = host.newest_us - start_us if host.newest_us else None
        until = measured(f"records of {name}", until_us, "us", source="events of this host", as_of_us=as_of_us)  # fmt: skip
        ended = "on record" if host.has_end else "not on record"
        rows.append((name, ranks_text(sorted(host.ranks)), off if host.offset else None, until, ended))  # fmt: skip
    columns = (
        Column(title="Host", is_number=False),
        Column(title="Ranks", is_number=False),
        Column(title="Clock off by", unit="s"),
        Column(title="Records until", unit="s"),
        Column(title="Its end", is_number=False),
    )
    return Section(
        name="hosts",
        title="Hosts and their clocks",
        lead="Each host wrote its own records by its own clock. A dash is the host of rank 0, against which the others are compared, "
        "or a host whose steps could not be compared.",
        tables=(Table(name="hosts", title="Hosts", columns=columns, rows=tuple(rows)),),
        notes=(*_missing(events), *_clocks(hosts), *_ends(hosts)),
    )


def _missing(events: Sequence[Event]) -> list[Note]:
    """The ranks of which no host told anything, by attempt."""
    worlds: dict[int, int] = {}
    told: dict[int, set[int]] = {}
    for event in in_effect(events):
        world, pids, number = event.body.get("world"), event.body.get("pids"), event.attempt or 1
        if event.kind in {EventKind.RUN_START, EventKind.ATTEMPT_START} and isinstance(world, int):
            worlds[number] = world
        if isinstance(pids, dict):
            told[number] = told.get(number, set()) | _numbers(pids)
    notes = []
    for number, world in sorted(worlds.items()):
        gone = sorted(set(range(world)) - told.get(number, set()))
        if gone:
            text = f"No records of {ranks_words(gone)} in attempt {number}, of {world} ranks: the spool of that host is missing here."
            notes.append(Note(level="missing", text=text))
    return notes


def _clocks(hosts: dict[str, HostRecords]) -> list[Note]:
    notes = []
    for name, host in sorted(hosts.items()):
        offset_us = (host.offset or {}).get("offset_us")
        if not isinstance(offset_us, int) or abs(offset_us) <= APART_US:
            continue
        how = "ahead of" if offset_us > 0 else "behind"
        then = "its times were set right" if host.is_set_right else "its times are as it wrote them"
        against = (host.offset or {}).get("against")
        text = f"The clock of {name} stood {format_duration(abs(offset_us))} {how} that of {against}; {then}."
        notes.append(Note(level="warning", text=text))
    return notes


def _ends(hosts: dict[str, HostRecords]) -> list[Note]:
    gone = [name for name, host in sorted(hosts.items()) if not host.has_end]
    if not gone or len(gone) == len(hosts):
        return []
    text = f"How the ranks of {', '.join(gone)} ended is not on record."
    return [Note(level="missing", text=text)]
