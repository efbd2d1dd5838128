"""A published table as a section: reported beside recomputed, an interval on every rate, kinds that do not flatter."""

from __future__ import annotations

import msgspec
import pytest

from lastgood.base.figures import Figure, FigureKind
from lastgood.base.units import US_PER_H
from lastgood.budget.published.facts import read_published
from lastgood.evidence.published_part import published_section

TABLE = read_published("llama3_table5")
SECTION = published_section(TABLE)


def figure(label: str) -> Figure:
    return next(row.figure for row in SECTION.figures if row.label == label)


def rates(group: str) -> tuple:
    table = next(t for t in SECTION.tables if t.name == "rates")
    return next(row for row in table.rows if row[0] == group)


def hours(cell) -> float:
    return cell.value / US_PER_H


def test_the_mean_time_between_unexpected_stops_is_3_09_hours_with_its_interval():
    """Garwood: 2.81 to 3.41 h for 419 in 1,296 h."""
    mean = figure("Mean time between unexpected")
    assert hours(mean) == pytest.approx(3.093, abs=5e-4)
    assert (mean.interval.lo / US_PER_H, mean.interval.hi / US_PER_H) == pytest.approx(
        (2.81, 3.41), abs=5e-3
    )


@pytest.mark.parametrize(
    ("group", "count", "mean", "low", "high"),
    [
        ("Silent data corruption", 6, 216, 99, 589),
        ("category GPU", 268, 4.84, 4.29, 5.47),
        ("all unexpected", 419, 3.09, 2.81, 3.41),
    ],
)
def test_every_rate_has_an_interval(group, count, mean, low, high):
    _, counted, time, lo, hi = rates(group)
    assert counted.value == count
    assert [hours(time), hours(lo), hours(hi)] == pytest.approx([mean, low, high], rel=3e-3)


def test_no_rate_is_without_its_interval():
    table = next(t for t in SECTION.tables if t.name == "rates")
    assert len(table.rows) == 1 + 6 + 18
    assert all(lo.value < mean.value < hi.value for _, _, mean, lo, hi in table.rows)


def test_reported_stands_next_to_recomputed_and_neither_is_measured():
    printed = figure("Share of GPU issues, reported")
    again = figure("Share of GPU issues, recomputed")
    assert (printed.value, printed.kind) == (58.7, FigureKind.REPORTED)
    assert (again.value, again.kind, again.kinds) == (
        64.0,
        FigureKind.REPORTED,
        (FigureKind.REPORTED,),
    )
    assert "recomputed from the counts" in again.source  # fmt: skip


def test_the_ends_of_an_interval_rest_on_an_assumption_and_are_modelled():
    _, _, mean, lo, hi = rates("NIC")
    assert (mean.kind, lo.kind, hi.kind) == ("reported", "modelled", "modelled")
    assert lo.assumptions == ("independent interruptions at a constant rate",)


def test_the_row_that_disagrees_is_named_at_the_top():
    check = SECTION.headline.checks[1]
    assert check.state == "not_held"
    assert check.detail.startswith("row Faulty GPU: printed 30.1 %, but 148 of 419 is 35.3 %")


def test_a_table_that_agrees_with_itself_says_so():
    rows = tuple(
        msgspec.structs.replace(row, percent="35.3") if row.count == 148 else row
        for row in TABLE.rows
    )
    headline = published_section(msgspec.structs.replace(TABLE, rows=rows)).headline
    assert [headline.state, *(check.state for check in headline.checks)] == ["held"] * 3
