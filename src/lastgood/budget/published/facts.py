"""A published table of failures, as printed, and the check that it agrees with itself.

A summary that somebody printed is a claim like any other: its shares are computed again from its own counts, and a row
that does not agree is named. Neither number replaces the other.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

ROUNDING: Final = 1e-9
"""Slack for decimal fractions that binary floats cannot hold."""


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row as printed, and where it stands in our taxonomy (that is ours, not the source's)."""

    component: str
    category: str
    """The source's own grouping."""
    count: int
    percent: str
    """The share as printed, with its decimals: `30.1`."""
    class_: str = msgspec.field(name="class")
    cause: str
    symptom: str | None = None


class PublishedShare(msgspec.Struct, frozen=True, kw_only=True):
    """A share that the source prints in its text for a whole category."""

    name: str
    category: str
    percent: str


class PublishedTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals as printed."""

    all: int
    planned: int
    unexpected: int


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of unexpected interruptions over one window, with its source and scope."""

    id: str
    title: str
    source: str
    scope: str
    window_hours: int
    devices_max: int
    totals: PublishedTotals
    printed: tuple[PublishedShare, ...]
    rows: tuple[PublishedRow, ...]

    @property
    def counted(self) -> int:
        """What the rows add up to."""
        return sum(row.count for row in self.rows)

    @property
    def percent_printed_sum(self) -> float:
        """What the printed shares add up to; about 100 in a table that agrees with itself."""
        return sum(float(row.percent) for row in self.rows)

    def in_category(self, category: str) -> int:
        """The counts of one of the source's categories."""
        return sum(row.count for row in self.rows if row.category == category)

    def percent_of(self, count: int) -> float:
        """A count as a share of all unexpected ones, in percent."""
        return 100.0 * count / self.totals.unexpected

    def agrees(self, row: PublishedRow) -> bool:
        """True when the printed share is the row's count rounded to the printed decimals."""
        return _is_rounding_of(row.percent, self.percent_of(row.count))

    def count_behind(self, row: PublishedRow) -> int:
        """The count that would print this row's share."""
        return round(float(row.percent) * self.totals.unexpected / 100.0)


def _is_rounding_of(printed: str, value: float) -> bool:
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - value) <= 0.5 * 10.0**-decimals + ROUNDING


def read_published(name: str) -> PublishedTable:
    """The table of that name from this package, such as `llama3_table5`."""
    return msgspec.json.decode(_bytes_of(name), type=PublishedTable)


def published_digest(name: str) -> str:
    """SHA-256 of the data file, so that a number names the facts that it was computed from."""
    return hashlib.sha256(_bytes_of(name)).hexdigest()


def _bytes_of(name: str) -> bytes:
    return Path(str(resources.files("lastgood.budget.published") / f"{name}.json")).read_bytes()
