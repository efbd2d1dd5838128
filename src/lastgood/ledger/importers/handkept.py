"""An incident log that people keep by hand: start, stop, what happened, and why.

Every entry becomes an incident, open while no stop is written down. The words stay as they were written, masked; what
they say about class and cause is read with a short list of words and is worth no more than that. A time without a
zone or a year is marked as inferred, and a stop without a day is that of the start, or the next one.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lastgood.contract.taxonomy import Cause, EventKind, FailureClass
from lastgood.ledger.event import Event
from lastgood.ledger.importers.cause_words import class_of, find_word
from lastgood.ledger.importers.handkept_entries import (
    LINES_LOOKED_AT,
    UNIT,
    csv_entries,
    has_other_shapes,
    shape_of,
)
from lastgood.ledger.importers.handkept_mixed import RESTATED, is_dated, read_mixed
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.people_times import (
    is_missing,
    is_still_open,
    is_two_days,
    order_of,
    parse_people_time,
)
from lastgood.ledger.importers.source import Item, Source
from lastgood.ledger.importers.table_rows import sniff_delimiter
from lastgood.ledger.importers.times import DAY_US, ParsedTime

_SCORES = {"table": 70, "yaml": 65, "csv": 58, "block": 45, "list": 40}
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_HOST_IN_TEXT = re.compile(
    r"\b(?:host|node|server|machine)\s*[:=]?\s+([A-Za-z][\w.\-]{0,60}\d[\w.\-]{0,60})",
    re.IGNORECASE,
)
_LENGTH = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,6}})?)\s?{UNIT},?")
_UNITS_US = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": DAY_US, "w": 7 * DAY_US}
_HOSTS_MAX = 1_000
_PLACES_MAX = 65_536
READING = (
    "class and cause are read from people's words: planned, slow or wrong results where a word says so, else "
    "fail_stop; a cause at most supported, unknown where no word is on the list"
)


class HandkeptImporter:
    """One incident per entry."""

    name = "handkept"
    version = "1"
    title = "hand-kept incident log (Markdown table or list, CSV, YAML list)"

    def recognises(self, head: Head) -> int:
        """By headings that mean a start and a what, in any of the four shapes."""
        if head.data.lstrip()[:1] == b"{" or b"\x00" in head.data[:1024]:
            return 0
        return _SCORES.get(shape_of(head.text) or "", 0)

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """An opening event for each entry, and a closing one where a stop is written down."""
        text = source.head.decode(errors="replace")
        shape = shape_of(text)
        if shape == "csv" and has_other_shapes(text):
            shape = "mixed"
        if shape is None and any(map(is_dated, text.splitlines()[:LINES_LOOKED_AT])):
            shape = "mixed"
        if shape is None:
            raise RowProblem(
                "no entry with a start and a what", "a Markdown table or list, CSV, or a YAML list"
            )
        context.note(READING)
        lines = source.lines()
        is_csv = shape == "csv"
        entries = csv_entries(lines, sniff_delimiter(text)) if is_csv else read_mixed(lines)
        order = order_of(text)
        if order is not None:
            context.note(
                f"dates such as 03/04/2026 are read {order}, as others of this file must be, and marked"
            )
        yield from context.rows(entries, _Parser(context, order).parse)


IMPORTER = HandkeptImporter()


class _Cause(NamedTuple):
    """What the words say, and through which word."""

    fields: dict[str, Any]
    code: str | None


class _Parser:
    def __init__(self, context: Context, order: str | None) -> None:
        self._context = context
        self._order = order
        self._mapping = context.mapping("cause-words")
        self._counts: OrderedDict[tuple[int, str], int] = OrderedDict()

    def parse(self, row: Item) -> Iterator[Event]:
        """One entry."""
        entry = row.value
        if entry is None:
            self._context.ignore(row, "headings, rules and prose between the entries")
            return
        if entry == RESTATED:
            self._context.ignore(row, RESTATED)
            return
        if not entry:
            self._context.ignore(row, "empty entries")
            return
        start_text = _start_text(entry)
        begin = self._time(start_text)
        end = self._end(entry, start_text, begin)
        self._context.coverage(begin.t_us)
        hosts = _hosts(entry) or [name for name in (self._context.options.host,) if name]
        place = (begin.name_us, entry.get("id") or ",".join(hosts))
        # The start as it was written, so that another --zone finds the incident again. And not the words: people mend those later, and a stop or a cause that is added must find its incident.
        number = self._counts.pop(place, 0)
        incident = self._context.incident_id(*place, number)
        said = self._fields(entry)
        shared: dict[str, Any] = {
            "row": row,
            "incident": incident,
            "host": hosts[0] if hosts else None,
            "device": _device(entry, hosts),
            "domain": [("host", name) for name in hosts[1:]]
            + [("rack", n) for n in (entry.get("rack"),) if n],
            **said.fields,
        }
        events = [
            self._context.event(
                EventKind.INCIDENT_OPEN,
                identity=(incident,),
                t_us=begin.t_us,
                inferred=begin.is_inferred,
                body=self._body(entry, said.code),
                **shared,
            )
        ]
        if end is not None:
            self._context.coverage(end.t_us)
            events.append(
                self._context.event(
                    EventKind.INCIDENT_CLOSE,
                    identity=(incident, end.name_us),
                    t_us=end.t_us,
                    inferred=end.is_inferred,
                    **shared,
                )
            )
        self._counts[place] = number + 1
        if len(self._counts) > _PLACES_MAX:
            self._counts.popitem(last=False)
        yield from events

    def _time(self, text: str) -> ParsedTime:
        """A time; a date that can be two days is read as the others of the file are, and is marked."""
        found = parse_people_time(text, self._context.times, order=self._order)
        return found.later(0, is_inferred=True) if is_two_days(text) else found

    def _end(
        self, entry: Mapping[str, str], start_text: str, begin: ParsedTime
    ) -> ParsedTime | None:
        """The stop as it is written, by its clock alone, or by the duration; None while it is open."""
        text = entry.get("stop")
        if text is not None and not is_still_open(text):
            if _CLOCK.fullmatch(text.strip()):
                return self._end_by_clock(text.strip(), start_text, begin)
            end = self._time(text)
            if end.t_us < begin.t_us:
                raise RowProblem("an entry that stops before it starts")
            return end
        duration = entry.get("duration")
        if duration is None or is_missing(duration):
            return None
        return begin.later(_length_us(duration))

    def _end_by_clock(self, clock: str, start_text: str, begin: ParsedTime) -> ParsedTime:
        found = _CLOCK.search(start_text)
        if found is None:
            raise RowProblem("a stop with a clock for a start without one")
        end = self._time(start_text[: found.start()] + clock + start_text[found.end() :])
        if end.t_us >= begin.t_us:
            return end
        self._context.note(
            "a stop without a day that lies before its start is taken for the next day, and marked"
        )
        return end.later(DAY_US, is_inferred=True)

    def _fields(self, entry: Mapping[str, str]) -> _Cause:
        """Class and cause, as far as the words go."""
        cause_text, what = entry.get("cause", ""), entry.get("what", "")
        said = entry.get("class", "").strip().lower().replace("-", "_").replace(" ", "_")
        class_ = said if said in set(FailureClass) else class_of(f"{said} {what} {cause_text}")
        fields: dict[str, Any] = {"class_": class_ or str(FailureClass.FAIL_STOP)}
        exact = cause_text.strip().lower()
        if exact in set(Cause):
            status = "unknown" if exact == Cause.UNKNOWN else "supported"
            return _Cause(fields | {"cause": exact, "cause_status": status}, None)
        word = find_word(cause_text, self._mapping)
        is_hint = word is None
        word = find_word(what, self._mapping) if word is None else word
        row = None if word is None else self._mapping.row(word)
        if row is None:
            return _Cause(fields | {"cause": "unknown", "cause_status": "unknown"}, None)
        status = "hypothesis" if is_hint and row.cause != "unknown" else row.cause_status
        found = {"cause": row.cause, "cause_status": status, "symptom": row.symptom}
        return _Cause(fields | {key: value for key, value in found.items() if value}, word)

    def _body(self, entry: Mapping[str, str], code: str | None) -> dict[str, Any]:
        body: dict[str, Any] = {
            "text": "\n".join(t for t in (entry.get("what"), entry.get("notes")) if t),
            "cause_text": entry.get("cause"),
            "label": entry.get("cause") or entry.get("class"),
            "id": entry.get("id"),
        }
        if code is not None:
            # Not as `mapping` and `code`: the class is not of that table, and re-mapping would drop it.
            body |= {"word_list": self._mapping.id, "word": code}
        return {key: value for key, value in body.items() if value}


def _start_text(entry: Mapping[str, str]) -> str:
    """The start; a day and a clock in two columns are one time."""
    start, date = entry.get("start", ""), entry.get("date", "")
    if is_missing(start) and is_missing(date):
        raise RowProblem("an entry without a start")
    if _CLOCK.fullmatch(start.strip()):
        if is_missing(date):
            raise RowProblem("a start with a clock and without a day")
        return f"{date.strip()} {start.strip()}"
    return start if not is_missing(start) else date


def _length_us(text: str) -> int:
    """Microseconds of `90 min`, `1.5 hours` or `2 days 4 h`."""
    parts = _LENGTH.findall(text.lower())
    if not parts or _LENGTH.sub("", text.lower()).strip(" ,~"):
        raise RowProblem("a duration without a unit", text)
    return sum(round(float(number) * _UNITS_US[unit[0]]) for number, unit in parts)


def _hosts(entry: Mapping[str, str]) -> list[str]:
    text = entry.get("host")
    if text is not None and not is_missing(text):
        return list(dict.fromkeys(name for name in re.split(r"[,;\s]+", text) if name))[:_HOSTS_MAX]
    return list(dict.fromkeys(_HOST_IN_TEXT.findall(entry.get("what", "")[:4_000])))[:_HOSTS_MAX]


def _device(entry: Mapping[str, str], hosts: list[str]) -> str | None:
    device = entry.get("device")
    if device is None or is_missing(device):
        return None
    return f"{hosts[0]}/{device}" if hosts else device
