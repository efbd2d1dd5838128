"""JSON item by item gives what the whole-file decoder gives, and goes on behind what is broken."""

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lastgood.ledger.importers import json_scan
from lastgood.ledger.importers.json_scan import Broken, scan_items
from lastgood.ledger.importers.source import Source, json_items

ITEMS = [{"a": 1, "text": 'quote " and \\ and } ] {'}, [1, [2]], "x,]", 3.5, None, True, {}]


def items(text: str | bytes, *keys: str):
    data = text.encode() if isinstance(text, str) else text
    return list(json_items(Source("x.json", stream=io.BytesIO(data)), *keys))


def values(text: str | bytes, *keys: str):
    return [item.value for item in items(text, *keys)]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_elements_of_an_array_come_in_order(indent):
    found = items(json.dumps(ITEMS, indent=indent))
    assert [item.value for item in found] == ITEMS
    assert [item.number for item in found] == list(range(1, len(ITEMS) + 1))


@pytest.mark.parametrize("indent", [None, 2])
def test_the_array_under_a_key_is_found_behind_other_keys(indent):
    whole = {
        "meta": {"jobs": [0], "n": [1, 2]},
        "n": 5,
        "text": "jobs",
        "jobs": ITEMS,
        "errors": [],
    }
    assert values(json.dumps(whole, indent=indent), "jobs") == ITEMS


def test_the_array_under_a_path_of_keys_is_found():
    whole = {"items": [1], "data": {"x": {"items": [2]}, "items": ITEMS}, "z": 1}
    assert values(json.dumps(whole), "data", "items") == ITEMS


def test_an_object_without_the_key_is_an_item_itself():
    assert values(json.dumps({"kind": "Event", "x": {"items": [1]}}, indent=1), "items") == [
        {"kind": "Event", "x": {"items": [1]}}
    ]


def test_one_object_a_line_is_numbered_by_its_line():
    found = items('{"a": 1}\n\n{"a": 2}\n')
    assert [(item.number, item.value) for item in found] == [(1, {"a": 1}), (3, {"a": 2})]


def test_a_broken_line_costs_itself_only():
    found = items('{"a": 1}\n{"a": \n{"a": 3}\n')
    assert [(item.number, item.value) for item in found if not isinstance(item.value, Broken)] == [
        (1, {"a": 1}),
        (3, {"a": 3}),
    ]
    (broken,) = [item for item in found if isinstance(item.value, Broken)]
    assert broken.number == 2
    assert broken.value.reason.startswith("not JSON")


def test_a_broken_first_line_does_not_hide_that_there_is_one_object_a_line():
    found = items('{"a": \n{"a": 2}\n{"a": 3}\n')
    assert [item.value for item in found][1:] == [{"a": 2}, {"a": 3}]


def test_arrays_under_a_key_may_stand_on_each_line():
    assert values('{"items": [1, 2]}\n{"items": [3]}\n', "items") == [1, 2, 3]


def test_objects_one_after_another_come_one_by_one():
    assert values('{\n"a": 1\n} {\n"a": 2\n}\n') == [{"a": 1}, {"a": 2}]


def test_a_broken_element_costs_itself_only():
    found = values('[{"a": 1},\n {"a": , },\n {"a": 3}]')
    assert found[0] == {"a": 1}
    assert isinstance(found[1], Broken)
    assert found[2] == {"a": 3}


def test_a_file_that_ends_inside_an_element_gives_the_others_and_says_so():
    found = values('[{"a": 1},\n {"a": {"b": [')
    assert found == [
        {"a": 1},
        Broken("the file ends inside an item"),
        Broken("the file ends inside the array"),
    ]


def test_a_file_that_ends_between_elements_says_so():
    assert values('[{"a": 1},\n') == [{"a": 1}, Broken("the file ends inside the array")]


def test_numbers_that_python_writes_and_json_does_not_have_are_read():
    ((value,),) = (values('[{"a": NaN, "b": Infinity}]'),)
    assert value["a"] != value["a"]
    assert value["b"] == float("inf")


def test_a_deeply_nested_item_is_broken_and_nothing_else_is():
    deep = "[" * 100_000 + "]" * 100_000
    assert values(f"[{deep}, 7]") == [Broken("JSON is nested too deeply"), 7]


def test_an_item_longer_than_the_bound_is_left_out(monkeypatch):
    monkeypatch.setattr(json_scan, "ITEM_BYTES_MAX", 1_000)
    found = list(scan_items(iter([b'[{"a": "', *[b"x" * 500] * 10, b'"},\n{"a": 2}]'])))
    assert found[0].value.reason.startswith("an item is longer than")
    assert found[-1].value != {"a": "x"}


def test_text_that_is_no_json_at_all_is_said_to_be_none():
    assert all(isinstance(value, Broken) for value in values("hello world"))


@pytest.mark.parametrize("text", ["", " \n", "\x00\x00"])
def test_nothing_has_no_items(text):
    assert items(text) == []


@example(wanted=[{"": None}, [None, None]], indent=None, block=1, is_under=False)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        max_size=5,
    ),
    st.sampled_from([None, 1]),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_array_in_any_blocks_gives_what_the_whole_decoder_gives(
    wanted, indent, block, is_under
):
    """The oracle is `json.loads` of the whole text."""
    data = json.dumps({"k": 1, "items": wanted} if is_under else wanted, indent=indent).encode()
    blocks = iter([data[i : i + block] for i in range(0, len(data), block)])
    assert [item.value for item in scan_items(blocks, ("items",) if is_under else ())] == wanted


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_end_in_items(data, block):
    blocks = iter([data[i : i + block] for i in range(0, len(data), block)])
    assert len(list(scan_items(blocks, ("a",)))) <= len(data) + 1


@given(st.text(alphabet='[]{}",:\\a1 \n', max_size=80), st.integers(1, 20))
def test_any_brackets_end_in_items(text, block):
    data = text.encode()
    blocks = iter([data[i : i + block] for i in range(0, len(data), block)])
    assert len(list(scan_items(blocks, ("a",)))) <= len(data) + 1
