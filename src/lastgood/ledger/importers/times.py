"""What a log calls a time, as microseconds UTC, and whether something had to be assumed for it.

A log line often leaves out the zone, the classic syslog form leaves out the year too. What is missing comes from the
options; else the zone is taken as UTC and the year from the file's own time, and the result says that it is inferred.
A time that cannot be told is a `RowProblem`: no row gets the time of its neighbour.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from lastgood.base.errors import BadInput

EARLIEST_US = 631_152_000_000_000
"""1990-01-01: no log of an accelerator is older; a counter that was taken for a time usually is."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01."""
DAY_US = 86_400_000_000
_AHEAD_US_MAX = DAY_US
"""How far a line may lie behind the file's own time, for clocks and zones that are off."""
_BACK_US_MAX = 180 * DAY_US
"""A step back by more than this, in a log without years, is a new year."""
_LATE_US_MAX = 3_600_000_000
"""How much later than its neighbours a line may have been written."""
_NO_YEAR = 2000
"""Stands for a year that was not written; a leap year, so that it has every day."""
TWICE = "a local time that comes twice when the clocks go back: taken for the first one, and marked as inferred"
NEVER = (
    "a local time that does not exist, because the clocks went forward over it: read as if they had not, and marked as "
    "inferred; --zone may be wrong"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{0,12})?", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[T _](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,12}))?)?)?\s*(Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)
_CTIME = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+)?([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,12}))?\s+(\d{4})",
    re.ASCII,
)
_SYSLOG = re.compile(
    r"([A-Z][a-z]{2})\s+(\d{1,2})\s+(?:(\d{4})\s+)?(\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,12}))?",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", re.ASCII)


class RowProblem(Exception):
    """A row cannot be taken. `reason` is counted, so it must not hold what differs from row to row; `detail` may."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        """The reason, in words a person can act on, and what exactly was found."""
        super().__init__(reason if detail is None else f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ParsedTime(NamedTuple):
    """Microseconds since 1970 UTC, and whether zone or year was assumed."""

    t_us: int
    is_inferred: bool

    @property
    def name_us(self) -> int:
        """The time as part of a name: of one without a zone or a year, what was written, whatever was assumed for it."""
        return self.t_us

    def later(self, by_us: int, *, is_inferred: bool | None = None) -> ParsedTime:
        """A time that is so much later, or the same one marked otherwise."""
        mark = self.is_inferred if is_inferred is None else is_inferred
        return ParsedTime(self.t_us + by_us, mark)


class LocalTime(ParsedTime):
    """A time that named no zone. Its name is what the clock on the wall showed (without a year: in 2000)."""

    wall: datetime
    shift_us: int
    has_year = True

    @classmethod
    def made(cls, t_us: int, is_inferred: bool, wall: datetime, shift_us: int = 0) -> LocalTime:
        """A time, what it was read from, and how much later than that it lies."""
        found = cls(t_us, is_inferred)
        found.wall, found.shift_us = wall, shift_us
        return found

    @property
    def name_us(self) -> int:
        """So that another `--zone` or `--year` gives the same record the same name."""
        # Computed when it is asked for: most rows of a log are named by their bytes.
        year = self.wall.year if self.has_year else _NO_YEAR
        return _us(self.wall.replace(year=year, tzinfo=UTC)) + self.shift_us

    def later(self, by_us: int, *, is_inferred: bool | None = None) -> ParsedTime:
        """A time that is so much later, or the same one marked otherwise."""
        mark = self.is_inferred if is_inferred is None else is_inferred
        found = LocalTime.made(self.t_us + by_us, mark, self.wall, self.shift_us + by_us)
        found.has_year = self.has_year
        return found


class Times:
    """Reads the times of one file, under one zone and one year if the options name them."""

    def __init__(
        self,
        *,
        zone: str | None = None,
        year: int | None = None,
        mtime_us: int | None = None,
        on_doubt: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`year` is that of the first line; a log that runs over New Year goes on in the next one.

        `on_doubt` is told why a time is inferred although its zone is known.
        """
        self._on_doubt = on_doubt
        self._zone = UTC if zone is None else parse_zone(zone)
        self._is_zone_known = zone is not None
        self._year = year
        self._mtime_us = mtime_us
        self._last_us: int | None = None
        self._forms: tuple[Callable[[str], ParsedTime | None], ...] = (
            self._iso,
            self._number,
            self._ctime,
            self._syslog,
        )

    def parse(self, text: str) -> ParsedTime:
        """A time in any known form: ISO 8601 / RFC 3339, epoch (s, ms, µs, ns), ctime, classic syslog.

        Raises:
            RowProblem: It is none of these, a date that does not exist, or one outside of 1990 to 2100.
        """
        text = text.strip()
        for form in self._forms:
            found = form(text)
            if found is not None:
                return found
        raise RowProblem("not a time", repr(text[:60]))

    def epoch(self, value: float | str, *, unit: str | None = None) -> ParsedTime:
        """A number since 1970 in `s`, `ms`, `us` or `ns`; without a unit its size tells."""
        if isinstance(value, str):
            found = self._number(value.strip(), unit)
            if found is None:
                raise RowProblem("not a time", repr(value[:60]))
            return found
        if isinstance(value, bool) or value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
            raise RowProblem("not a time", repr(value))
        return ParsedTime(_checked(_scaled(value, unit)), is_inferred=False)

    def local(self, when: datetime, *, zone: tzinfo | None = None) -> ParsedTime:
        """A date and time without a zone of its own, in the zone of the options (UTC, and inferred, without one)."""
        if zone is not None:
            return ParsedTime(_us(when.replace(tzinfo=zone)), is_inferred=False)
        aware = when.replace(tzinfo=self._zone)
        other = aware.replace(fold=1)
        is_twofold = aware.utcoffset() != other.utcoffset()
        if is_twofold:
            self._on_doubt(TWICE if _us(aware) < _us(other) else NEVER)
        is_inferred = is_twofold or not self._is_zone_known
        return LocalTime.made(_us(aware), is_inferred, when)

    def _number(self, text: str, unit: str | None = None) -> ParsedTime | None:
        if _NUMBER.fullmatch(text) is None:
            return None
        whole, _, fraction = text.partition(".")
        if unit in {None, "s"} and abs(int(whole or 0)) < 100_000_000_000:
            # Exact: a float of 16 digits would lose the last microseconds.
            micros = int((fraction + "000000")[:6])
            return ParsedTime(_checked(int(whole) * 1_000_000 + micros), is_inferred=False)
        return ParsedTime(_checked(_scaled(int(whole), unit)), is_inferred=False)

    def _iso(self, text: str) -> ParsedTime | None:
        if len(text) >= 19 and text[4] == text[7] == "-" and text[10] in "T _":
            try:  # five times as fast as the pattern, which takes more forms
                when = datetime.fromisoformat(text)
            except ValueError:
                pass
            else:
                return (
                    self.local(when)
                    if when.tzinfo is None
                    else ParsedTime(_us(when), is_inferred=False)
                )
        match = _ISO.fullmatch(text)
        if match is None:
            return None
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        when = _date(year, month, day, hour or 0, minute or 0, second or 0, fraction)
        return self.local(when, zone=None if zone is None else _offset(zone))

    def _ctime(self, text: str) -> ParsedTime | None:
        match = _CTIME.fullmatch(text)
        if match is None:
            return None
        month, day, hour, minute, second, fraction, year = match.groups()
        return self.local(_date(year, _month(month), day, hour, minute, second, fraction))

    def _syslog(self, text: str) -> ParsedTime | None:
        match = _SYSLOG.fullmatch(text)
        if match is None:
            return None
        month, day, year, hour, minute, second, fraction = match.groups()
        rest = (_month(month), day, hour, minute, second, fraction)
        if year is not None:
            return self.local(_date(year, *rest))
        return self.without_year(*rest)

    def without_year(
        self, month: int, day: str, hour: str, minute: str, second: str, fraction: str | None = None
    ) -> ParsedTime:
        """A date without a year: that of `--year`, else the last one that is not after the file's own time."""
        rest = (month, day, hour, minute, second, fraction)
        found = self._with_year(rest)
        if isinstance(found, LocalTime):
            found.has_year = False
        return found

    def _with_year(self, rest: tuple[int, str, str, str, str, str | None]) -> ParsedTime:
        if self._year is not None:
            return self._in_turn(rest)
        if self._mtime_us is None:
            raise RowProblem("a time without a year: give --year")
        year = (_EPOCH + self._mtime_us * _MICROSECOND).year + 1
        for _ in range(9):  # 29 February needs up to eight years
            try:
                found = self.local(_date(year, *rest))
            except RowProblem:
                year -= 1
                continue
            if found.t_us <= self._mtime_us + _AHEAD_US_MAX:
                return found.later(0, is_inferred=True)
            year -= 1
        raise RowProblem("a date that does not exist", f"month {rest[0]} day {rest[1]}")

    def _in_turn(self, rest: tuple[int, str, str, str, str, str | None]) -> ParsedTime:
        """The date in the year of the option, or in the next one when the log has passed New Year."""
        assert self._year is not None
        year, last_us = self._year, self._last_us
        if last_us is None:
            found = self.local(_date(year, *rest))
        else:
            if rest[0] == 2 and int(rest[1]) == 29 and not calendar.isleap(year):
                year += 1
            found = self.local(_date(year, *rest))
            if found.t_us < last_us - _BACK_US_MAX:
                year += 1
                found = self.local(_date(year, *rest))
            elif rest[0] == 12 and found.t_us > last_us + _BACK_US_MAX:
                late = self.local(_date(year - 1, *rest))
                if last_us - late.t_us <= _LATE_US_MAX:  # a line of the old year behind New Year
                    return late
        self._year, self._last_us = (
            year,
            found.t_us,
        )  # only now: a date that does not exist moves nothing
        return found


def parse_zone(text: str) -> tzinfo:
    """The zone of an IANA name (`Europe/Berlin`) or an offset (`+02:00`, `UTC-5`).

    Raises:
        BadInput: No such zone.
    """
    if text.upper() in {"UTC", "GMT", "Z"}:
        return UTC
    match = _OFFSET.fullmatch(text)
    if match is not None and int(match[2]) <= 14 and int(match[3] or 0) < 60:
        return _offset(f"{match[1]}{int(match[2]):02d}{match[3] or '00'}")
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        raise BadInput(
            "no such time zone",
            where="--zone",
            found=repr(text),
            needs="an IANA name or an offset",
            next="write UTC, Europe/Berlin or +02:00",
        ) from error


def _offset(text: str) -> tzinfo:
    if text in {"Z", "z", "UTC", "GMT"}:
        return UTC
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    if minutes >= 24 * 60:
        raise RowProblem("not a time zone", text)
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _month(name: str) -> int:
    number = _MONTHS.get(name.lower())
    if number is None:
        raise RowProblem("not a time", f"month {name!r}")
    return number


def _date(
    year: str | int,
    month: str | int,
    day: str | int,
    hour: str | int,
    minute: str | int,
    second: str | int,
    fraction: str | None,
) -> datetime:
    micros = int((fraction + "000000")[:6]) if fraction else 0
    try:
        # A leap second has no place of its own in UTC as computers count it: it becomes the one before.
        whole = 59 if int(second) == 60 else int(second)
        return datetime(  # noqa: DTZ001 - its zone is what `local` decides
            int(year), int(month), int(day), int(hour), int(minute), whole, micros
        )
    except ValueError as error:
        raise RowProblem("a date that does not exist", str(error)) from error


def _us(when: datetime) -> int:
    try:
        return _checked((when - _EPOCH) // _MICROSECOND)
    except OverflowError as error:
        raise RowProblem("a time outside of 1990 to 2100", str(when)) from error


def _scaled(value: float, unit: str | None) -> int:
    if unit is None:
        size = abs(value)
        unit = "s" if size < 1e11 else "ms" if size < 1e14 else "us" if size < 1e17 else "ns"
    if unit == "ns":
        return int(value) // 1000
    factor = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    return int(value) * factor if isinstance(value, int) else round(value * factor)


def _checked(t_us: int) -> int:
    if not EARLIEST_US <= t_us <= LATEST_US:
        raise RowProblem("a time outside of 1990 to 2100", str(t_us)[:24])
    return t_us
