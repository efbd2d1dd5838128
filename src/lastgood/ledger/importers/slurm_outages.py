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
from lastgood.ledger.importers.times import ParsedTime
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
    start_name_us: int
    """The start as it was written, whatever zone was assumed for it: what names are made of."""
    end_name_us: int | None
    is_inferred: bool
    state: str
    recorded: str
    """The state as it was written."""
    reason: str
    user: str | None
    devices: int | None

    def name_of(self, at_us: int) -> int:
        """The start or the end of it, as it was written."""
        if at_us == self.start_us or self.end_name_us is None:
            return self.start_name_us
        return self.end_name_us


@dataclass(frozen=True, slots=True)
class _Said:
    """What a record says about the cause."""

    reason: str = ""
    code: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    def or_fuller(self, later: _Said) -> _Said:
        """This one, or the one that came later when it explains more.

        A class says more than none; within one class a known cause says more than an unknown one. A node that went
        down and is then drained for its repair was down, and not in maintenance.
        """
        mine, theirs = self.fields.get("class_"), later.fields.get("class_")
        if mine is None:
            return later if theirs is not None else self
        is_cause_new = self._is_open() and not later._is_open()
        return later if mine == theirs and is_cause_new else self

    def _is_open(self) -> bool:
        return self.fields.get("cause") in {None, "unknown"}


@dataclass(slots=True)
class _Chain:
    """Records of one node that touch: from the first begin to the last end."""

    begin_us: int
    end_us: int | None
    name: str
    begin_id: str
    end_id: str | None
    said: _Said
    """What is known of its cause by now."""
    opened_with: _Said
    """What its first event says; the rest is told where it ends."""


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

    def join(self, node: Outage, row: Item, at: ParsedTime) -> Event:
        """A node is at risk from this moment on."""
        return self._event(
            EventKind.EXPOSURE_JOIN,
            node,
            row,
            at.t_us,
            identity=(at.name_us,),
            devices=node.devices,
            body={"basis": "node", "state": node.recorded},
        )

    def _incident(self, outage: Outage, row: Item, code: str) -> Iterator[Event]:
        own = _Said(outage.reason, code, mapping_fields(self.mapping, code))
        name = self.context.incident_id(outage.cluster or "", outage.node, outage.start_name_us)

        def begin(chain: str, at_us: int, said: _Said) -> Event:
            told = {"label": outage.recorded, "reason": outage.reason, "user": outage.user}
            body = {key: value for key, value in told.items() if value}
            body |= {"mapping": self.mapping.id, "code": said.code}
            return self._event(
                EventKind.INCIDENT_OPEN, outage, row, at_us, identity=(chain, outage.name_of(at_us)), incident=chain, body=body,
                **said.fields,
            )  # fmt: skip

        def end(kind: str, chain: str, at_us: int, said: _Said | None) -> Event:
            # What only a later record tells about the cause is added where the outage ends, or goes on.
            fields = {} if said is None else said.fields
            body = {} if said is None else {"mapping": self.mapping.id, "code": said.code}
            if said is not None and said.reason:
                body["reason"] = said.reason
            return self._event(
                kind, outage, row, at_us, identity=(chain, outage.name_of(at_us)), incident=chain, body=body, **fields
            )  # fmt: skip

        yield from self._stretch(self.incidents, outage, name, own, begin, end)

    def _absence(self, outage: Outage, row: Item) -> Iterator[Event]:
        def change(kind: str, at_us: int) -> Event:
            devices = None if kind == EventKind.ANNOTATION else outage.devices
            return self._event(
                kind, outage, row, at_us, identity=("exposure", outage.name_of(at_us)), devices=devices, body={"basis": "node"}
            )  # fmt: skip

        def leave(_chain: str, at_us: int, _said: _Said) -> Event:
            return change(EventKind.EXPOSURE_LEAVE, at_us)

        def join(kind: str, _chain: str, at_us: int, _said: _Said | None) -> Event:
            is_back = kind == EventKind.INCIDENT_CLOSE
            return change(EventKind.EXPOSURE_JOIN if is_back else kind, at_us)

        yield from self._stretch(self.absences, outage, "", _Said(), leave, join)

    def _stretch(
        self,
        chains: OrderedDict[str, _Chain],
        outage: Outage,
        name: str,
        own: _Said,
        begin: Callable[[str, int, _Said], Event],
        end: Callable[[str, str, int, _Said | None], Event],
    ) -> Iterator[Event]:
        """The begin and the end of a record, or what it changes in the one that it touches."""
        key = f"{outage.cluster or ''}/{outage.node}"
        chain = chains.pop(key, None)
        if chain is not None and chain.end_us == outage.start_us != chain.begin_us:
            # It goes on: the end that was written for the record before is taken back.
            said = chain.said.or_fuller(own)
            is_over = outage.end_us is not None
            kind = EventKind.INCIDENT_CLOSE if is_over else EventKind.ANNOTATION
            at_us = outage.start_us if outage.end_us is None else outage.end_us
            event = end(kind, chain.name, at_us, None if said is chain.opened_with else said)
            yield _superseding(event, chain.end_id)
            chain.end_us, chain.end_id = outage.end_us, event.id if is_over else None
            chain.said = said
        elif chain is not None and outage.end_us == chain.begin_us != outage.start_us:
            # Newest first: what is known of this outage began earlier.
            chain.said = own.or_fuller(chain.said)
            event = begin(chain.name, outage.start_us, chain.said)
            yield _superseding(event, chain.begin_id)
            chain.begin_us, chain.begin_id = outage.start_us, event.id
            chain.opened_with = chain.said
        else:
            event = begin(name, outage.start_us, own)
            yield event
            chain = _Chain(outage.start_us, outage.end_us, name, event.id, None, own, own)
            if outage.end_us is not None:
                event = end(EventKind.INCIDENT_CLOSE, name, outage.end_us, None)
                chain.end_id = event.id
                yield event
        chains[key] = chain
        if len(chains) > NODES_MAX:
            chains.popitem(last=False)

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
