"""Laws of canonical bytes, units and streams, for any input."""

import json
import math
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.canonical import canonical_bytes, float_from_hex, float_hex
from lastgood.base.rng import stream
from lastgood.base.units import format_bytes, format_duration, parse_duration_us

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | text
keys = text.map(lambda key: unicodedata.normalize("NFC", key))
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
)


@given(documents)
def test_canonical_bytes_are_a_fixed_point(document):
    once = canonical_bytes(document)
    assert canonical_bytes(json.loads(once)) == once


@given(st.dictionaries(keys, scalars, max_size=6))
def test_the_order_of_insertion_does_not_matter(document):
    assert canonical_bytes(dict(reversed(document.items()))) == canonical_bytes(document)


@given(documents, documents)
def test_different_content_has_different_bytes(left, right):
    def composed(value):
        return json.loads(unicodedata.normalize("NFC", json.dumps(value, ensure_ascii=False)))

    def typed(value):
        # True == 1 in Python, and not in JSON.
        return json.dumps(composed(value), sort_keys=True)

    assert (typed(left) == typed(right)) == (canonical_bytes(left) == canonical_bytes(right))


@given(st.floats())
def test_every_float_survives_hex(value):
    again = float_from_hex(float_hex(value))
    assert again == value or (math.isnan(again) and math.isnan(value))


@given(st.integers(0, 10**15))
def test_a_printed_duration_reads_back_within_its_three_digits(duration_us):
    number, unit = format_duration(duration_us).split(" ")
    again_us = parse_duration_us(f"{round(float(number) * 1000)}{unit}") / 1000
    assert math.isclose(again_us, duration_us, rel_tol=0.006, abs_tol=0)


@given(st.integers(1, 10**15))
def test_a_printed_size_is_within_its_three_digits(size_bytes):
    number, unit = format_bytes(size_bytes).split(" ")
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    assert math.isclose(float(number) * scale, size_bytes, rel_tol=0.006)


@given(st.integers(0, 2**64 - 1), st.lists(text | st.integers(0, 100), max_size=4))
def test_a_stream_depends_on_its_seed_and_names_alone(seed, names):
    draws = [stream(seed, *names).random() for _ in range(2)]
    assert draws[0] == draws[1]
    assert stream(seed, *names, "more").random() != draws[0]
