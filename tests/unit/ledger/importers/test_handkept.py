from __future__ import annotations

import json

import pytest

from lastgood.ledger.importers import handkept_entries
from lastgood.ledger.importers.mapping import load_mapping, remap
from lastgood.ledger.importers.times import Times
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

MINUTE_US = 60_000_000
OPEN = "| start | stop | what | cause |\n|--|--|--|--|\n| 2026-11-02 03:14 | | run died | |\n"
CLOSED = OPEN.replace("| | run died | |", "| 05:00 | run died, mended | DIMM |")


def us(text: str) -> int:
    return Times().parse(text).t_us


def by_start(read) -> dict:
    return {i.opened_us: i for i in read.incidents}


# --- Markdown -----------------------------------------------------------------------------------------


@pytest.fixture
def markdown(tmp_path):
    return import_one(tmp_path, SAMPLES / "incidents.md", zone="UTC")


def test_a_markdown_log_is_recognised_and_every_line_is_accounted_for(markdown):
    quality = markdown.quality

    assert markdown.file.format == "handkept"
    assert len(markdown.incidents) == 6
    assert dict(quality.ignored) == {"headings, rules and prose between the entries": 6}
    assert {r: x.examples[0].locator for r, x in quality.rejected.items()} == {
        "an entry that stops before it starts": "incidents.md#11",
        "a row with more or fewer cells than its table": "incidents.md#12",
        "a dash that may be a zone or a range: write spaces around it": "incidents.md#20",
    }


def test_a_stop_without_a_day_may_be_on_the_next_one_and_is_marked(markdown):
    incident = by_start(markdown)[us("2026-11-02T22:50Z")]

    assert incident.closed_us == us("2026-11-03T01:10Z")
    assert [d.id for d in incident.domain] == ["gpu-0008", "gpu-0009"]
    (close,) = [
        e for e in markdown.events if e.kind == "incident.close" and e.incident == incident.id
    ]
    assert close.clock.source == "inferred"


def test_words_give_class_and_cause_and_no_more_than_they_say(markdown):
    seen = {i.opened_us: (i.class_, i.cause, i.cause_status) for i in markdown.incidents}

    assert seen[us("2026-11-02T03:14Z")] == ("fail_stop", "host.pcie", "supported")
    assert seen[us("2026-11-02T22:50Z")] == ("fail_stop", "unknown", "unknown")
    assert seen[us("2026-11-04T09:00Z")][0] == "planned"
    assert seen[us("2026-11-05T10:00Z")] == ("fail_slow", "host.power", "supported")
    # Nobody wrote a cause: a word in the description is a hint.
    assert seen[us("2026-10-01T10:00Z")] == ("fail_stop", "network.nic", "hypothesis")


def test_an_entry_without_a_stop_is_open(markdown):
    incidents = by_start(markdown)

    assert incidents[us("2026-11-04T09:00Z")].is_open
    assert incidents[us("2026-11-05T10:00Z")].is_open


def test_a_list_has_a_range_a_text_over_lines_and_a_cause_in_it(markdown):
    incidents = by_start(markdown)
    nic, fabric = incidents[us("2026-10-01T10:00Z")], incidents[us("2026-10-02T10:00Z")]

    assert (nic.closed_us - nic.opened_us, [d.id for d in nic.domain]) == (
        90 * MINUTE_US,
        ["gpu-0003"],
    )
    assert nic.notes == ("node gpu-0003 lost its NIC and came back by itself",)
    assert (fabric.closed_us - fabric.opened_us, fabric.cause) == (
        120 * MINUTE_US,
        "network.switch",
    )


def test_names_are_masked(markdown):
    assert "jane" not in json.dumps(markdown.bodies)


# --- YAML and CSV -------------------------------------------------------------------------------------


def test_a_yaml_list_is_read_entry_by_entry(tmp_path):
    read = import_one(tmp_path, SAMPLES / "incidents.yaml")
    seen = {i.opened_us: (i.class_, i.cause, i.closed_us) for i in read.incidents}

    assert seen == {
        us("2026-11-02T03:14Z"): ("sdc", "gpu.compute", us("2026-11-02T05:00Z")),
        us("2026-11-03T10:00Z"): ("fail_stop", "data", us("2026-11-03T11:30Z")),
        us("2026-11-04T10:00Z"): ("fail_stop", "gpu.memory", None),
    }
    assert [x.examples[0].locator for x in read.quality.rejected.values()] == ["incidents.yaml#11"]
    assert next(iter(read.quality.rejected)).startswith("not YAML: found the alias")


def test_a_list_inside_an_entry_belongs_to_it(tmp_path):
    text = "- start: 2026-11-02 03:14Z\n  what: run died\n  hosts:\n    - gpu-1\n    - gpu-2\n- start: 2026-11-03 03:14Z\n"
    read = import_text(tmp_path, text)

    assert [[d.id for d in i.domain] for i in read.incidents] == [["gpu-1", "gpu-2"], []]


def test_two_columns_with_one_meaning_are_both_kept(tmp_path):
    read = import_text(
        tmp_path, "start,what,details\n2026-11-02 03:14Z,run died,at step 7\n", format="handkept"
    )

    assert [b["text"] for b in read.bodies] == ["run died; at step 7"]


def test_a_csv_log_joins_its_day_and_clock_columns(tmp_path):
    read = import_one(tmp_path, SAMPLES / "incidents.csv", zone="+01:00")

    assert read.file.format == "handkept"
    assert {i.opened_us: i.closed_us for i in read.incidents} == {
        us("2026-11-02T02:14Z"): us("2026-11-02T04:00Z"),
        us("2026-11-03T22:50Z"): us("2026-11-03T23:10Z"),
    }
    assert list(read.quality.rejected) == ["a date that can be two days: write YYYY-MM-DD"]


BLOCKS = """
### <span class="title">Partial file system failure</span>

**Resolved**: it works again.
1. 2018-12-21 (1.5 hours) - the same thing in a summary

<!--
start: 2018-12-21T12:00:00
stop: 2018-12-21T13:30:00
severity: major-outage
reason: internal
 -->

### Kernel update

start: 2018-12-22 10:00
length: 19 hours
reason: scheduled
"""


def test_blocks_of_keys_and_values_are_entries_under_their_heading(tmp_path):
    read = import_text(tmp_path, BLOCKS, name="status.md", zone="UTC")

    assert [(i.opened_us, i.closed_us, i.class_) for i in read.incidents] == [
        (us("2018-12-21T12:00Z"), us("2018-12-21T13:30Z"), "fail_stop"),
        (us("2018-12-22T10:00Z"), us("2018-12-23T05:00Z"), "planned"),
    ]
    # *internal* names no part; the heading does, and is a hint.
    assert (read.incidents[0].cause, read.incidents[0].cause_status) == ("storage.fs", "hypothesis")
    assert [b["text"] for b in read.bodies if "text" in b] == [
        "Partial file system failure",
        "Kernel update",
    ]


@pytest.mark.parametrize(
    ("length", "minutes"),
    [
        ("6.5 hours", 390),
        ("90 min", 90),
        ("1h30m", 90),
        ("2 days, 4 h", 3120),
        ("~1 hr", 60),
        ("1 week", 10_080),
    ],
)
def test_a_length_in_brackets_behind_a_date_is_a_duration(tmp_path, length, minutes):
    read = import_text(
        tmp_path,
        OPEN.replace("| stop |", "| length |").replace("14 | |", f"14 | {length} |"),
        name="log.md",
        zone="UTC",
    )
    listed = import_text(
        tmp_path,
        f"1. 2019-07-30 08:00 ({length}) - power outage\n",
        name="list.md",
        ledger="b",
        zone="UTC",
    )

    assert [i.closed_us - i.opened_us for i in read.incidents] == [minutes * MINUTE_US]
    assert [(i.closed_us - i.opened_us, i.cause) for i in listed.incidents] == [
        (minutes * MINUTE_US, "facility.power")
    ]


def test_brackets_that_hold_no_length_are_words(tmp_path):
    read = import_text(tmp_path, "1. 2019-07-30 08:00 (2 nodes) - power outage\n", name="list.md")

    assert [(i.is_open, i.notes) for i in read.incidents] == [(True, ("(2 nodes) - power outage",))]


@pytest.mark.parametrize("length", ["12", "2 h or more", "1:30", "3 months", "long"])
def test_a_length_that_says_no_unit_is_rejected(tmp_path, length):
    read = import_text(
        tmp_path,
        OPEN.replace("| stop |", "| length |").replace("14 | |", f"14 | {length} |"),
        name="log.md",
    )

    assert list(read.quality.rejected) == ["a duration without a unit"]


# --- the life of a log --------------------------------------------------------------------------------


def test_a_stop_and_a_cause_that_are_added_later_find_their_incident(tmp_path):
    import_text(tmp_path, OPEN, name="log.md", zone="UTC")
    (incident,) = import_text(tmp_path, CLOSED, name="log.md", zone="UTC").incidents

    assert (incident.closed_us, incident.cause) == (us("2026-11-02T05:00Z"), "host.memory")


def test_the_word_that_was_read_and_its_list_are_kept_and_a_mapping_leaves_the_class_alone(
    tmp_path,
):
    text = OPEN.replace("| run died | |", "| planned work | DIMM |")
    (event,) = import_text(tmp_path, text, name="log.md", zone="UTC").events
    (again,) = remap([event], load_mapping("cause-words"))

    assert (event.body["word"], event.body["word_list"]) == ("dimm", load_mapping("cause-words").id)
    assert (again.class_, again.cause) == ("planned", "host.memory")


def test_importing_a_log_twice_changes_nothing(tmp_path):
    import_text(tmp_path, CLOSED, name="log.md", zone="UTC")

    assert import_text(tmp_path, CLOSED, name="log.md", zone="UTC").quality.events_new == 0


def test_times_without_a_zone_or_a_year_are_marked_unless_an_option_says_them(tmp_path):
    text = OPEN.replace("2026-11-02 03:14", "Nov 2, 03:14")

    marked = import_text(tmp_path, text, name="a.md", ledger="a")
    said = import_text(tmp_path, text, name="b.md", ledger="b", year=2026, zone="UTC")
    assert marked.quality.inferred_times == 1
    assert (said.quality.inferred_times, said.events[0].t_occurred_us) == (
        0,
        us("2026-11-02T03:14Z"),
    )


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2026-11-02T03:14:07+02:00", "2026-11-02T01:14:07Z"),
        ("2026-11-02 3:14", "2026-11-02T03:14Z"),
        ("2026/11/2 03:14", "2026-11-02T03:14Z"),
        ("2.11.2026, 03:14", "2026-11-02T03:14Z"),
        ("13/11/2026 03:14", "2026-11-13T03:14Z"),
        ("11/13/2026 03:14", "2026-11-13T03:14Z"),
        ("Mon, Nov 2 2026 03:14", "2026-11-02T03:14Z"),
        ("11/13/2026 3:14 p.m.", "2026-11-13T15:14Z"),
        ("Nov 2 2026 12:14 AM", "2026-11-02T00:14Z"),
        ("2 November 2026 03:14:07", "2026-11-02T03:14:07Z"),
        ("1793589247", "2026-11-02T03:14:07Z"),
    ],
)  # fmt: skip
def test_people_write_times_in_many_ways(tmp_path, start, expected):
    read = import_text(tmp_path, OPEN.replace("2026-11-02 03:14", start), name="log.md", zone="UTC")

    assert [e.t_occurred_us for e in read.events] == [us(expected)]


@pytest.mark.parametrize(
    ("decides", "expected"),
    [("25/04/2026 03:14", "2026-04-03T03:14Z"), ("04/25/2026 03:14", "2026-03-04T03:14Z")],
)
def test_a_date_that_can_be_two_days_is_read_as_the_others_must_be_and_marked(
    tmp_path, decides, expected
):
    rows = OPEN.replace("2026-11-02 03:14", "03/04/2026 03:14") + f"| {decides} | | again | |\n"
    read = import_text(tmp_path, rows, name="log.md", zone="UTC")

    assert [(e.t_occurred_us, e.clock is not None) for e in read.events] == [
        (us(expected), True),
        (us("2026-04-25T03:14Z"), False),
    ]
    assert any("03/04/2026" in note for note in read.quality.notes)


def test_dates_that_contradict_each_other_decide_nothing(tmp_path):
    rows = (
        OPEN.replace("2026-11-02 03:14", "03/04/2026")
        + "| 25/04/2026 | | a | |\n| 04/25/2026 | | b | |\n"
    )

    assert list(import_text(tmp_path, rows, name="log.md").quality.rejected) == [
        "a date that can be two days: write YYYY-MM-DD"
    ]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("| | 05:00 | x | |", "an entry without a start"),
        ("| 03:14 | 05:00 | x | |", "a start with a clock and without a day"),
        ("| 2026-11-02 | 05:00 | x | |", "a stop with a clock for a start without one"),
        ("| last week | | x | |", "not a time"),
        ("| 2026-02-30 | | x | |", "a date that does not exist"),
    ],
)
def test_an_entry_that_cannot_be_placed_in_time_is_rejected(tmp_path, cells, reason):
    read = import_text(tmp_path, OPEN + cells + "\n", name="log.md", zone="UTC")

    assert list(read.quality.rejected) == [reason]
    assert len(read.incidents) == 1


def test_an_entry_without_an_end_of_its_own_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(handkept_entries, "CHUNK_BYTES_MAX", 2_000)
    tail = "\n".join("  more of the same text" for _ in range(500))
    read = import_text(
        tmp_path,
        f"- 2026-11-02 03:14Z: run died\n{tail}\n- 2026-11-03 03:14Z: again\n",
        format="handkept",
    )

    assert len(read.incidents) == 2
    assert all(len(body.get("text", "")) < 2_200 for body in read.bodies)


def test_a_file_without_entries_is_a_finding_and_no_traceback(tmp_path):
    read = import_text(tmp_path, "nothing here\n", format="handkept")

    assert list(read.quality.rejected) == ["no entry with a start and a what"]
