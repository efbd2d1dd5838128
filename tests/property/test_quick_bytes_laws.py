"""The quick way to canonical bytes gives the bytes and the refusals of the plain way, whatever it is given."""

from __future__ import annotations

import enum
import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lastgood.base.canonical import (
    DEPTH_MAX,
    canonical_bytes,
    is_exactly_plain,
    plain_bytes,
    quick_bytes,
)
from lastgood.base.errors import CanonicalError
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import (
    ClockStamp,
    Domain,
    Event,
    Links,
    Source,
    encode_event,
    event_to_plain,
)


class Number(enum.IntEnum):
    ONE = 1


class Name(str):
    pass


# Every plane and every class of characters, with the awkward ones more often than chance would have them.
characters = st.characters(exclude_categories=()) | st.sampled_from(
    '\x00\x1f\x7f\u0080\u0085\u009f\u2028\u2029\ufeff\uffff"\\/\u0301\u0338=e\u00e9\u212b\uac00\u1100\u1161\ud800\udfff\U0001f600'
)
texts = st.text(characters, max_size=6)
numbers = st.integers(-(2**66), 2**66) | st.sampled_from(
    (-(2**63), -(2**63) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 0, -0)
)
leaves = (
    st.none() | st.booleans() | numbers | texts | st.floats() | st.binary(max_size=3)
    | st.sampled_from((Number.ONE, EventKind.DETECT, Name("x"), {1, 2}, {3: 4}, {None: 1}, object(), 1.0, b""))
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=8,
)
plain_leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts
plain_values = st.recursive(
    plain_leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=12,
)


def outcome(write, value):
    """The bytes, or what kind of refusal."""
    try:
        return write(value)
    except CanonicalError as error:
        return (type(error), error.what, error.where)
    except Exception as error:
        return type(error)


@settings(max_examples=200, deadline=None)
@given(values | plain_values)
@example(
    {"\uffff": 1, "\U0001f600": 2, "z": 3}
)  # by code point, not by UTF-16: the other way round there
@example({"e\u0301": 1, "\u00e9": 2})  # one key after NFC
@example({"a": "\n\u0301"})  # the escape ends in a letter that would compose
@example(["=", "\u0338", "=\u0338"])
@example({"a": float("nan")})
@example({"a": 2**64})
def test_both_ways_give_the_same_bytes_or_the_same_refusal(value):
    assert outcome(canonical_bytes, value) == outcome(plain_bytes, value)


@settings(max_examples=200, deadline=None)
@given(plain_values)
@example({"\u2000": None})  # repr would hide it behind an escape
def test_the_quick_way_is_really_taken(value):
    """Otherwise the law above would compare the plain way with itself."""
    try:
        expected = plain_bytes(value)
    except CanonicalError:
        assert quick_bytes(value) is None
        return
    assert is_exactly_plain(value)
    text = expected.decode()
    if unicodedata.is_normalized("NFC", text):
        is_normal_before = unicodedata.is_normalized("NFC", json.dumps(value, ensure_ascii=False))
        quick = quick_bytes(value)
        assert quick == expected or (quick is None and not is_normal_before)


@pytest.mark.parametrize("depth", [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 5_000])
def test_both_ways_refuse_the_same_depth(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    assert outcome(canonical_bytes, value) == outcome(plain_bytes, value)
    event = Event(kind="k", id="i", body={"x": value})
    assert outcome(encode_event, event) == outcome(lambda e: plain_bytes(event_to_plain(e)), event)


odd = values | st.none()


@st.composite
def an_event(draw) -> Event:
    """Fields of the right types mostly, and of any type now and then, as no checker stops a writer."""
    fields = {
        "kind": draw(texts),
        "id": draw(texts),
        "body": draw(st.dictionaries(texts, values, max_size=4)),
    }
    some = {
        "schema": texts | st.just("lastgood.event/1"),
        "seq": numbers,
        "t_occurred_us": numbers,
        "run": texts,
        "devices": numbers,
        "versions": st.dictionaries(texts, texts, max_size=2),
        "ranks": st.lists(numbers, max_size=3).map(tuple),
        "domain": st.lists(st.builds(Domain, kind=texts, id=texts), max_size=2).map(tuple),
        "clock": st.builds(ClockStamp, source=texts, uncertainty_us=numbers | st.floats()),
        "source": st.builds(Source, importer=texts, locator=texts),
        "links": st.builds(Links, incident=texts, extra=st.dictionaries(texts, plain_leaves, max_size=1)),
        "extra": st.dictionaries(texts, plain_values, max_size=1),
    }  # fmt: skip
    for name in draw(st.sets(st.sampled_from(sorted(some)))):
        fields[name] = draw(odd if draw(st.integers(0, 12)) == 0 else some[name])
    return Event(**fields)


@settings(max_examples=200, deadline=None)
@given(an_event())
@example(Event(kind=EventKind.STEP, id="i"))
@example(Event(kind="k", id="i", schema="".join([*"lastgood.event/1"])))
@example(Event(kind="k", id="i", schema="lastgood.event/2", extra={"new": 1}))
@example(Event(kind="k", id="i", body={"x": {1: 2}}))
@example(Event(kind="k", id="i", body={"x": 0.5}))
@example(Event(kind="k", id="i", t_occurred_us=0.5))
@example(Event(kind="k", id="i", clock=ClockStamp(uncertainty_us=float("inf"))))
def test_an_event_has_the_bytes_of_the_plain_way(event):
    expected = outcome(lambda e: plain_bytes(event_to_plain(e)), event)
    assert outcome(encode_event, event) == expected


@pytest.mark.nightly
@pytest.mark.timeout(900)
@settings(max_examples=8_000, deadline=None)
@given(an_event(), values | plain_values)
def test_many_events_and_values_have_the_bytes_of_the_plain_way(event, value):
    expected = outcome(lambda e: plain_bytes(event_to_plain(e)), event)
    assert outcome(encode_event, event) == expected
    assert outcome(canonical_bytes, value) == outcome(plain_bytes, value)
