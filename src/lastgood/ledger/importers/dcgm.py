"""Scrapes of the DCGM exporter: what its gauges prove, which is less than a count.

`DCGM_FI_DEV_XID_ERRORS` holds the code of the *last* Xid of a device. It never goes back after a recovery, two equal
codes in a row look like one, and a later code hides the one before. So a code is evidence of at least one Xid, and a
change of the code between two scrapes of one file of at least one more. `DCGM_EXP_XID_ERRORS_COUNT` counts inside a
sliding window: its rise is evidence of at least one more, and its value is never added up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from lastgood.contract.taxonomy import EventKind, Role
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.prometheus_text import Sample, parse_sample, scrape_time
from lastgood.ledger.importers.source import Line, Source

GAUGE = "DCGM_FI_DEV_XID_ERRORS"
COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
XID_MAX = 10_000
"""A larger value is one of DCGM's marks for a missing one."""
_SERIES_MAX = 1_000_000
_WINDOW_MS = 300_000
_CLEANUPS = frozenset((43, 45))
"""Codes that follow another Xid. Where no other was seen, the gauge hides it: then they stand for an unknown one."""
_BUS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?")
LIMITATION = (
    "the exporter's gauge holds the last code of a device only: each event is evidence of at least one Xid, "
    "repeats and hidden codes are not seen, and no rate can be made of it"
)


class DcgmImporter:
    """Evidence of at least one Xid, per device and code."""

    name = "dcgm"
    version = "1"
    title = "DCGM exporter scrapes (Prometheus text)"

    def recognises(self, head: Head) -> int:
        """The prefix of the exporter's metrics."""
        if b"DCGM_FI_" in head.data or b"DCGM_EXP_" in head.data:
            return 90 if head.data.lstrip()[:1] in {b"#", b"D"} else 60
        return 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Observations, through the table `xid`."""
        context.note(LIMITATION)
        yield from context.rows(source.lines(), _Scrapes(context, source.mtime_us).parse)


IMPORTER = DcgmImporter()


class _Scrapes:
    """What the series of one file said so far."""

    def __init__(self, context: Context, mtime_us: int | None) -> None:
        self._context = context
        self._mapping = context.mapping("xid")
        self._mtime_us = mtime_us
        self._scrape_us: int | None = None
        self._is_scrape_inferred = False
        self._last_code: dict[str, int] = {}
        self._last_count: dict[tuple[str, int], float] = {}
        self._changes: dict[tuple[str, int], int] = {}

    def parse(self, line: Line) -> Iterator[Event]:
        """One line."""
        text = line.text.strip()
        if not text:
            self._context.ignore(line, "empty lines")
        elif text.startswith("#"):
            self._read_comment(text)
            self._context.ignore(line, "comment lines")
        elif not text.startswith((GAUGE, COUNT)):
            self._context.ignore(line, "samples of other metrics")
        else:
            sample = parse_sample(text)
            if sample.metric == GAUGE:
                yield from self._gauge(line, sample)
            elif sample.metric == COUNT:
                yield from self._count(line, sample)
            else:
                self._context.ignore(line, "samples of other metrics")

    def _read_comment(self, text: str) -> None:
        stamp = scrape_time(text)
        if stamp is not None:
            self._scrape_us, self._is_scrape_inferred = self._context.times.parse(stamp)
            self._context.coverage(self._scrape_us)

    def _time(self, sample: Sample) -> tuple[int, bool]:
        """When the sample was taken: its own stamp, the comment above it, else when the file was written."""
        if sample.stamp is not None:
            # The exposition format has milliseconds, OpenMetrics seconds; the size tells.
            return self._context.times.epoch(sample.stamp)
        if self._scrape_us is not None:
            return self._scrape_us, self._is_scrape_inferred
        if self._mtime_us is None:
            raise RowProblem(
                "no time of the scrape", "a time stamp, a comment with the time, or a file"
            )
        return self._mtime_us, True

    def _gauge(self, line: Line, sample: Sample) -> Iterator[Event]:
        code, (t_us, inferred) = _code(sample.value), self._time(sample)
        self._context.coverage(t_us)
        series = _series(sample, self._context)
        before = self._last_code.get(series)
        if before is None and len(self._last_code) >= _SERIES_MAX:
            raise RowProblem("more devices than can be held")
        self._last_code[series] = code
        if code == 0:
            self._context.ignore(line, "devices without an Xid")
        elif code == before:
            self._context.ignore(line, "the same last code as in the scrape before")
        else:
            number = self._changes.get((series, code), 0)
            self._changes[series, code] = number + 1
            # The gauge never resets, so the same code in another file proves nothing new: no time in the identity.
            identity = (series, code, number)
            is_lone = code in _CLEANUPS and not before
            yield self._event(
                line, sample, code, identity, t_us=t_us, inferred=inferred, is_lone=is_lone
            )

    def _count(self, line: Line, sample: Sample) -> Iterator[Event]:
        xid = sample.labels.get("xid") or sample.labels.get("err_code")
        if xid is None and sample.value == 0:  # so the exporter says that a device has none
            self._context.ignore(line, "devices without an Xid")
            return
        if xid is None:
            raise RowProblem("a count of Xids without its Xid")
        if not math.isfinite(
            sample.value
        ):  # `1e999` and `+Inf` are numbers to the format, and no counts
            raise RowProblem("a value that is no count", str(sample.value))
        code = _code(_number(xid))
        t_us, inferred = self._time(sample)
        self._context.coverage(t_us)
        series = _series(sample, self._context)
        before = self._last_count.get((series, code), 0.0)
        if (series, code) not in self._last_count and len(self._last_count) >= _SERIES_MAX:
            raise RowProblem("more devices than can be held")
        self._last_count[series, code] = sample.value
        if code == 0 or not sample.value > before:
            self._context.ignore(line, "windows without one more Xid")
            return
        window_ms = int(_number(sample.labels.get("window_size_in_ms", ""))) or _WINDOW_MS
        # Scrapes of one window in several files show one and the same Xid.
        bin_number = t_us // (max(1, window_ms) * 1000)
        identity = (series, code, "window", bin_number, 0 if before == 0 else round(sample.value))
        yield self._event(
            line, sample, code, identity, t_us=t_us, inferred=inferred, window_ms=window_ms
        )

    def _event(
        self,
        line: Line,
        sample: Sample,
        code: int,
        identity: tuple[str | int, ...],
        *,
        t_us: int,
        inferred: bool,
        window_ms: int | None = None,
        is_lone: bool = False,
    ) -> Event:
        labels = sample.labels
        host = _host(labels) or self._context.options.host
        body: dict[str, Any] = {
            "mapping": self._mapping.id,
            "code": str(code),
            "at_least": 1,
            "evidence": "a rise inside a sliding window"
            if window_ms
            else "the last code of a gauge",
            "uuid": labels.get("UUID"),
            "text": labels.get("err_msg"),
            "window_ms": window_ms,
            "lone": is_lone,
        }
        fields = mapping_fields(self._mapping, str(code))
        if is_lone:
            fields["role"] = str(Role.UNKNOWN)
        driver = labels.get("DCGM_FI_DRIVER_VERSION")
        return self._context.event(
            EventKind.OBSERVATION,
            row=line,
            identity=identity,
            # The Xid itself came at some moment before the scrape: that is when it was seen.
            t_us=t_us,
            observed_us=t_us,
            inferred=inferred,
            host=host,
            device=_device(labels, host),
            body={key: value for key, value in body.items() if value},
            versions={"driver": driver} if driver else {},
            **fields,
        )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def _code(value: float) -> int:
    if value != value or not 0 <= value <= XID_MAX or value != int(value):  # noqa: PLR0124 - NaN
        raise RowProblem("a value that is no Xid", str(value))
    return int(value)


def _host(labels: dict[str, str]) -> str | None:
    for key in ("Hostname", "hostname", "node", "host"):
        if labels.get(key):
            return labels[key]
    return None


def _device(labels: dict[str, str], host: str | None) -> str | None:
    """`host/bus` as the kernel's lines name it, else the index, else the UUID."""
    name = _bus(labels.get("pci_bus_id")) or labels.get("gpu") or labels.get("UUID")
    return f"{host}/{name}" if name and host else name


def _bus(text: str | None) -> str | None:
    """`0000:41:00` for `00000000:41:00.0`: NVML writes the domain with eight digits, the kernel with four."""
    match = None if text is None else _BUS.fullmatch(text)
    return text if match is None else f"{int(match[1], 16):04x}:{match[2].lower()}"


def _series(sample: Sample, context: Context) -> str:
    """Which device: its UUID, else its host and number."""
    labels = sample.labels
    uuid = labels.get("UUID")
    if uuid:
        return uuid
    name = labels.get("gpu") or labels.get("device") or labels.get("pci_bus_id")
    if name is None:
        raise RowProblem("a sample without a device")
    return f"{_host(labels) or context.options.host or ''}/{name}"
