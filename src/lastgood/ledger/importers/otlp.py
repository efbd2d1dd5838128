"""OpenTelemetry logs as JSON (`resourceLogs`), as one request, a line each, or one after another.

Its two times are ours: `timeUnixNano` is when it happened, `observedTimeUnixNano` when a collector saw it. A record
that carries a driver's line is read like a line of a kernel log. Of the rest, warnings and errors are kept as they
are, and only a fatal one states a failure: a logged error may well have been handled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import structs

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import Broken, part_of
from lastgood.ledger.importers.kernel import DriverReader, settle
from lastgood.ledger.importers.source import Item, Source, json_items

SEVERITY_WARN = 13
SEVERITY_FATAL = 21
_DEPTH_MAX = 16
_WORDS = {
    "TRACE": 1,
    "DEBUG": 5,
    "INFO": 9,
    "WARN": 13,
    "WARNING": 13,
    "ERROR": 17,
    "FATAL": 21,
    "CRITICAL": 21,
}
_HOST_KEYS = ("host.name", "k8s.node.name", "host.id", "net.host.name")
_KEPT_ATTRIBUTES_MAX = 64


class _Scope(NamedTuple):
    """What all records of one resource share."""

    resource: dict[str, Any]
    record: Any


class OtlpImporter:
    """Log records with a failure in them, or a severity of at least WARN."""

    name = "otlp"
    version = "1"
    title = "OpenTelemetry logs (OTLP JSON)"

    def recognises(self, head: Head) -> int:
        """The key at the top of every request."""
        return 97 if b'"resourceLogs"' in head.data else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Observations; severities below WARN are counted as ignored."""
        records = _Records(context)
        rows = records.of(json_items(source, "resourceLogs"))
        yield from settle(context.rows(rows, records.parse), context)


IMPORTER = OtlpImporter()


class _Records:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._driver = DriverReader(context)

    def of(self, resources: Iterator[Item]) -> Iterator[Item]:
        """Each log record as a row of its own."""
        for item in resources:
            value = item.value
            if not isinstance(value, dict) or not isinstance(value.get("scopeLogs"), list):
                yield item
                continue
            resource = value.get("resource")
            shared: dict[str, Any] = {}
            if isinstance(resource, dict):
                shared = _attributes(resource.get("attributes"))
                self._count_lost(resource)
            for scope in value["scopeLogs"]:
                yield from self._of_scope(item, scope, shared)

    def _of_scope(self, item: Item, scope: Any, shared: dict[str, Any]) -> Iterator[Item]:
        records = scope.get("logRecords", []) if isinstance(scope, dict) else None
        if not isinstance(records, list):
            yield part_of(item, scope, Broken("scopeLogs without a list of logRecords"))
            return
        if not records:
            yield part_of(item, scope, None)
        for record in records:
            kept = (
                _Scope(shared, record)
                if isinstance(record, dict)
                else Broken("a record that is no object")
            )
            yield part_of(item, record, kept)

    def _count_lost(self, holder: Mapping[str, Any]) -> None:
        count = holder.get("droppedAttributesCount")
        if isinstance(count, int) and not isinstance(count, bool) and 0 < count < 2**31:
            self._context.known_loss(count, "attributes that the sender left out")

    def parse(self, row: Item) -> Iterable[Event]:
        """One record."""
        if row.value is None:
            self._context.ignore(row, "scopes without records")
            return ()
        if not isinstance(row.value, _Scope):
            raise RowProblem("no resourceLogs with scopeLogs")
        record, resource = row.value.record, row.value.resource
        self._count_lost(record)
        occurred_us = _nanos(record.get("timeUnixNano"))
        observed_us = _nanos(record.get("observedTimeUnixNano"))
        moment_us = occurred_us if occurred_us is not None else observed_us
        if moment_us is None:
            raise RowProblem("a record without any time")
        self._context.coverage(moment_us)
        body = _any_value(record.get("body"), 0)
        attributes = _attributes(record.get("attributes"))
        host = _host(attributes) or _host(resource) or self._context.options.host
        if isinstance(body, str):
            found = self._driver.parse_message(row, body, t_us=moment_us, host=host)
            if found is not None:
                return [structs.replace(e, t_observed_us=observed_us) for e in found]
        severity = _severity(record)
        if severity < SEVERITY_WARN:
            self._context.ignore(row, "records below WARN that name no failure")
            return ()
        kept: dict[str, Any] = {
            "text": body if isinstance(body, str) else None,
            "value": None if isinstance(body, str) else body,
            "severity": severity,
            "event": record.get("eventName") if isinstance(record.get("eventName"), str) else None,
            "attributes": dict(list(attributes.items())[:_KEPT_ATTRIBUTES_MAX]),
        }
        event = self._context.event(
            EventKind.OBSERVATION,
            row=row,
            scope=host,
            t_us=moment_us,
            observed_us=observed_us,
            # Without a time of its own it happened at some moment before it was seen.
            inferred=occurred_us is None,
            host=host,
            body={key: value for key, value in kept.items() if value not in (None, {}, [])},
            **_plain_fields(severity, attributes),
        )
        return (event,)


def _plain_fields(severity: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    symptom = "exception" if "exception.type" in attributes else None
    if severity >= SEVERITY_FATAL:
        return {
            "class_": "fail_stop", "cause": "unknown", "cause_status": "unknown",
            "symptom": symptom or "process_exit", "role": "unknown",
        }  # fmt: skip
    return {"symptom": symptom, "role": "unknown"} if symptom else {}


def _severity(record: Mapping[str, Any]) -> int:
    number = record.get("severityNumber")
    if isinstance(number, str):  # the name of the value, as older senders write it
        number = int(number) if number.isdecimal() and len(number) < 3 else _named(number)
    if isinstance(number, int) and not isinstance(number, bool) and 0 < number <= 24:
        return number
    text = record.get("severityText")
    return _WORDS.get(text.upper(), 0) if isinstance(text, str) else 0


def _named(name: str) -> int:
    """17 for `SEVERITY_NUMBER_ERROR`, 18 for `SEVERITY_NUMBER_ERROR2`; 0 for another word."""
    word = name.upper().removeprefix("SEVERITY_NUMBER_")
    step = int(word[-1]) - 1 if word[-1:] in {"2", "3", "4"} else 0
    base = _WORDS.get(word.rstrip("234"), 0)
    return base + step if base else 0


def _nanos(value: Any) -> int | None:
    """64-bit integers are texts in OTLP's JSON; zero is *not known*."""
    if value is None or value in ("", "0", 0):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise RowProblem("a time that is no number of nanoseconds")
    if isinstance(value, str) and not value.isdecimal():
        raise RowProblem("a time that is no number of nanoseconds", value[:40])
    micros = int(value) // 1000
    if not 631_152_000_000_000 <= micros <= 4_102_444_800_000_000:
        raise RowProblem("a time outside of 1990 to 2100", str(value)[:24])
    return micros


def _attributes(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict) and isinstance(pair.get("key"), str):
            found.setdefault(pair["key"], _any_value(pair.get("value"), 0))
    return found


def _any_value(value: Any, depth: int) -> Any:
    """A value of OTLP's union as plain data."""
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return None
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in value:
            return value[key]
    if "intValue" in value:
        number = value["intValue"]
        return int(number) if isinstance(number, str) and number.lstrip("-").isdecimal() else number
    for key in ("arrayValue", "kvlistValue"):
        inner = value.get(key)
        values = inner.get("values") if isinstance(inner, dict) else None
        if isinstance(values, list) and key == "arrayValue":
            return [_any_value(item, depth + 1) for item in values]
        if isinstance(values, list):
            return {
                item["key"]: _any_value(item.get("value"), depth + 1)
                for item in values
                if isinstance(item, dict) and isinstance(item.get("key"), str)
            }
    return None


def _host(attributes: Mapping[str, Any]) -> str | None:
    for key in _HOST_KEYS:
        if isinstance(attributes.get(key), str) and attributes[key]:
            return attributes[key]
    return None
