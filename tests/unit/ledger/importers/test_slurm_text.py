"""Host lists, counts of accelerators, and rows that were torn by what people write into them."""

from __future__ import annotations

import pytest

from lastgood.ledger.importers.json_scan import Broken
from lastgood.ledger.importers.slurm_text import (
    Layout,
    Table,
    expand_hosts,
    gpus_of_gres,
    gpus_of_tres,
    read_rows,
)
from lastgood.ledger.importers.source import Line


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-0007", ("gpu-0007",)),
        ("gpu-[0009-0011,0100]", ("gpu-0009", "gpu-0010", "gpu-0011", "gpu-0100")),
        ("a[1-2]b[3-4],c", ("a1b3", "a1b4", "a2b3", "a2b4", "c")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_a_host_list_names_its_hosts(text, hosts):
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "a[1-2",
        "a]1[",
        "a[3-1]",
        "a[1-999999999]",
        "a[[1]]",
        "a[1-300]b[1-400]",
        "[1-99]" * 8,
        "[1]" * 9,
    ],
)
def test_a_host_list_that_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match="host"):
        expand_hosts(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("billing=1024,gres/gpu=1024", 1024),
        ("cpu=8,gres/gpu=8,gres/gpu:h100=8", 8),
        ("gres/gpu:h100=4,gres/gpu:a100=2", 6),
        ("cpu=8,mem=4G", None),
        ("gres/gpumem=80G", None),
    ],
)
def test_an_allocation_counts_each_accelerator_once(text, count):
    assert gpus_of_tres(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("gpu:h100:8(S:0-1)", 8), ("gpu:4,nic:2", 4), ("gpu:a:2,gpu:b:6", 8), ("nic:4", None)],
)
def test_a_node_counts_its_accelerators(text, count):
    assert gpus_of_gres(text) == count


COLUMNS = ("id", "name", "state", "note", "end")
TABLE = Table(
    header=lambda text: Layout("|", COLUMNS) if text.startswith("id|") else None,
    bare=lambda text: Layout("|", COLUMNS) if text.count("|") == 4 else None,
    fits=lambda f: f["id"].isdigit() and f["state"] in {"UP", "DOWN"} and f["end"].isdigit(),
    free=frozenset(("name", "note")),
)


def rows(*texts: str) -> list:
    lines = [Line(n, text.encode(), text) for n, text in enumerate(texts, 1)]
    found = read_rows(lines, TABLE)
    return [
        (r.number, r.value.reason if isinstance(r.value, Broken) else tuple(r.value.values()))
        for r in found
    ]


def test_a_field_with_a_line_break_is_one_row_with_all_its_bytes():
    lines = [Line(n, t.encode(), t) for n, t in enumerate(("1|two", "", "lines|UP|x|9"), 1)]
    (row,) = read_rows([Line(0, b"id|", "id|"), *lines], TABLE)
    assert row.value["name"] == "two\n\nlines"
    assert row.raw == b"1|two\n\nlines|UP|x|9"


def test_a_delimiter_in_a_field_belongs_where_the_other_fields_then_fit():
    assert rows("id|", "1|a|b|c|UP|x|9") == [(2, ("1", "a|b|c", "UP", "x", "9"))]
    assert rows("id|", "1|a|UP|x|y|9") == [(2, ("1", "a", "UP", "x|y", "9"))]


def test_a_row_that_can_be_read_in_two_ways_is_refused():
    ((number, reason),) = rows("id|", "1|UP|UP|DOWN|x|9")
    assert (number, reason.split(":")[0]) == (2, "a delimiter inside a field")


def test_a_row_that_is_cut_costs_itself_only():
    assert rows("id|", "1|a|UP|x|1", "2|b|U", "3|c|UP|x|3", "4|d") == [
        (2, ("1", "a", "UP", "x", "1")),
        (3, "the row is cut: 3 of 5 fields"),
        (4, ("3", "c", "UP", "x", "3")),
        (5, "the row is cut: 2 of 5 fields"),
    ]


def test_a_table_without_a_header_and_without_the_known_columns_is_refused_line_by_line():
    assert rows("1|2", "1|a|UP|x|1") == [
        (1, "no header, and not in the documented order of columns"),
        (2, ("1", "a", "UP", "x", "1")),
    ]


def test_files_that_were_joined_have_headers_in_the_middle():
    assert rows("id|", "1|a|UP|x|1", "id|", "2|b|UP|x|2") == [
        (2, ("1", "a", "UP", "x", "1")),
        (4, ("2", "b", "UP", "x", "2")),
    ]


def test_a_row_is_not_looked_for_over_more_lines_than_a_person_writes():
    found = rows("id|", *["1|never ends"] + ["x"] * 70)
    assert found[0] == (2, "the row is cut: 2 of 5 fields")
