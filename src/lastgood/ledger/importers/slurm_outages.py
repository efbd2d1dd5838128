"""Stretches of time in which a Slurm node was out of service, as incidents and as exposure that is missing.

The accounting writes a new record whenever the state changes, so one outage (down, then drained, then down again) is
several records that touch. They are one incident here: a record that continues another one takes back the end that was
written for it, by an event that supersedes it. Records may come oldest first or newest first.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from lastgood.contract.taxonomy import EventKind, Role
from lastgood.ledger.event import ClockStamp, Event, Links
from lastgood.ledger.importers.importer import Context
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.mapping import Mapping, mapping_fields
from lastgood.ledger.importers.wording import code_of

NODES_MAX = 100_000
"""Nodes whose last outage is remembered."""
_SERVER = ClockStamp(source="server")
_FLAGS = {
    "~": "POWERED_DOWN",
    "%": "POWERING_DOWN",
    "#": "POWERING_UP",
    "$": "MAINT",
    "^": "REBOOT_ISSUED",
}
"""Marks behind a state that take the node out of service; others (`*`, `@`, `-`, `!`) do not by themselves."""
_ORDER = (
    "FAIL", "ERROR", "DOWN", "DRAIN", "MAINT", "REBOOT_ISSUED", "REBOOT", "POWERED_DOWN", "POWERING_DOWN",
    "POWERING_UP", "FUTURE",
)  # fmt: skip
_USABLE = frozenset((
    "IDLE", "ALLOC", "ALLOCATED", "MIX", "MIXED", "COMP", "COMPLETING", "PLANNED", "PLND", "RESV", "RESERVED", "CLOUD",
    "DYNAMIC_NORM", "BLOCKED", "PERFCTRS", "UNDRAIN", "RESUME",
))  # fmt: skip
_SPELLINGS = {
    "DRNG": "DRAIN", "DRAINED": "DRAIN", "DRAINING": "DRAIN", "FAILING": "FAIL", "FAILG": "FAIL", "MAINTENANCE": "MAINT",
    "NOT_RESPONDING": "DOWN", "NO_RESPOND": "DOWN", "DOWNED": "DOWN", "REBOOT_REQUESTED": "REBOOT",
    "POW_DN": "POWERED_DOWN", "POW_UP": "POWERING_UP",
}  # fmt: skip
_WORD = re.compile(r"[A-Z][A-Z_]{1,30}")


def state_of(words: list[str]) -> str | None:
    """The state that decides whether a node serves: `DOWN` of `DOWN*+DRAIN`, None when it is in service.

    Raises:
        ValueError: A word that is none.
    """
    found = []
    for word in words:
        bare = word.strip().upper().rstrip("*~#!%$@^- ")
        found += [state for flag, state in _FLAGS.items() if flag in word]
        if not bare:
            continue
        if _WORD.fullmatch(bare) is None:
            raise ValueError(f"no node state: {word[:40]!r}")
        found.append(_SPELLINGS.get(bare, bare))
    out = [state for state in _ORDER if state in found]
    if out:
        return out[0]
    return next((state for state in found if state not in _USABLE), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One record of a node that was out of service."""

    cluster: str | None
    node: str
    start_us: int
    end_us: int | None
    is_inferred: bool
    state: str
    recorded: str
    """The state as it was written."""
    reason: str
    user: str | None
    devices: int | None


@dataclass(slots=True)
class _Chain:
    """Records of one node that touch: from the first begin to the last end."""

    begin_us: int
    end_us: int | None
    name: str
    begin_id: str
    end_id: str | None
    has_class: bool = True


@dataclass(slots=True)
class Outages:
    """Turns records of outages into events."""

    context: Context
    mapping: Mapping
    incidents: OrderedDict[str, _Chain] = field(default_factory=OrderedDict)
    absences: OrderedDict[str, _Chain] = field(default_factory=OrderedDict)
    is_exposure_unknown: bool = False

    def of(self, outage: Outage, row: Item) -> Iterator[Event]:
        """An incident (unless the table calls the state context), and devices that leave and come back."""
        code = code_of(self.mapping, outage.state, outage.reason)
        known = self.mapping.row(code)
        is_failure = known is None or known.role != Role.CONTEXT
        if is_failure:
            yield from self._incident(outage, row, code)
        if outage.devices:
            # A stretch without length would leave and come back in an order that nobody knows.
            if outage.end_us != outage.start_us:
                yield from self._absence(outage, row)
        elif not self.is_exposure_unknown:
            self.is_exposure_unknown = True
            self.context.note(
                "how many accelerators the nodes have is not known (no TRES column): give --devices-per-node for exposure"
            )
        if not is_failure and not outage.devices:
            self.context.ignore(row, f"not a failure ({outage.state})")

    def join(self, node: Outage, row: Item, at_us: int) -> Event:
        """A node is at risk from this moment on."""
        return self._event(
            EventKind.EXPOSURE_JOIN,
            node,
            row,
            at_us,
            identity=(at_us,),
            devices=node.devices,
            body={"basis": "node", "state": node.recorded},
        )

    def _incident(self, outage: Outage, row: Item, code: str) -> Iterator[Event]:
        fields = mapping_fields(self.mapping, code)
        body = {
            "label": outage.recorded,
            "reason": outage.reason,
            "user": outage.user,
            "mapping": self.mapping.id,
            "code": code,
        }
        body = {key: value for key, value in body.items() if value}
        name = self.context.incident_id(outage.cluster or "", outage.node, outage.start_us)

        def begin(chain: str, at_us: int) -> Event:
            return self._event(
                EventKind.INCIDENT_OPEN, outage, row, at_us, identity=(chain, at_us), incident=chain, body=body, **fields
            )  # fmt: skip

        def end(chain: str, at_us: int, *, is_told: bool) -> Event:
            # What only a later record tells about the cause is added where the outage ends.
            told = {} if is_told else fields
            return self._event(
                EventKind.INCIDENT_CLOSE, outage, row, at_us, identity=(chain, at_us), incident=chain,
                body={"reason": outage.reason} if told and outage.reason else {}, **told,
            )  # fmt: skip

        has_class = fields.get("class_") is not None
        yield from self._stretch(self.incidents, outage, row, name, begin, end, has_class=has_class)

    def _absence(self, outage: Outage, row: Item) -> Iterator[Event]:
        body = {"basis": "node"}

        def leave(_chain: str, at_us: int) -> Event:
            return self._event(
                EventKind.EXPOSURE_LEAVE, outage, row, at_us, identity=(at_us,), devices=outage.devices, body=body
            )  # fmt: skip

        def join(_chain: str, at_us: int, *, is_told: bool) -> Event:
            del is_told
            return self._event(
                EventKind.EXPOSURE_JOIN, outage, row, at_us, identity=(at_us,), devices=outage.devices, body=body
            )  # fmt: skip

        yield from self._stretch(self.absences, outage, row, "", leave, join, has_class=True)

    def _stretch(
        self,
        chains: OrderedDict[str, _Chain],
        outage: Outage,
        row: Item,
        name: str,
        begin: Callable[[str, int], Event],
        end: Callable[..., Event],
        *,
        has_class: bool,
    ) -> Iterator[Event]:
        """The begin and the end of a record, or what it changes in the one that it touches."""
        key = f"{outage.cluster or ''}/{outage.node}"
        before = chains.pop(key, None)
        if before is not None and before.end_us == outage.start_us != before.begin_us:
            # It goes on: the end that was written for the record before is taken back.
            before.has_class |= has_class and before.end_us is None
            taken_back = before.end_id
            before.end_us, before.end_id = outage.end_us, None
            if outage.end_us is None:
                event = self._goes_on(outage, row, taken_back)
            else:
                event = end(before.name, outage.end_us, is_told=before.has_class or not has_class)
                before.end_id = event.id
            before.has_class |= has_class
            yield _superseding(event, taken_back)
            chain = before
        elif before is not None and outage.end_us == before.begin_us != outage.start_us:
            # Newest first: what is known of this outage began earlier.
            event = begin(before.name, outage.start_us)
            yield _superseding(event, before.begin_id)
            before.begin_us, before.begin_id = outage.start_us, event.id
            chain = before
        else:
            event = begin(name, outage.start_us)
            yield event
            chain = _Chain(outage.start_us, outage.end_us, name, event.id, None, has_class)
            if outage.end_us is not None:
                event = end(name, outage.end_us, is_told=True)
                chain.end_id = event.id
                yield event
        chains[key] = chain
        if len(chains) > NODES_MAX:
            chains.popitem(last=False)

    def _goes_on(self, outage: Outage, row: Item, taken_back: str | None) -> Event:
        return self._event(
            EventKind.ANNOTATION,
            outage,
            row,
            outage.start_us,
            identity=(taken_back or "",),
            body={"reason": "the outage goes on under another state", "state": outage.recorded},
        )

    def _event(
        self,
        kind: str,
        outage: Outage,
        row: Item,
        at_us: int,
        *,
        identity: tuple[str | int, ...],
        **fields: Any,
    ) -> Event:
        event = self.context.event(
            kind,
            row=row,
            t_us=at_us,
            identity=(outage.cluster or "", outage.node, *identity),
            inferred=outage.is_inferred,
            host=outage.node,
            **fields,
        )
        return event if outage.is_inferred else structs.replace(event, clock=_SERVER)


def _superseding(event: Event, taken_back: str | None) -> Event:
    incident = event.links.incident if event.links else None
    return structs.replace(event, links=Links(incident=incident, supersedes=taken_back))
