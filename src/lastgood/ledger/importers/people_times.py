"""Times as people write them into tables and logs, on top of the forms that machines write.

A date such as 03/04/2026 is two days, and which one is not guessed: it is told apart where the numbers allow it, and
is a finding where they do not.
"""

from __future__ import annotations

import re

from lastgood.ledger.importers.times import ParsedTime, RowProblem, Times

TIME_CHARS_MAX = 80
DAY_FIRST, MONTH_FIRST = ORDERS = ("day-first", "month-first")
TWO_DAYS = "a date that can be two days: write YYYY-MM-DD"
_MISSING = frozenset(
    ("", "na", "n/a", "none", "null", "nan", "nat", "-", "--", "?", "unknown", "tbd")
)
_OPEN = frozenset(("open", "ongoing", "now", "running", "still open", "today", "present"))
_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}))?"
_TAIL = rf"(?:[T ,]+{_CLOCK}(?:\s?([AaPp])\.?[Mm]\.?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?"
_YMD = re.compile(rf"(\d{{4}})[/.](\d{{1,2}})[/.](\d{{1,2}}){_TAIL}")
_DMY = re.compile(rf"(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}}){_TAIL}")
_SLASHED = re.compile(rf"(\d{{1,2}})/(\d{{1,2}})/(\d{{4}}){_TAIL}")
_IN_TEXT = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/\d{4}(?![\d/])", re.ASCII)
_NAMED = re.compile(
    rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?(?:([A-Za-z]{{3,9}})\.?\s+(\d{{1,2}})|(\d{{1,2}})\.?\s+([A-Za-z]{{3,9}})\.?),?(?:\s+(\d{{4}}))?{_TAIL}"
)
_ISO_START = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_ISO_SHORT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d):(\d\d)(.*)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def is_missing(text: str | None) -> bool:
    """True for an empty cell and for the words that people write into one."""
    return text is None or text.strip().lower() in _MISSING


def is_still_open(text: str | None) -> bool:
    """True for what stands in the place of an end that has not come."""
    return is_missing(text) or (text is not None and text.strip().lower() in _OPEN)


def order_of(text: str) -> str | None:
    """The order of day and month in a file, from the dates in it that can be one day only; None when none decides."""
    pairs = [(int(m[1]), int(m[2])) for m in _IN_TEXT.finditer(text)]
    is_day_first = any(first > 12 for first, _ in pairs)
    is_month_first = any(second > 12 for _, second in pairs)
    if is_day_first == is_month_first:
        return None
    return DAY_FIRST if is_day_first else MONTH_FIRST


def is_two_days(text: str) -> bool:
    """True for a date that is another one in the other order."""
    match = _IN_TEXT.search(text[:TIME_CHARS_MAX])
    return (
        match is not None and match[1] != match[2] and int(match[1]) <= 12 and int(match[2]) <= 12
    )


def parse_people_time(text: str, times: Times, *, order: str | None = None) -> ParsedTime:
    """The time that a person wrote, and whether its zone or year was assumed.

    `order` (`day-first`, `month-first`) says what 03/04/2026 is, where somebody knows.

    Raises:
        RowProblem: It is none, or it is two.
    """
    text = text.strip()
    if _ISO_START.match(text):
        return times.parse(text)
    text = text.strip("*_`")
    if len(text) > TIME_CHARS_MAX:
        raise RowProblem("not a time", text[:60])
    match = _YMD.fullmatch(text)
    if match is not None:
        return _parse(match[1], match[2], match[3], match.groups()[3:], times)
    match = _DMY.fullmatch(text)
    if match is not None:
        return _parse(match[3], match[2], match[1], match.groups()[3:], times)
    match = _SLASHED.fullmatch(text)
    if match is not None:
        first, second = int(match[1]), int(match[2])
        if order is None and first <= 12 and second <= 12 and first != second:
            raise RowProblem(TWO_DAYS, text)
        is_month_first = first <= 12 if order is None else order == MONTH_FIRST
        month, day = (match[1], match[2]) if is_month_first else (match[2], match[1])
        return _parse(match[3], month, day, match.groups()[3:], times)
    match = _NAMED.fullmatch(text)
    if match is not None and (match[1] or match[4]).lower()[:3] in _MONTHS:
        return _named(match, times)
    match = _ISO_SHORT.fullmatch(text)
    if match is not None:
        text = f"{match[1]} 0{match[2]}:{match[3]}{match[4]}"
    return times.parse(text)


def _parse(
    year: str, month: str, day: str, rest: tuple[str | None, ...], times: Times
) -> ParsedTime:
    hour, minute, second, half, zone = rest
    clock = f" {_hour(hour, half):02d}:{minute or '00'}:{second or '00'}"
    return times.parse(f"{year}-{int(month):02d}-{int(day):02d}{clock}{zone or ''}")


def _named(match: re.Match[str], times: Times) -> ParsedTime:
    """`2 Nov 2026 03:14` and `Nov 2, 03:14`; without a year that of the options, else of the file."""
    month = _MONTHS.index((match[1] or match[4]).lower()[:3]) + 1
    day, year = match[2] or match[3], match[5]
    hour, minute, second, half, zone = match.groups()[5:]
    if year is None:
        if zone is not None:
            raise RowProblem("a time with a zone and without a year")
        return times.without_year(month, day, str(_hour(hour, half)), minute or "0", second or "0")
    return _parse(year, str(month), day, (hour, minute, second, half, zone), times)


def _hour(hour: str | None, half: str | None) -> int:
    """0 to 23 of an hour that may be one of twelve."""
    number = int(hour or 0)
    if half is None:
        return number
    if not 1 <= number <= 12:
        raise RowProblem("an hour that no clock of twelve has", hour)
    return number % 12 + (12 if half in "Pp" else 0)
