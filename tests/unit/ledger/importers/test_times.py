"""Times of logs: what is said is taken, what is not said is assumed and marked, what is impossible is rejected."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.errors import BadInput
from lastgood.ledger.importers.times import RowProblem, Times, parse_zone


def us(*parts: int, micros: int = 0) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000 + micros


AT = us(2026, 11, 2, 3, 14, 7)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-11-02T03:14:07Z", 0),
        ("2026-11-02T03:14:07.120311+00:00", 120_311),
        ("2026-11-02T04:14:07.5+01:00", 500_000),
        ("2026-11-02T04:14:07+0100", 0),
        ("2026-11-02T04:14:07+01", 0),
        ("2026-11-02 03:14:07 UTC", 0),
        ("2026-11-02T03:14:07,120+00:00", 120_000),
        ("2026-11-02T03:14:07.123456789Z", 123_456),
        ("1793589247", 0),
        ("1793589247.25", 250_000),
        ("1793589247.123456", 123_456),
        ("1793589247000", 0),
        ("1793589247000001", 1),
        ("1793589247000001999", 1),
    ],
)
def test_a_time_with_its_zone_is_exact(text, micros):
    assert Times(year=1999).parse(text) == (AT + micros, False)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-02T03:14:07",
        "2026-11-02 03:14:07",
        "Mon Nov  2 03:14:07 2026",
        "Nov  2 2026 03:14:07",
    ],
)
def test_a_time_without_a_zone_is_utc_and_inferred_until_a_zone_is_named(text):
    assert Times().parse(text) == (AT, True)
    assert Times(zone="UTC").parse(text) == (AT, False)
    assert Times(zone="+02:00").parse(text) == (AT - 7_200_000_000, False)
    # Tokyo has no summer time: nine hours, always.
    assert Times(zone="Asia/Tokyo").parse(text) == (AT - 9 * 3_600_000_000, False)


def test_an_hour_that_comes_twice_stays_inferred():
    """On 2026-10-25 the clocks of Berlin go from 03:00 back to 02:00: 02:30 is 00:30 or 01:30 UTC."""
    berlin = Times(zone="Europe/Berlin")
    assert berlin.parse("2026-10-25 02:30:00") == (us(2026, 10, 25, 0, 30), True)
    assert berlin.parse("2026-10-25 12:30:00") == (us(2026, 10, 25, 11, 30), False)


def test_a_year_that_is_missing_comes_from_the_files_own_time():
    times = Times(zone="UTC", mtime_us=us(2026, 1, 3))
    assert times.parse("Jan  2 10:00:00") == (us(2026, 1, 2, 10), True)
    assert times.parse("Dec 31 23:59:59") == (us(2025, 12, 31, 23, 59, 59), True)
    # A clock or a zone may be off by a day, not by two.
    assert times.parse("Jan  3 20:00:00").t_us == us(2026, 1, 3, 20)
    assert times.parse("Jan  5 00:00:00").t_us == us(2025, 1, 5)


def test_the_year_of_the_option_is_that_of_the_first_line_and_goes_on_at_new_year():
    times = Times(zone="UTC", year=2025)
    assert times.parse("Dec 31 23:59:59") == (us(2025, 12, 31, 23, 59, 59), False)
    assert times.parse("Jan  1 00:00:01") == (us(2026, 1, 1, 0, 0, 1), False)
    # A line that was written late is one of the old year; one of the next winter is not.
    assert times.parse("Dec 31 23:59:58") == (us(2025, 12, 31, 23, 59, 58), False)
    assert times.parse("Jan  1 00:00:02") == (us(2026, 1, 1, 0, 0, 2), False)
    assert times.parse("Dec 31 12:00:00") == (us(2026, 12, 31, 12), False)
    assert times.parse("Jan  1 12:00:00") == (us(2027, 1, 1, 12), False)


def test_a_leap_day_in_the_year_of_the_option_may_come_after_a_quiet_half_year():
    times = Times(zone="UTC", year=2023)
    times.parse("Aug 20 10:00:00")
    assert times.parse("Feb 29 12:00:00") == (us(2024, 2, 29, 12), False)
    with pytest.raises(RowProblem, match="a date that does not exist"):
        times.parse("Feb 30 12:00:00")
    times = Times(zone="UTC", year=2025)
    times.parse("Feb 10 12:00:00")
    with pytest.raises(RowProblem):
        times.parse("Feb 29 12:00:00")
    assert times.parse("Mar  1 00:00:00") == (us(2025, 3, 1), False)


def test_a_leap_day_takes_the_last_leap_year():
    times = Times(zone="UTC", mtime_us=us(2027, 6, 1))
    assert times.parse("Feb 29 12:00:00").t_us == us(2024, 2, 29, 12)


def test_without_year_and_file_time_the_row_is_rejected():
    with pytest.raises(RowProblem, match="give --year"):
        Times().parse("Nov  2 03:14:07")


def test_a_leap_second_is_the_one_before():
    assert Times().parse("2016-12-31T23:59:60Z").t_us == us(2016, 12, 31, 23, 59, 59)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-02-30T00:00:00Z",
        "2026-13-01 00:00:00",
        "2026-11-02T25:00:00Z",
        "2026-11-02T03:14:07+99:00",
        "Foo  2 03:14:07 2026",
        "12345",
        "99999999999999999999",
        "-5",
        "nan",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "2026-11-02x03:14:07Z",
        "12٣4567890",
    ],
)
def test_what_is_no_time_of_a_log_is_rejected(text):
    with pytest.raises(RowProblem):
        Times(zone="UTC", mtime_us=us(2026, 1, 1)).parse(text)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), -1.0, 1e300])
def test_a_number_that_is_no_time_is_rejected(value):
    with pytest.raises(RowProblem):
        Times().epoch(value)


def test_an_epoch_may_name_its_unit():
    assert Times().epoch(1_793_589_247, unit="s").t_us == AT
    assert Times().epoch("1793589247000000000", unit="ns").t_us == AT
    assert Times().epoch(1_793_589_247.5).t_us == AT + 500_000


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+25:00", "../etc/passwd", ""])
def test_a_zone_that_does_not_exist_is_the_persons_mistake(zone):
    with pytest.raises(BadInput, match="no such time zone"):
        parse_zone(zone)


@given(st.text(max_size=60))
def test_any_text_is_a_time_or_a_row_problem(text):
    try:
        found = Times(zone="Europe/Berlin", year=2024, mtime_us=us(2026, 1, 1)).parse(text)
    except RowProblem:
        return
    assert 0 < found.t_us < 2**63


@given(st.integers(us(1991, 1, 1), us(2099, 12, 31)))
def test_iso_and_ctime_of_one_moment_are_one_time(t_us):
    when = datetime.fromtimestamp(t_us // 1_000_000, UTC).replace(microsecond=t_us % 1_000_000)
    times = Times(zone="UTC")
    assert times.parse(when.isoformat()).t_us == t_us
    assert times.parse(when.strftime("%Y-%m-%d %H:%M:%S.%f")).t_us == t_us
    assert times.parse(when.strftime("%a %b %d %H:%M:%S %Y")).t_us == t_us - when.microsecond
