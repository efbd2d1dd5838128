"""Durations and sizes as people write them, to and from exact integers.

Inside the code a duration is an int of microseconds (`_us`) and a size an int of bytes (`_bytes`). Text
is read exactly (1.1s is 1100000, not a float's idea of it), and a bare number is refused: 90 of what?
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

from lastgood.base.errors import BadInput

US_PER_MS = 1_000
US_PER_S = 1_000_000
US_PER_MIN = 60 * US_PER_S
US_PER_H = 60 * US_PER_MIN
US_PER_DAY = 24 * US_PER_H

_DURATION_UNITS_US = {
    "us": 1,
    "ms": US_PER_MS,
    "s": US_PER_S,
    "min": US_PER_MIN,
    "h": US_PER_H,
    "d": US_PER_DAY,
    "w": 7 * US_PER_DAY,
}
_SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_TEXT_CHARS_MAX = 64
_DURATION_US_MAX = 2**63 - 1
_DURATION_NEEDS = "a number with a unit of us, ms, s, min, h, d or w, such as 90s, 10min or 1h30min"
_SIZE_NEEDS = "a number with a unit of B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 512MiB"


def parse_duration_us(text: str, *, where: str | None = None) -> int:
    """Return a duration such as `10min`, `1.5h`, `28d` or `1h30min` in whole microseconds.

    `where` (file and key path) goes into the error message. A fraction of a microsecond is refused.
    """
    parts = _split(text, _DURATION_UNITS_US)
    if parts is None:
        raise BadInput(
            "not a duration",
            where=where,
            found=repr(text),
            needs=_DURATION_NEEDS,
            next=_suggest_unit(text, "s"),
        )
    total = sum((number * scale for number, scale in parts), Fraction())
    if total.denominator != 1 or total > _DURATION_US_MAX:
        raise BadInput(
            "not a duration in whole microseconds",
            where=where,
            found=repr(text),
            needs="at least 1us, and at most 292000 years",
        )
    return int(total)


def parse_size(text: str, *, where: str | None = None) -> int:
    """Return a size such as `512MiB`, `1.5GB` or `4096B` in whole bytes (k = 1000, Ki = 1024)."""
    parts = _split(text, _SIZE_UNITS_BYTES)
    if parts is None or len(parts) != 1:
        raise BadInput(
            "not a size",
            where=where,
            found=repr(text),
            needs=_SIZE_NEEDS,
            next=_suggest_unit(text, "B"),
        )
    number, scale = parts[0]
    # 1.5GB is whole, 1.3KiB is not: a reader of the number wants the byte below, not an error.
    return int(number * scale)


def _split(text: str, units: dict[str, int]) -> list[tuple[Fraction, int]] | None:
    if not isinstance(text, str) or not 0 < len(text) <= _TEXT_CHARS_MAX:
        return None
    parts: list[tuple[Fraction, int]] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or match[2] not in units:
            return None
        parts.append((Fraction(match[1]), units[match[2]]))
        position = match.end()
    scales = [scale for _, scale in parts]
    # 10s1h and 5s5s are typing mistakes, not durations.
    is_falling = all(left > right for left, right in itertools.pairwise(scales))
    return parts if is_falling else None


def _suggest_unit(text: object, unit: str) -> str | None:
    bare = str(text).strip()
    return f"write {bare}{unit}" if re.fullmatch(r"\d+(\.\d+)?", bare) else None


def format_duration(duration_us: float) -> str:
    """Return a duration for people, three significant digits: `3.09 h`, `250 ms`, `28 d`."""
    steps = (
        (1, "us", 1_000),
        (US_PER_MS, "ms", 1_000),
        (US_PER_S, "s", 60),
        (US_PER_MIN, "min", 60),
        (US_PER_H, "h", 48),
        (US_PER_DAY, "d", None),
    )
    return _scaled(duration_us, steps)


def format_bytes(size_bytes: float) -> str:
    """Return a size for people in binary units, three significant digits: `1.5 GiB`."""
    steps = (
        (1, "B", 1_024),
        (2**10, "KiB", 1_024),
        (2**20, "MiB", 1_024),
        (2**30, "GiB", 1_024),
        (2**40, "TiB", 1_024),
        (2**50, "PiB", None),
    )
    return _scaled(size_bytes, steps)


def _scaled(value: float, steps: tuple[tuple[int, str, int | None], ...]) -> str:
    """Pick the first unit in which the *rounded* value stays below the unit's limit."""
    for scale, unit, limit in steps:
        text = format_number(value / scale)
        if limit is None or abs(float(text)) < limit:
            return f"{text} {unit}"
    raise AssertionError("the last step has no limit")


def format_number(value: float) -> str:
    """Return a number with three significant digits, no exponent, and no digit of an integer part lost."""
    if not math.isfinite(value):
        return str(value)
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    if "e" in text:
        text = f"{value:.12f}".rstrip("0").rstrip(".") if magnitude >= 1e-9 else text
    return text
