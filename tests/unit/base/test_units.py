"""Durations and sizes: exact in, readable out, and nothing guessed."""

import pytest

from lastgood.base.errors import BadInput
from lastgood.base.units import (
    format_bytes,
    format_duration,
    format_number,
    parse_duration_us,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("10min", 600_000_000),
        ("90s", 90_000_000),
        ("1.5h", 5_400_000_000),
        ("250ms", 250_000),
        ("28d", 28 * 86_400 * 1_000_000),
        ("2w", 14 * 86_400 * 1_000_000),
        ("1us", 1),
        ("1.1s", 1_100_000),
        ("1h30min", 5_400_000_000),
        (" 1 h 30 min ", 5_400_000_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_exactly(text, duration_us):
    assert parse_duration_us(text) == duration_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "s",
        "-1s",
        "1m",
        "1hour",
        "10s1h",
        "5s5s",
        "1.5us",
        "1e3s",
        "1,5h",
        "9" * 70 + "s",
        "300000000w",
    ],
)
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(BadInput):
        parse_duration_us(text)


def test_a_bare_number_gets_advice_and_a_place():
    with pytest.raises(BadInput) as caught:
        parse_duration_us("90", where="c.yaml:3: window")
    assert str(caught.value).startswith("c.yaml:3: window: not a duration: found '90', needs")
    assert str(caught.value).endswith("; write 90s")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4096B", 4096), ("1.5GB", 1_500_000_000), ("512MiB", 2**29), ("2 TiB", 2**41), ("1kB", 1000)],
)
def test_a_size_is_read_exactly(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "1", "1K", "1gb", "1GB2MB", "-1B"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(BadInput):
        parse_size(text)


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        # 54 days and 419 interruptions: the published arithmetic gives 3.09 h.
        (54 * 86_400 * 1_000_000 / 419, "3.09 h"),
        # Young's interval of the source chapter.
        (19.3 * 60 * 1_000_000, "19.3 min"),
        (0, "0 us"),
        (1, "1 us"),
        (250_000, "250 ms"),
        (999_900, "1 s"),
        (59_990_000, "1 min"),
        (90_000_000, "1.5 min"),
        (28 * 86_400 * 1_000_000, "28 d"),
        (-250_000, "-250 ms"),
        (400 * 86_400 * 1_000_000, "400 d"),
    ],
)
def test_a_duration_prints_three_significant_digits(duration_us, text):
    assert format_duration(duration_us) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536 * 2**20, "1.5 GiB")],
)
def test_a_size_prints_in_binary_units(size_bytes, text):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234.5, "1234"), (12.345, "12.3"), (0.00012345, "0.000123"), (1e-5, "0.00001"),
        (123456789, "123456789"), (float("inf"), "inf"), (1.0, "1"), (99.96, "100"),
    ],
)  # fmt: skip
def test_a_number_keeps_its_integer_part_and_has_no_exponent(value, text):
    assert format_number(value) == text
