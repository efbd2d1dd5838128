"""Hand-kept logs of several shapes: all of them are read, and no line with a date is prose in silence."""

from itertools import permutations

import pytest

from tests.unit.ledger.importers.import_cases import import_text

TABLE = (
    "| Start | Stop | What | Host |\n|---|---|---|---|\n| 2026-11-02 03:14 | 05:00 | ranks waited | n1 |\n"
    "| 2026-11-03 03:14 | 05:00 | riser | n2 |\n"
)
LIST = "- 2026-11-04 03:14 - 05:00: ranks waited\n- 2026-11-05 03:14 - 06:00: riser (cause: DIMM)\n"
BLOCK = "start: 2026-11-08 08:00\nstop: 2026-11-08 09:00\nwhat: PSU died\n"
YAML = "- start: 2026-11-09 08:00\n  stop: 2026-11-09 09:00\n  what: switch reboot\n  host: n3\n"
CSV = "start,stop,what,host\n2026-11-10 08:00,2026-11-10 09:00,PSU died,n4\n"
DATED = "2026-11-11 08:00 - 09:00: fabric down\n"
COUNTS = {TABLE: 2, LIST: 2, BLOCK: 1, YAML: 1, CSV: 1, DATED: 1}
NAMES = {TABLE: "table", LIST: "list", BLOCK: "block", YAML: "yaml", CSV: "csv", DATED: "dated"}


def read(folder, text, **options):
    return import_text(folder, text, name="log.md", format="handkept", zone="UTC", **options)


@pytest.mark.parametrize(
    ("first", "second"), list(permutations(COUNTS, 2)), ids=lambda shape: NAMES[shape]
)
@pytest.mark.parametrize(
    "between", ["\n", "\n## Later\n\nWe changed the form.\n\n"], ids=["blank", "prose"]
)
def test_two_shapes_in_one_file_are_both_read(tmp_path, first, second, between):
    imported = read(tmp_path, first + between + second)
    assert imported.quality.rejected == {}
    assert len(imported.incidents) == COUNTS[first] + COUNTS[second]
    assert all(incident.closed_us is not None for incident in imported.incidents)


def test_all_shapes_in_one_file_are_read_without_a_blank_line_between_most(tmp_path):
    imported = read(tmp_path, TABLE + LIST + BLOCK + YAML + DATED + "\n" + CSV)
    assert (len(imported.incidents), imported.quality.rejected) == (8, {})


def test_blocks_that_follow_each_other_without_a_blank_line_are_several(tmp_path):
    imported = read(tmp_path, BLOCK + BLOCK.replace("11-08", "11-09"))
    assert len(imported.incidents) == 2


def test_a_table_without_bars_at_its_edges_is_read(tmp_path):
    text = "Start | Stop | What\n---|---|---\n2026-11-02 03:14 | 05:00 | ranks waited\n"
    assert len(read(tmp_path, text).incidents) == 1


def test_items_with_a_clock_belong_to_the_day_in_the_heading(tmp_path):
    text = "## 2026-11-02\n\n- 03:14 - 05:00: ranks waited\n- 08:00: riser\n\n## 2026-11-03 Tuesday\n- 01:00: PSU\n"
    imported = read(tmp_path, text)
    assert sorted(i.opened_us // 60_000_000 % 1440 for i in imported.incidents) == [60, 194, 480]
    assert imported.quality.rejected == {}


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("2026-11-08 the PSU died", 1),
        ("2026-11-08 08:00", 1),
        ("08/11/26 08:00 PSU died", 1),
        ("- 8/11/26 8:00 PSU died", 1),
        ("- 08:00: PSU died", 1),
        ("## 2026-11-08 08:00 PSU died\n\nWe changed it.", 1),
        ("start:\nstop:\nwhat: PSU died", 1),
        ("start: last Monday\nwhat: PSU died", 1),
        ("stop: 2026-11-08 09:00\nwhat: PSU died", 1),
        ("- what: PSU died\n  host: n1", 1),
        ("| Zeit | Was |\n|---|---|\n| 2026-11-08 08:00 | PSU died |", 3),
        ("| 2026-11-08 08:00 | PSU died |", 1),
        ("It came back at\n2026-11-08 08:00 and stayed.", 2),
    ],
)
def test_a_line_with_a_date_or_a_key_of_an_entry_is_read_or_rejected_with_its_line(
    tmp_path, line, number
):
    imported = read(tmp_path, line + "\n\n" + LIST)
    places = [e.locator for r in imported.quality.rejected.values() for e in r.examples]
    assert places == [f"log.md#{number}"]
    assert len(imported.incidents) == 2


def test_prose_stays_prose(tmp_path):
    text = (
        "# Incidents of cluster 7\n\nNote: all times are UTC, see 4.2.1 for how.\nRack 12 was moved in March.\n"
        "Owner: team-a\n\n- ask before you write\n- Note: keep it short\n  - as short as this\n\n"
    )
    imported = read(tmp_path, text + LIST)
    assert imported.quality.rejected == {}
    assert len(imported.incidents) == 2


def test_a_dated_item_below_an_item_that_looks_like_a_key_is_read(tmp_path):
    imported = read(
        tmp_path, "- November: two of them\n  - 2026-11-04 03:14 - 05:00: ranks waited\n"
    )
    assert len(imported.incidents) == 1
