"""Plain containers come back as Python's own reader gives them; everything else is refused and never run."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import os
import pickle
import pickletools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.ledger.importers.plain_pickle import Refused, read_plain_pickle

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(), inner)
    ),
    max_leaves=30,
)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_comes_back_as_python_reads_it(value, protocol):
    """Differential: the standard library's reader is the oracle, on pickles that it wrote itself."""
    if protocol == 2 and _has_bytes(value):
        protocol = 3  # protocol 2 has no bytes: it calls a function to make them
    data = pickle.dumps(value, protocol)
    assert read_plain_pickle(data) == pickle.loads(data)


def _has_bytes(value) -> bool:
    if isinstance(value, dict):
        return any(map(_has_bytes, value.values()))
    return (
        any(map(_has_bytes, value)) if isinstance(value, list | tuple) else isinstance(value, bytes)
    )


def test_values_that_are_named_twice_are_one_object():
    inner = [1]
    found = read_plain_pickle(pickle.dumps({"a": inner, "b": inner}))
    assert found["a"] is found["b"]


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        _Evil(),
        collections.OrderedDict(a=1),
        dt.date(2026, 1, 1),
        {1, 2},
        bytearray(b"x"),
        os.path.join,
    ],
    ids=["call", "class", "date", "set", "bytearray", "function"],
)
def test_whatever_is_more_than_plain_data_is_refused_and_not_run(
    value, protocol, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="plain data only"):
        read_plain_pickle(pickle.dumps(value, protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "PERSID",
     "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER", "BYTEARRAY8"],
)  # fmt: skip
def test_each_opcode_that_reaches_outside_is_refused_by_name(name):
    code = next(op.code for op in pickletools.opcodes if op.name == name)
    data = b"\x80\x04" + code.encode("latin-1") + b"\x00" * 16 + b"."
    with pytest.raises(Refused, match=rf"^{name} "):
        read_plain_pickle(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends before its stop"),
        (b"\x80\x02", "ends before its stop"),
        (b"\x80\x02.", "nothing on the stack"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "past the end"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "past the end"),
        (b"\x80\x02]K\x01s.", "no dict on the stack"),
        (b"\x80\x02K\x01K\x01s.", "no dict on the stack"),
        (b"\x80\x02}(K\x01u.", "a key without a value"),
        (b"\x80\x02}K\x01\x85K\x02s.", "a tuple as a key"),
        (b"\x80\x02h\x07.", "nothing remembered"),
        (b"\x80\x02\x8a\x20" + b"\x01" * 32 + b".", "an integer of 32 bytes"),
        (b"\x80\x02e.", "no mark"),
        (b"\x80\x02(.", "nothing on the stack"),
        (b"\x80\x02\xff.", "an unknown opcode"),
    ],
)
def test_broken_pickles_are_refused_with_the_place(data, reason):
    with pytest.raises(Refused, match=reason):
        read_plain_pickle(data)


def test_a_huge_memo_number_costs_nothing():
    assert read_plain_pickle(b"\x80\x02K\x01r\xff\xff\xff\xffj\xff\xff\xff\xff.") == 1


def test_deep_nesting_is_read_without_recursion():
    found = read_plain_pickle(b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".")
    depth = 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 49_999


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_a_refusal(data):
    with contextlib.suppress(Refused):
        read_plain_pickle(b"\x80\x02" + data)


def test_more_opcodes_than_a_dump_has_are_refused(monkeypatch):
    monkeypatch.setattr("lastgood.ledger.importers.plain_pickle.OPCODES_MAX", 100)
    assert read_plain_pickle(b"\x80\x02" + b"]" * 98 + b".") == []
    with pytest.raises(Refused, match="more than 100 opcodes"):
        read_plain_pickle(b"\x80\x02" + b"]" * 99 + b".")
