"""How many failures an import states, by the definition of a report: planned stops and bystanders are none.

An incident that records declare counts once, with the last class and cause that they give it; a signal that states a
class counts by itself; what a later record takes back does not count. Grouping of signals belongs to the report, so
here they are counted one by one and the table says so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from lastgood.contract.taxonomy import EventKind, FailureClass, Role
from lastgood.ledger.event import Event
from lastgood.ledger.importers.quality import Quality

REMEMBERED_MAX = 65_536
"""Incidents and signals that a later record may still change; one that does so after so many others counts again."""
_BYSTANDERS = frozenset((Role.CASCADE, Role.TEARDOWN, Role.CONTEXT))
_OPENING = frozenset((EventKind.INCIDENT_OPEN, EventKind.OBSERVATION))


class _Said(NamedTuple):
    """What is known by now of an incident or of a signal."""

    class_: str | None
    cause: str | None
    is_declared: bool

    @property
    def is_failure(self) -> bool:
        if self.class_ is None:
            return self.is_declared
        return self.class_ != FailureClass.PLANNED


class FailureCount:
    """Counts the failures of one file into its table, event by event."""

    def __init__(self, quality: Quality) -> None:
        """The table to count into."""
        self._quality = quality
        self._known: OrderedDict[str, _Said] = OrderedDict()

    def add(self, event: Event) -> None:
        """Takes an event as it goes into the ledger."""
        links = event.links
        if links is not None and links.supersedes is not None:
            self._put(links.supersedes, None)
        if links is not None and links.incident is not None:
            before = self._known.get(links.incident)
            if before is None and event.kind not in _OPENING:
                return  # the end of an incident that another file began
            was = before or _Said(None, None, is_declared=True)
            self._put(
                links.incident,
                _Said(event.class_ or was.class_, event.cause or was.cause, is_declared=True),
            )
        elif event.role in _BYSTANDERS or event.kind == EventKind.INCIDENT_CLOSE:
            return
        elif event.class_ is not None:
            self._put(event.id, _Said(event.class_, event.cause, is_declared=False))
        elif event.cause == "unknown":
            self._quality.unplaced += 1

    def _put(self, name: str, said: _Said | None) -> None:
        """Replaces what was counted under this name."""
        before = self._known.pop(name, None)
        self._count(before, -1)
        self._count(said, +1)
        if said is not None:
            self._known[name] = said
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)

    def _count(self, said: _Said | None, step: int) -> None:
        if said is not None and said.is_failure:
            self._quality.failures += step
            self._quality.unknown_causes += step * (said.cause in {None, "unknown"})
