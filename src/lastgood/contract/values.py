"""The value types of a contract: durations, ratios, names, zones, each with its own words when it is wrong.

A validator here raises `wrong_value`, which carries what is needed and what to write. `load.py` adds the
line and the key path; nothing here knows about files.
"""

from __future__ import annotations

import difflib
import enum
import re
import zoneinfo
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from lastgood.base.errors import LastgoodError
from lastgood.base.units import parse_duration_us

WRONG_VALUE = "lastgood_value"
"""Error type under which a validator of this module reports."""
DURATION_US_MAX = 10 * 366 * 24 * 3600 * 1_000_000
"""Ten years: a longer window or time-out is a slip of the pen."""


class Record(BaseModel):
    """Base of every part of a contract: frozen, no unknown key, no silent conversion of types."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,
        allow_inf_nan=False,
    )


def wrong_value(needs: str, write: str = "") -> PydanticCustomError:
    """An error that says what is needed and, where it can be guessed, what to write."""
    return PydanticCustomError(WRONG_VALUE, "needs {needs}", {"needs": needs, "write": write})


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that `word` most likely meant; empty when none is near."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    hits = difflib.get_close_matches(word.lower()[:64], list(by_lower), n=1, cutoff=0.6)
    return by_lower[hits[0]] if hits else ""


_DURATION_PATTERN = r"^(\s*\d+(\.\d+)?\s*(w|d|h|min|s|ms|us))+\s*$"


def _duration(value: object) -> object:
    needs = "a duration with its unit (ms, s, min, h, d)"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_value(needs, "90s")
    if not isinstance(value, str):
        raise wrong_value(needs, f"{value}s")
    try:
        duration_us = parse_duration_us(value)
    except (LastgoodError, ValueError, OverflowError):
        raise wrong_value(needs, _duration_guess(value)) from None
    if not 0 < duration_us <= DURATION_US_MAX:
        raise wrong_value("a duration above zero and at most ten years", "90s")
    return duration_us


def _write_duration(value: int, info: SerializationInfo) -> int | str:
    """Keep the integer for machines; add the unit where the result is to be read as a contract again."""
    return f"{value}us" if info.by_alias else value


def _duration_guess(text: str) -> str:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text[:64])
    if found is None:
        return "90s"
    number, unit = found.groups()
    spelled = {
        "sec": "s",
        "secs": "s",
        "second": "s",
        "seconds": "s",
        "m": "min",
        "mins": "min",
        "minute": "min",
        "minutes": "min",
        "hr": "h",
        "hrs": "h",
        "hour": "h",
        "hours": "h",
        "day": "d",
        "days": "d",
        "w": "d",
        "": "s",
    }
    return number + spelled.get(unit.lower(), "s")


def _ratio(value: object) -> object:
    needs = "a ratio between 0 and 1"
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,12})?)\s*%\s*", value)
        if found is None:
            number = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,12})?)\s*", value)
            raise wrong_value(
                needs, number.group(1) if number and float(number.group(1)) <= 1 else "0.97"
            )
        # Divided as text by moving the point, so that 97% and 0.97 are the same float.
        value = float(f"{found.group(1)}e-2")
        if value > 1:
            raise wrong_value(needs + ", or a percentage up to 100%", "97%")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_value(needs, "0.97")
    if not 0 <= value <= 1:
        raise wrong_value(needs, f"{float(f'{value}e-2'):g}" if 1 < value <= 100 else "0.97")
    return float(value)


def _percentile(value: object) -> object:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*[pP](\d{2})(\d*)\s*", value)
        if found:
            value = float(f"0.{found.group(1)}{found.group(2)}")
    ratio = _ratio(value)
    if not isinstance(ratio, float) or not 0 < ratio < 1:
        raise wrong_value("a percentile above 0 and below 1", "0.95")
    return ratio


def _zone(value: str) -> str:
    if value == "UTC":
        return value
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        zones = zoneinfo.available_timezones()
        if zones or not re.fullmatch(r"[A-Z][A-Za-z_]+/[A-Za-z_/+\-0-9]+", value):
            raise wrong_value("an IANA time zone name", nearest(value, zones) or "UTC") from None
    return value


def _start_time(value: str) -> str:
    """Accept RFC 3339 without an offset: the zone stands beside it, and two zones in one window are one too many."""
    needs = "a local date and time"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", value):
        raise wrong_value(needs, "2026-01-01T00:00")
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise wrong_value(needs + " that exists", "2026-01-01T00:00") from None
    return value


def _name(value: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", value):
        return value
    guess = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63]
    raise wrong_value(
        "a name of at most 63 small letters, digits, '-' and '.'", guess or "my-contract"
    )


DurationUs = Annotated[
    int,
    BeforeValidator(_duration),
    PlainSerializer(_write_duration),
    WithJsonSchema({"type": "string", "pattern": _DURATION_PATTERN}),
    Field(examples=["90s"]),
]
"""A duration in microseconds, written with its unit: 250ms, 90s, 10min, 1.5h, 28d."""
Ratio = Annotated[
    float,
    BeforeValidator(_ratio),
    Field(
        json_schema_extra={"type": ["number", "string"], "minimum": 0, "maximum": 1},
        examples=["0.97"],
    ),
]
"""A ratio between 0 and 1; `97%` is the same as 0.97."""
Percentile = Annotated[
    float,
    BeforeValidator(_percentile),
    Field(json_schema_extra={"type": ["number", "string"]}, examples=["0.95"]),
]
"""A percentile as a ratio strictly between 0 and 1; `95%` and `p95` are the same as 0.95."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=1050, strip_whitespace=True)]
"""A sentence; empty text is no answer."""
Name = Annotated[str, AfterValidator(_name), Field(examples=["my-contract"])]
"""A name that fits labels, file names and URLs."""
TimeZone = Annotated[str, AfterValidator(_zone), Field(examples=["UTC"])]
StartTime = Annotated[str, AfterValidator(_start_time), Field(examples=["2026-01-01T00:00"])]


class OnTimeout(enum.StrEnum):
    """What happens when a row of the recovery table runs out of time. Written in camel case in a file."""

    WIDEN = "widen"
    """Take the next larger fault domain out."""
    FALL_BACK = "fall_back"
    """Use the next older, more durable state."""
    ESCALATE = "escalate"
    """Stop trying and notify the owner."""


_ON_TIMEOUT = {
    "widen": OnTimeout.WIDEN,
    "fallBack": OnTimeout.FALL_BACK,
    "escalate": OnTimeout.ESCALATE,
}


def _on_timeout(value: object) -> object:
    if isinstance(value, OnTimeout):
        return value
    if isinstance(value, str) and value in _ON_TIMEOUT:
        return _ON_TIMEOUT[value]
    if value == "shrink":
        # Known from other systems, and refused in so many words: silence about it would be taken for support.
        raise wrong_value(
            "as many ranks as the run began with: fewer change the global batch, and with it every later bit",
            "escalate",
        )
    raise wrong_value(
        "one of " + ", ".join(_ON_TIMEOUT), nearest(str(value).replace("_", ""), _ON_TIMEOUT)
    )


def _write_on_timeout(value: OnTimeout, info: SerializationInfo) -> str:
    written = {member: word for word, member in _ON_TIMEOUT.items()}
    return written[value] if info.by_alias else value.value


OnTimeoutValue = Annotated[
    OnTimeout,
    BeforeValidator(_on_timeout),
    PlainSerializer(_write_on_timeout),
    # A reference to the enum would name the words of the code, not those of a file.
    WithJsonSchema({"type": "string", "enum": list(_ON_TIMEOUT)}),
    Field(examples=["escalate"]),
]
