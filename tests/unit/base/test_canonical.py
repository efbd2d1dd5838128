"""Canonical bytes: one content, one form; what has no form is refused."""

import enum
import hashlib
import math

import pytest

from lastgood.base.canonical import (
    canonical_bytes,
    float_from_hex,
    float_hex,
    is_close,
    sha256_hex,
    with_hex_floats,
)
from lastgood.base.errors import CanonicalError


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    ONE = 1


def test_keys_are_sorted_and_nothing_is_padded():
    assert canonical_bytes({"b": [1, None, True], "a": "x"}) == b'{"a":"x","b":[1,null,true]}'


def test_text_is_composed_and_written_as_utf8():
    assert canonical_bytes("e\u0301") == canonical_bytes("\u00e9") == b'"\xc3\xa9"'


def test_enums_and_tuples_are_what_they_stand_for():
    assert canonical_bytes((Colour.RED, Level.ONE)) == b'["red",1]'


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        {"a": [0.5]},
        {1: "a"},
        {"e\u0301": 1, "\u00e9": 2},
        2**64,
        -(2**63) - 1,
        b"bytes",
        {"set"},
        "\ud800",
    ],
)
def test_what_has_no_canonical_bytes_is_refused(value):
    with pytest.raises(CanonicalError):
        canonical_bytes(value)


def test_a_refusal_names_the_place():
    with pytest.raises(CanonicalError, match=r"\$\.a\[1\]\.b"):
        canonical_bytes({"a": [0, {"b": 0.5}]})


def test_a_bottomless_value_is_refused_rather_than_followed():
    value: list = []
    value.append(value)
    with pytest.raises(CanonicalError, match="nested"):
        canonical_bytes(value)


@pytest.mark.parametrize("value", [0.1, -0.0, 1e300, 5e-324, math.inf, -math.inf])
def test_a_float_comes_back_from_hex_exactly(value):
    again = float_from_hex(float_hex(value))
    assert again == value
    assert math.copysign(1, again) == math.copysign(1, value)


def test_not_a_number_comes_back_as_such():
    assert math.isnan(float_from_hex(float_hex(math.nan)))


def test_text_that_is_no_float_is_refused():
    with pytest.raises(CanonicalError):
        float_from_hex("pi")


def test_floats_deep_inside_become_hex():
    assert with_hex_floats({"a": (0.5, 1, True)}) == {"a": ["0x1.0000000000000p-1", 1, True]}


def test_close_is_relative():
    assert is_close(1e12, 1e12 + 1)
    assert not is_close(1.0, 1.0 + 1e-8)
    assert not is_close(0.0, 1e-30)
    assert is_close(math.nan, math.nan)
    assert not is_close(math.nan, 0.0)


def test_the_hash_is_sha256():
    assert sha256_hex(b"abc") == hashlib.sha256(b"abc").hexdigest()
