"""Alerts as Alertmanager sends them to a webhook (version 4), one message or many, as one file or a line each.

An alert is named by its fingerprint and its start, so a message that is sent again changes nothing. It is an incident
that opens at `startsAt` and closes at `endsAt` once it is resolved; a zero `endsAt` is an alert that still fires. What
Alertmanager left out of a message for its length (`truncatedAlerts`) is counted as a known loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import Broken, part_of
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Item, Source, json_items

_ZERO_TIME = "0001-01-01"
_HOST_LABELS = (
    "Hostname", "hostname", "exported_hostname", "node", "nodename", "kubernetes_node", "host", "instance",
)  # fmt: skip
_DEVICE_LABELS = ("pci_bus_id", "gpu", "gpu_index", "minor_number", "UUID", "uuid")
_XID_LABELS = ("err_code", "xid", "XID", "xid_code")
_PORT = re.compile(r"^(?:[a-z]+://)?(\[[0-9a-fA-F:.]+\]|[^:/]+):\d{1,5}(?:/.*)?$")
_GROUPS_MAX = 100_000


class AlertmanagerImporter:
    """One incident per fingerprint and start."""

    name = "alertmanager"
    version = "1"
    title = "Alertmanager webhook messages (version 4)"

    def recognises(self, head: Head) -> int:
        """The keys of the message, or those of a list of alerts from the API."""
        if b'"alerts"' in head.data and b'"startsAt"' in head.data:
            return 97 if b'"groupKey"' in head.data else 80
        if b'"startsAt"' in head.data and b'"fingerprint"' in head.data:
            return 75
        return 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """An opening event for each alert, and a closing one when it is resolved."""
        alerts = _Alerts(context)
        yield from context.rows(alerts.of(json_items(source)), alerts.parse)


IMPORTER = AlertmanagerImporter()


class _Alerts:
    """The alerts of all messages, as rows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lost: dict[str, int] = {}

    def of(self, messages: Iterator[Item]) -> Iterator[Item]:
        """Each alert as a row of its own, so that a broken one costs itself only."""
        for message in messages:
            value = message.value
            alerts = value.get("alerts") if isinstance(value, dict) else None
            if not isinstance(alerts, list):
                yield message
                continue
            self._count_lost(value)
            if not alerts:
                yield Item(message.number, message.raw, None)
            for alert in alerts:
                kept = alert if isinstance(alert, dict) else Broken("an alert that is no object")
                yield part_of(message, alert, kept)

    def _count_lost(self, message: Mapping[str, Any]) -> None:
        """A message that is sent again leaves out the same alerts: the most per group counts."""
        count = message.get("truncatedAlerts")
        if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
            return
        group = str(message.get("groupKey"))
        known = self._lost.get(group, 0)
        if count > known and (known or len(self._lost) < _GROUPS_MAX):
            self._context.known_loss(
                count - known, "alerts that Alertmanager left out of a message"
            )
            self._lost[group] = count

    def parse(self, row: Item) -> Iterator[Event]:
        """One alert as its events."""
        alert = row.value
        if alert is None:
            self._context.ignore(row, "messages without alerts")
            return
        if not isinstance(alert, dict) or "startsAt" not in alert:
            raise RowProblem("neither a message nor an alert")
        labels = _texts(alert.get("labels"))
        begin_us, inferred = self._context.times.parse(_text(alert, "startsAt"))
        self._context.coverage(begin_us)
        incident = self._context.incident_id(_fingerprint(alert, labels), begin_us)
        fields = self._fields(alert, labels)
        if fields.get("class_") is None and fields.pop("is_listed"):
            yield self._context.event(
                EventKind.OBSERVATION,
                row=row,
                identity=(incident,),
                t_us=begin_us,
                inferred=inferred,
                **fields,
            )
            return
        fields.pop("is_listed", None)
        yield self._context.event(
            EventKind.INCIDENT_OPEN,
            row=row,
            identity=(incident,),
            t_us=begin_us,
            inferred=inferred,
            incident=incident,
            **fields,
        )
        end_us = self._end(alert)
        if end_us is None:
            return
        if end_us < begin_us:
            raise RowProblem("an alert that ends before it starts")
        self._context.coverage(end_us)
        yield self._context.event(
            EventKind.INCIDENT_CLOSE,
            row=row,
            identity=(incident,),
            t_us=end_us,
            incident=incident,
            host=fields["host"],
        )

    def _end(self, alert: Mapping[str, Any]) -> int | None:
        """When it was resolved. An alert that fires has the time-out of its next renewal there, or zero."""
        status = alert.get("status")
        end = alert.get("endsAt")
        if status != "resolved" or end is None:
            return None
        text = _text(alert, "endsAt")
        return None if text.startswith(_ZERO_TIME) else self._context.times.parse(text).t_us

    def _fields(self, alert: Mapping[str, Any], labels: dict[str, str]) -> dict[str, Any]:
        xids = (labels[key] for key in _XID_LABELS if labels.get(key, "").isdecimal())
        xid = next((str(int(text)) for text in xids if len(text) < 7), "0")
        name = labels.get("alertname", "")
        code, table = (xid, "xid") if xid != "0" else (name, "alert")
        mapping = self._context.mapping(table)
        host = _host(labels) or self._context.options.host
        annotations = _texts(alert.get("annotations"))
        words = [
            annotations[key] for key in ("summary", "description", "message") if key in annotations
        ]
        body: dict[str, Any] = {
            "label": name, "labels": labels, "mapping": mapping.id, "code": code, "text": "; ".join(words),
        }  # fmt: skip
        return {
            "host": host,
            "device": _device(labels, host),
            "domain": [(kind, labels[kind]) for kind in ("rack", "switch") if labels.get(kind)],
            "body": {key: value for key, value in body.items() if value},
            "is_listed": mapping.is_listed(code),
            **mapping_fields(mapping, code),
        }


def _text(alert: Mapping[str, Any], key: str) -> str:
    value = alert.get(key)
    if not isinstance(value, str):
        raise RowProblem(f"{key} is not text")
    return value


def _texts(labels: Any) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise RowProblem("labels that are no mapping")
    return {str(key): value for key, value in labels.items() if isinstance(value, str)}


def _fingerprint(alert: Mapping[str, Any], labels: dict[str, str]) -> str:
    """Alertmanager's own, or one of the labels where an older version sent none."""
    given = alert.get("fingerprint")
    if isinstance(given, str) and given:
        return given
    if not labels:
        raise RowProblem("neither a fingerprint nor labels")
    return sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


def _host(labels: dict[str, str]) -> str | None:
    for key in _HOST_LABELS:
        if labels.get(key):
            match = _PORT.match(labels[key])
            return match[1] if match else labels[key]
    return None


def _device(labels: dict[str, str], host: str | None) -> str | None:
    """`host/bus` or `host/index`; the bare UUID where no host is named."""
    for key in _DEVICE_LABELS:
        if labels.get(key):
            return f"{host}/{labels[key]}" if host else labels[key]
    return None
