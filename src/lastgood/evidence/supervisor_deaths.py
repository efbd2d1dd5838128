"""Supervisors of a watched job that ended without a word: how often, and for how long nobody looked.

No fault of the job, hence no incident of its own; but a report that saw no fault must say where it could not have seen one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.report import Check
from lastgood.ledger.event import Event, time_of


class SupervisorDeaths(NamedTuple):
    """Each from the last sign of life on record to the next start."""

    count: int = 0
    unobserved_us: int = 0
    """In which the ranks went on, and nobody knows what they did."""
    stopped_us: int = 0
    """In which nothing ran: the ranks ended with their supervisor."""


NO_DEATHS = SupervisorDeaths()


def read_supervisor_deaths(events: Iterable[Event]) -> SupervisorDeaths:
    """Those of one run, whose events come in order of time."""
    count = unobserved_us = stopped_us = 0
    ended: Event | None = None
    for event in events:
        if event.kind == EventKind.RUN_END:
            ended = event if event.body.get("result") == "interrupted" else None
        elif event.kind == EventKind.RUN_START and ended is not None:
            took_us = max(0, time_of(event) - time_of(ended))
            count += 1
            if ended.body.get("is_unobserved"):
                unobserved_us += took_us
            else:
                stopped_us += took_us
            ended = None
    return SupervisorDeaths(count, unobserved_us, stopped_us)


def deaths_words(deaths: SupervisorDeaths) -> str:
    """What happened to the supervisor and what that did to the job, as part of a sentence; empty when it never died."""
    if not deaths.count:
        return ""
    often = "" if deaths.count == 1 else f" {deaths.count} times"
    parts = []
    if deaths.unobserved_us:
        told = format_duration(deaths.unobserved_us)
        parts.append(f"for {told} nobody saw what the ranks did")
    if deaths.stopped_us:
        told = format_duration(deaths.stopped_us)
        parts.append(f"its ranks ended with it, and for {told} nothing ran")
    return "; ".join([f"the supervisor ended without a word{often}", *parts])


def deaths_checks(deaths: SupervisorDeaths) -> tuple[Check, ...]:
    """The question whether somebody looked all the time, where that was not so."""
    if not deaths.count:
        return ()
    times = "once" if deaths.count == 1 else f"{deaths.count} times"
    detail = f"the supervisor ended without a word {times}"
    return (Check(question="Watched throughout", state="unknown", detail=detail),)
