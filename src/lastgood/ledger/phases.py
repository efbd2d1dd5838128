"""The phases of an incident: which record ends one and begins the next.

The partition of wall time, the timeline on an incident's card and the durations beside it are all read from here, so
that a bar, a moment and a number of one incident never tell of different times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, time_of

PHASES: Final[dict[str, str]] = {
    EventKind.DETECT: "down.diagnose",
    EventKind.DIAGNOSE: "down.isolate",
    EventKind.ISOLATE: "down.restart",
    EventKind.RESTORE_BEGIN: "restore",
    EventKind.RESTORE: "down.verify",
    EventKind.VERIFY: "down.verify",
}
"""After which event an incident is in which state, until its next one."""
PHASE_ORDER: Final = {
    kind: at for at, kind in enumerate((EventKind.INCIDENT_OPEN, *PHASES, EventKind.INCIDENT_CLOSE))
}


class Moment(NamedTuple):
    """One record that moved an incident on."""

    kind: str
    at_us: int
    detail: str = ""
    """What came of it, where that is not plain: a verification that was not equal."""


def seen_us(event: Event) -> int:
    """A detection happens when it is observed; its `t_occurred_us` is the onset."""
    is_late = event.kind in {EventKind.DETECT, EventKind.INCIDENT_OPEN}
    if is_late and event.t_observed_us is not None:
        return event.t_observed_us
    return time_of(event)


def in_phase_order(events: Iterable[Event]) -> list[Event]:
    """Those records of one incident that move it on, in the order in which they did."""
    members = [event for event in events if event.kind in PHASE_ORDER]
    return sorted(members, key=lambda e: (seen_us(e), PHASE_ORDER[EventKind(e.kind)], e.id))


def moments_of(events: Iterable[Event]) -> tuple[Moment, ...]:
    """From the first detection to the close, each record at its time; a phase that was entered again stands twice."""
    members = in_phase_order(events)
    if not members:
        return ()
    first = next((e for e in members if e.kind == EventKind.DETECT), members[0])
    if first.kind not in {EventKind.DETECT, EventKind.INCIDENT_OPEN}:
        return ()
    found = [Moment(EventKind.DETECT, seen_us(first))]
    for event in members:
        is_again = event.kind == EventKind.INCIDENT_OPEN or event is first
        if is_again or seen_us(event) < found[0].at_us:
            continue
        result = event.verification.result if event.verification else "equal"
        is_odd = event.kind == EventKind.VERIFY and result != "equal"
        found.append(Moment(event.kind, seen_us(event), result.replace("_", " ") if is_odd else ""))
        if event.kind == EventKind.INCIDENT_CLOSE:
            break
    return tuple(found)


def spent_us(moments: Sequence[Moment]) -> dict[str, int]:
    """State of wall time -> how long the incident was in it between its moments."""
    spent: dict[str, int] = {}
    for moment, after in itertools.pairwise(moments):
        if moment.kind in PHASES:
            state = PHASES[moment.kind]
            spent[state] = spent.get(state, 0) + after.at_us - moment.at_us
    return spent
