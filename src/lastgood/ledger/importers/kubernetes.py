"""Kubernetes events: core/v1 and events.k8s.io/v1, as a list (`kubectl get events -A -o json`) or one after another.

An event object stands for a first and a last occurrence and a count between them, which is best effort: the cluster
merges repeats, drops some under load, and forgets all of them after an hour unless told otherwise. So the first and
the last occurrence become events with what they stand for *at least*, and no event shows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Item, Source, json_items

_COUNT_MAX = 2**31 - 1
_DRIVER = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:]{5,20})[^)]{0,20}\):? ?(\d{1,6})\b", re.ASCII
)
LIMITATION = (
    "Kubernetes keeps events for one hour by default, merges repeats and drops some under load: "
    "counts are at least, and a time without events shows nothing"
)


class KubernetesImporter:
    """First and last occurrence of each event object."""

    name = "kubernetes"
    version = "1"
    title = "Kubernetes events (core/v1, events.k8s.io/v1)"

    def recognises(self, head: Head) -> int:
        """The key for the object that the event is about, under its two names."""
        data = head.data
        if b'"involvedObject"' in data and b'"reason"' in data:
            return 97
        if b'"regarding"' in data and b'"events.k8s.io' in data:
            return 97
        return 40 if b'"kind"' in data and b'"EventList"' in data else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Observations, through the table `k8s-reason`."""
        context.note(LIMITATION)
        yield from context.rows(json_items(source, "items"), _Parser(context).parse)


IMPORTER = KubernetesImporter()


class _Seen(NamedTuple):
    """What the object says about time."""

    first_us: int
    last_us: int
    count: int
    is_inferred: bool


class _Parser:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._mapping = context.mapping("k8s-reason")
        self._xid = context.mapping("xid")

    def parse(self, row: Item) -> Iterator[Event]:
        """One event object."""
        event = row.value
        if isinstance(event, dict) and isinstance(event.get("object"), dict):
            event = event["object"]  # as `kubectl get --watch --output-watch-events` wraps it
        if not isinstance(event, dict):
            raise RowProblem("not an event")
        about = _mapping(event, "involvedObject") or _mapping(event, "regarding")
        reason = event.get("reason")
        if event.get("kind") not in (None, "Event") or not about:
            raise RowProblem("an object that is no event")
        if not isinstance(reason, str) or not reason:
            raise RowProblem("an event without a reason")
        seen = self._seen(event)
        self._context.coverage(seen.first_us)
        self._context.coverage(seen.last_us)
        fields = self._fields(event, about, reason)
        is_known = self._mapping.is_listed(reason) or fields["body"]["code"] != reason
        if not is_known and event.get("type") == "Normal":
            self._context.ignore(row, "Normal events of reasons that the table does not list")
            return
        uid = _uid(event)
        body = fields.pop("body")
        yield self._context.event(
            EventKind.OBSERVATION,
            row=row,
            identity=(uid, "first"),
            t_us=seen.first_us,
            inferred=seen.is_inferred,
            body={**body, "at_least": 1},
            **fields,
        )
        if seen.count > 1 and seen.last_us > seen.first_us:
            yield self._context.event(
                EventKind.OBSERVATION,
                row=row,
                identity=(uid, seen.last_us),
                t_us=seen.last_us,
                inferred=seen.is_inferred,
                body={**body, "at_least": seen.count - 1, "count": seen.count},
                **fields,
            )

    def _seen(self, event: Mapping[str, Any]) -> _Seen:
        series = _mapping(event, "series")
        firsts = (
            event.get("firstTimestamp"),
            event.get("deprecatedFirstTimestamp"),
            event.get("eventTime"),
        )
        lasts = (
            series.get("lastObservedTime"),
            event.get("lastTimestamp"),
            event.get("deprecatedLastTimestamp"),
        )
        first, last = self._first_of(firsts), self._first_of(lasts)
        created = self._first_of((_mapping(event, "metadata").get("creationTimestamp"),))
        is_inferred = first is None and last is None
        begin_us = first if first is not None else last if last is not None else created
        if begin_us is None:
            raise RowProblem("an event without any time")
        count = max(
            _count(event.get("count")),
            _count(event.get("deprecatedCount")),
            _count(series.get("count")),
        )
        return _Seen(begin_us, max(begin_us, last or begin_us), count, is_inferred)

    def _first_of(self, texts: tuple[Any, ...]) -> int | None:
        for text in texts:
            if isinstance(text, str) and text and not text.startswith("0001-"):
                return self._context.times.parse(text).t_us
        return None

    def _fields(
        self, event: Mapping[str, Any], about: Mapping[str, Any], reason: str
    ) -> dict[str, Any]:
        message = (
            event.get("message") if isinstance(event.get("message"), str) else event.get("note")
        )
        text = message if isinstance(message, str) else None
        parts = [about.get(key) for key in ("kind", "namespace", "name")]
        host = _host(event, about) or self._context.options.host
        driver = None if text is None else _DRIVER.search(text)
        # A health check that passes a driver's line on says more with its code than with its reason.
        mapping, code = (
            (self._mapping, reason) if driver is None else (self._xid, str(int(driver[2])))
        )
        device = None if driver is None else driver[1].lower()
        body: dict[str, Any] = {
            "label": reason,
            "mapping": mapping.id,
            "code": code,
            "about": "/".join(part for part in parts if isinstance(part, str) and part),
            "text": text,
            "type": event.get("type") if isinstance(event.get("type"), str) else None,
        }
        return {
            "host": host,
            "device": f"{host}/{device}" if host and device else device,
            "body": {key: value for key, value in body.items() if value},
            **mapping_fields(mapping, code),
        }


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 1
    return min(max(value, 1), _COUNT_MAX)


def _uid(event: Mapping[str, Any]) -> str:
    """The object's own id, else its namespace and name, which hold a time stamp."""
    metadata = _mapping(event, "metadata")
    uid = metadata.get("uid")
    if isinstance(uid, str) and uid:
        return uid
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise RowProblem("an event without uid and name")
    return f"{metadata.get('namespace')}/{name}"


def _host(event: Mapping[str, Any], about: Mapping[str, Any]) -> str | None:
    """The node that the event is about, or the one whose kubelet wrote it."""
    name = about.get("name")
    if about.get("kind") == "Node" and isinstance(name, str):
        return name
    for key in ("source", "deprecatedSource"):
        host = _mapping(event, key).get("host")
        if isinstance(host, str) and host:
            return host
    reporter = event.get("reportingComponent") or event.get("reportingController")
    instance = event.get("reportingInstance")
    return instance if reporter == "kubelet" and isinstance(instance, str) and instance else None
