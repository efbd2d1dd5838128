"""How numbers and times read, and what may not be shown at all."""

from __future__ import annotations

import pytest

from lastgood.base.errors import EvidenceError
from lastgood.base.figures import Figure, FigureKind, measured
from lastgood.evidence import wording
from lastgood.evidence.report import Column, Table
from tests.unit.evidence.made_reports import seconds, table


def texts(name: str) -> list[str]:
    index = [column.title for column in table().columns].index(name)
    return [row[index].text for row in wording.table_texts(table())]


def test_durations_of_a_column_share_its_unit_and_their_decimals():
    # 50 ms and 1.35 s in a column of seconds: three decimals for both.
    assert texts("Detection")[:2] == ["0.050", "1.350"]


def test_not_observed_is_neither_zero_nor_a_dash():
    assert texts("Detection")[2] == "not observed"
    assert texts("Recovery")[1] == "–"


def test_a_kind_that_all_cells_of_a_column_share_goes_to_the_header():
    assert wording.column_kind(table(), 1) == "measured"
    assert [row[1].kind for row in wording.table_texts(table())] == [None, None, None]


def test_in_a_column_of_mixed_kinds_each_cell_says_its_own():
    assert wording.column_kind(table(), 3) is None
    assert [row[3].kind for row in wording.table_texts(table())] == ["measured", None, "assumed"]


@pytest.mark.parametrize(
    ("smallest_s", "expected"), [(0.05, "0.050"), (1.5, "1.50"), (15.0, "15.0"), (150.0, "150")]
)
def test_the_smallest_value_of_a_column_keeps_three_digits(smallest_s, expected):
    one = Table(
        name="t",
        title="",
        columns=(Column(title="a", unit="s"),),
        rows=((seconds("x", smallest_s),),),
    )
    assert wording.table_texts(one)[0][0].text == expected


def test_a_zero_asks_for_no_more_decimals():
    columns = (Column(title="a", unit="s"),)
    one = Table(
        name="t", title="", columns=columns, rows=((seconds("x", 0.0),), (seconds("y", 15.0),))
    )
    assert [row[0].text for row in wording.table_texts(one)] == ["0.0", "15.0"]


def test_device_hours_scale_as_hours_do():
    at_risk = measured("exposure", 5_400_000_000, "us", source="joins")
    one = Table(
        name="t",
        title="",
        columns=(Column(title="At risk", unit="device-h"),),
        rows=((at_risk,),),
    )
    assert wording.table_texts(one)[0][0].text == "1.50"


def test_a_projection_without_its_condition_is_refused_in_every_form():
    bare = Figure(name="mtti", value=3.0, unit="h", kind=FigureKind.PROJECTED)
    cell = Table(name="t", title="", columns=(Column(title="a"),), rows=((bare,),))
    for show in (lambda: wording.value_text(bare), lambda: wording.detail_text(bare)):
        with pytest.raises(EvidenceError):
            show()
    with pytest.raises(EvidenceError):
        wording.table_texts(cell)


def test_a_rate_of_useful_work_without_companions_is_refused():
    rate = measured("throughput", 9.0, "steps/s", source="steps")
    with pytest.raises(EvidenceError):
        wording.value_text(rate)


def test_wall_time_is_printed_in_utc_with_milliseconds():
    # 2026-11-30 02:00:00 UTC is 1,796,004,000 s after the epoch.
    assert wording.instant_text(1_796_004_000_007_999) == "2026-11-30 02:00:00.007 UTC"
    assert wording.instant_text(None) == "not recorded"


def test_a_distance_has_a_sign_and_an_unrecorded_one_says_so():
    said = [wording.since_text(t) for t in (0, 52_000, -1_000, None)]
    assert said == ["0 s", "+52 ms", "-1 ms", "not recorded"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "steps", "1 step"),
        (0, "us", "0 s"),
        (9_999, "", "9999"),
        (95_301, "steps", "95,301 steps"),
        (3_000_000, "us", "3 s"),
    ],
)
def test_counts_read_well(value, unit, text):
    assert wording.value_text(measured("x", value, unit, source="s")) == text


def test_what_a_reader_must_know_stands_beside_the_number():
    assert wording.detail_text(seconds("detect", 0.05, n=3)) == "n = 3; ledger events"
