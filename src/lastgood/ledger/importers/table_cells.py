"""The cells of one row of a table, in CSV or nested JSON, as text; None where they are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lastgood.ledger.importers.times import RowProblem

LIST_MAX = 10_000
"""Elements of one list that are looked at."""
_NUMBER = re.compile(r"-?\d+")
_NOTHING = frozenset(("none", "null", "nan", "nat"))


class Values(NamedTuple):
    """One row: the element, and the row that holds it when the map goes down into a list."""

    inner: Mapping[str, Any]
    outer: Mapping[str, Any]
    number: int
    """Place (1-based) in that list."""
    is_last: bool


def down(value: Any, path: str) -> Any:
    """The value under a dotted name; a list on the way gives the values of all its elements."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for part in path.split("."):
        if isinstance(value, list):
            inner = [element.get(part) for element in value[:LIST_MAX] if isinstance(element, dict)]
            value = [
                leaf for found in inner for leaf in (found if isinstance(found, list) else [found])
            ]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _found(values: Values, column: str) -> Any:
    found = down(values.inner, column)
    return (
        down(values.outer, column) if found is None and values.outer is not values.inner else found
    )


def text_of(values: Values, column: str | None) -> str | None:
    """The cell as text; None when it is missing."""
    if column is None:
        return None
    found = values.inner.get(column)
    if found is None:
        found = _found(values, column)
    if not isinstance(found, str):
        if found is None or isinstance(found, list | dict):
            return None
        found = ("true" if found else "false") if isinstance(found, bool) else str(found)
    text = found.strip()
    return None if not text or (len(text) <= 4 and text.lower() in _NOTHING) else text


def texts_of(values: Values, column: str) -> list[str]:
    """The texts of a cell that may be a list."""
    found = _found(values, column)
    items = found if isinstance(found, list) else [found]
    return [
        str(item)
        for item in items
        if isinstance(item, str | int) and not isinstance(item, bool) and str(item)
    ]


def whole(text: str | None, what: str) -> int:
    """The whole number in a cell.

    Raises:
        RowProblem: There is none.
    """
    plain = (text or "").removesuffix(".0")
    if not _NUMBER.fullmatch(plain) or len(plain) > 18:
        raise RowProblem(f"{what} is not a whole number", text)
    return int(plain)


def micros(seconds: str) -> int:
    """Seconds in a cell as microseconds.

    Raises:
        RowProblem: There are none.
    """
    try:
        value = float(seconds)
    except ValueError:
        raise RowProblem("a duration that is no number", seconds) from None
    if not 0 <= value < 1e10:
        raise RowProblem("a duration that is no number of seconds", seconds)
    return round(value * 1_000_000)
