"""Durations, ratios, zones and names: what is read, and what a wrong one is told."""

import zoneinfo

import pytest
from pydantic import TypeAdapter, ValidationError

from lastgood.contract.values import (
    DurationUs,
    Name,
    Percentile,
    Ratio,
    StartTime,
    TimeZone,
    nearest,
)


def read(kind, value):
    return TypeAdapter(kind).validate_python(value)


def told(kind, value) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        read(kind, value)
    context = caught.value.errors()[0]["ctx"]
    return context["needs"], context["write"]


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("250ms", 250_000),
        ("90s", 90_000_000),
        ("10min", 600_000_000),
        ("1.5h", 5_400_000_000),
        ("28d", 28 * 86_400_000_000),
    ],
)
def test_durations_are_read_exactly(text, expected_us):
    assert expected_us == read(DurationUs, text)


@pytest.mark.parametrize(
    ("value", "write"),
    [(90, "90s"), ("90", "90s"), ("5 minutes", "5min"), ("2m", "2min"), ("3 hours", "3h"), ("soon", "90s"), ("0s", "90s"),
     (True, "90s"), (None, "90s"), ("-5s", "90s"), ("99999d", "90s")],
)  # fmt: skip
def test_a_duration_that_is_none_is_told_what_to_write(value, write):
    assert write == told(DurationUs, value)[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.97, 0.97), ("97%", 0.97), ("99.9 %", 0.999), (1, 1.0), (0, 0.0), ("0%", 0.0)],
)
def test_a_percentage_is_the_same_ratio(value, expected):
    assert expected == read(Ratio, value)


@pytest.mark.parametrize(("value", "write"), [(97, "0.97"), (99.5, "0.995"), (-1, "0.97"), (1000, "0.97"), ("0.9", "0.9"),
                                              ("ninety", "0.97"), ("101%", "97%"), (True, "0.97")])  # fmt: skip
def test_a_ratio_out_of_range_is_told_what_to_write(value, write):
    assert write == told(Ratio, value)[1]


def test_a_percentile_has_three_spellings_and_open_ends():
    assert [read(Percentile, value) for value in (0.95, "95%", "p95", "p999")] == [
        0.95,
        0.95,
        0.95,
        0.999,
    ]
    assert told(Percentile, 1)
    assert told(Percentile, 0)


def test_time_zones_are_iana_names_and_no_paths():
    assert read(TimeZone, "Europe/Zurich") == "Europe/Zurich"
    assert read(TimeZone, "UTC") == "UTC"
    for bad in ("../etc/passwd", "/etc/passwd", "", "CEST+", "Europe", "x" * 5000, "Europe/\x00"):
        told(TimeZone, bad)


@pytest.mark.skipif(not zoneinfo.available_timezones(), reason="no time zone database here")
def test_a_misspelt_time_zone_is_told_the_right_one():
    assert told(TimeZone, "Europe/Zurihc") == ("an IANA time zone name", "Europe/Zurich")


def test_without_a_time_zone_database_only_the_shape_of_a_name_is_checked(monkeypatch):
    """A slim machine has no database: a contract that is right elsewhere must not be refused here."""

    def missing(name):
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    monkeypatch.setattr(zoneinfo, "available_timezones", frozenset)
    assert read(TimeZone, "Europe/Zurich") == "Europe/Zurich"
    assert read(TimeZone, "UTC") == "UTC"
    assert told(TimeZone, "summer time") == ("an IANA time zone name", "UTC")


def test_a_start_time_exists_and_names_no_second_zone():
    assert read(StartTime, "2026-02-28T00:00") == "2026-02-28T00:00"
    for bad in ("2026-02-30T00:00", "2026-01-01", "2026-01-01T00:00Z", "today"):
        told(StartTime, bad)


def test_a_name_fits_a_label_and_a_guess_is_a_name():
    assert read(Name, "pretrain-70b") == "pretrain-70b"
    for bad in ("Pre Train", "-x", "x" * 64, ""):
        guess = told(Name, bad)[1]
        assert guess == read(Name, guess)


def test_the_nearest_word_ignores_case_and_stays_silent_when_nothing_is_near():
    assert nearest("ontimout", ["timeout", "onTimeout", "owner"]) == "onTimeout"
    assert nearest("zebra", ["timeout", "onTimeout", "owner"]) == ""
