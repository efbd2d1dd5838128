from __future__ import annotations

import json
from collections import Counter

import pytest

from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.importers.table_rows import sniff_delimiter
from lastgood.ledger.importers.times import Times
from tests.unit.ledger.importers.import_cases import SAMPLES, Imported, import_one, import_text

MAP = SAMPLES / "faults-map.yaml"


def us(text: str, zone: str = "UTC") -> int:
    return Times(zone=zone).parse(text).t_us


def faults(tmp_path, **options) -> Imported:
    return import_one(tmp_path, SAMPLES / "faults.csv", format="table", column_map=MAP, **options)


def through(tmp_path, table: str | bytes, column_map: str, **options) -> Imported:
    path = tmp_path / "map.yaml"
    path.write_text(column_map)
    return import_text(
        tmp_path, table, name="table.txt", format="table", column_map=path, **options
    )


SMALL = "rows: fault\ncolumns: {start: from, stop: to, host: node}\ndefaults: {class: fail_stop}\nzone: UTC\n"


# --- faults -------------------------------------------------------------------------------------------


def test_a_row_with_start_and_end_is_an_incident(tmp_path):
    by_host = {i.domain[0].id: i for i in faults(tmp_path).incidents}

    first = by_host["gpu-0001"]
    assert (first.opened_us, first.closed_us) == (
        us("2026-11-02 03:14:07", "Europe/Berlin"), us("2026-11-02 05:00:00", "Europe/Berlin"),
    )  # fmt: skip
    assert (first.cause, first.cause_status, first.class_) == (
        "host.memory",
        "supported",
        "fail_stop",
    )
    assert by_host["gpu-0002"].is_open
    assert by_host["gpu-0003"].is_planned


def test_a_line_break_inside_quotes_belongs_to_its_field(tmp_path):
    read = faults(tmp_path)

    assert read.events[0].body["text"] == "replaced\ntwo modules; see ticket"
    assert read.events[0].source.locator == "faults.csv#2"


def test_rows_that_cannot_be_meant_are_rejected_with_their_line(tmp_path):
    rejected = faults(tmp_path).quality.rejected

    assert {reason: r.examples[0].locator for reason, r in rejected.items()} == {
        "an end before its start": "faults.csv#6",
        "a row with more or fewer fields than the header": "faults.csv#7",
        "not a time": "faults.csv#8",
    }


def test_the_zone_of_the_map_is_a_declared_one_and_an_option_outdoes_it(tmp_path):
    declared = faults(tmp_path, ledger="a")
    utc = faults(tmp_path, ledger="b", zone="UTC")

    assert declared.events[0].clock is None
    assert utc.events[0].t_occurred_us - declared.events[0].t_occurred_us == 3_600_000_000


def test_without_any_zone_times_are_marked_as_inferred(tmp_path):
    read = through(
        tmp_path, "from,to,node\n2026-11-02 03:14,,n1\n", SMALL.replace("zone: UTC\n", "")
    )

    assert read.events[0].clock.source == "inferred"


def test_a_fault_that_ends_later_keeps_its_name_in_a_newer_export(tmp_path):
    through(tmp_path, "from,to,node\n2026-11-02 03:14,,n1\n", SMALL)
    read = through(tmp_path, "from,to,node\n2026-11-02 03:14,2026-11-02 04:14,n1\n", SMALL)

    assert [(i.is_open, i.closed_us - i.opened_us) for i in read.incidents] == [
        (False, 3_600_000_000)
    ]
    assert read.quality.events_merged == 1


def test_a_duration_stands_in_for_an_end(tmp_path):
    read = through(
        tmp_path, "from,secs\n2026-11-02 03:14,90.5\n2026-11-02 04:14,minus\n",
        "rows: fault\ncolumns: {start: from, duration_s: secs}\ndefaults: {class: fail_stop}\nzone: UTC\n",
    )  # fmt: skip

    assert [i.closed_us - i.opened_us for i in read.incidents] == [90_500_000]
    assert list(read.quality.rejected) == ["a duration that is no number"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("day-first", "2026-04-03T15:14:00Z"), ("month-first", "2026-03-04T15:14:00Z")],
)
def test_a_date_that_can_be_two_days_is_the_one_that_the_map_says(tmp_path, order, expected):
    table = "day,clock\n03/04/2026,3:14 PM\n03/04/2026,\n03/04/2026,13:00 pm\n"
    column_map = (
        "rows: fault\ncolumns: {start: [day, clock]}\ndefaults: {class: fail_stop}\nzone: UTC\n"
    )

    unsaid = through(tmp_path, table, column_map, ledger="a")
    said = through(tmp_path, table, f"{column_map}dates: {order}\n", ledger="b")

    assert "a date that can be two days: write YYYY-MM-DD" in unsaid.quality.rejected
    assert [e.t_occurred_us for e in said.events] == [us(expected)]
    assert list(said.quality.rejected) == ["no start", "an hour that no clock of twelve has"]


def test_an_end_by_duration_is_as_inferred_as_its_start(tmp_path):
    read = through(
        tmp_path, "from,secs\n2026-11-02 03:14,90\n",
        "rows: fault\ncolumns: {start: from, duration_s: secs}\ndefaults: {class: fail_stop}\n",
    )  # fmt: skip

    assert [e.clock.source for e in read.events] == ["inferred", "inferred"]


def test_words_without_a_meaning_are_unknown_and_the_table_says_so(tmp_path):
    read = through(
        tmp_path, "from,what\n2026-11-02 03:14,Flux\n",
        "rows: fault\ncolumns: {start: from, cause: what}\nwords: {cause: {DIMM: host.memory}}\nzone: UTC\n"
        "defaults: {class: fail_stop}\n",
    )  # fmt: skip

    assert [e.cause for e in read.events] == ["unknown"]
    assert any("no meaning for some words of what" in note for note in read.quality.notes)


def test_a_word_that_the_taxonomy_does_not_have_rejects_its_row(tmp_path):
    read = through(
        tmp_path,
        "from,what\n2026-11-02 03:14,Flux\n",
        "rows: fault\ncolumns: {start: from, cause: what}\nzone: UTC\n",
    )

    assert list(read.quality.rejected) == ["taxonomy v1 has no such cause"]


def test_rows_that_the_map_leaves_out_are_counted(tmp_path):
    table = "from,state,kind\n2026-11-02 03:14,open,a\n2026-11-02 03:15,void,a\n2026-11-02 03:16,open,b\n"
    read = through(
        tmp_path, table,
        "rows: fault\ncolumns: {start: from}\ndefaults: {class: fail_stop}\nzone: UTC\nignore: {state: void}\nonly: {kind: [a]}\n",
    )  # fmt: skip

    assert (read.quality.accepted, dict(read.quality.ignored)) == (
        1,
        {"rows that the column map leaves out": 2},
    )


# --- exposure -----------------------------------------------------------------------------------------


def test_a_list_of_nodes_gives_the_exposure_that_rates_need(tmp_path):
    read = import_one(
        tmp_path,
        SAMPLES / "nodes.csv",
        format="table",
        column_map=SAMPLES / "nodes-map.yaml",
        ledger="a",
    )
    exposure = measure_exposure(read.events, as_of_us=us("2026-11-04 00:00Z"))

    assert exposure.device_us == 8 * (2 + 2) * 86_400_000_000
    assert list(read.quality.rejected) == [
        "no number of devices: map devices, or give --devices-per-node"
    ]


def test_the_number_of_devices_of_a_node_may_be_said_once(tmp_path):
    read = import_one(
        tmp_path,
        SAMPLES / "nodes.csv",
        format="table",
        column_map=SAMPLES / "nodes-map.yaml",
        devices_per_node=4,
    )

    assert [e.devices for e in read.events if e.kind == "exposure.join"] == [8, 8, 4]


def test_a_node_that_comes_back_is_at_risk_again(tmp_path):
    table = "node,in,out\nn1,2026-11-01T00:00:00Z,2026-11-02T00:00:00Z\nn1,2026-11-03T00:00:00Z,2026-11-04T00:00:00Z\n"
    read = through(
        tmp_path,
        table,
        "rows: exposure\ncolumns: {host: node, start: in, stop: out}\n",
        devices_per_node=1,
    )

    assert (
        measure_exposure(read.events, as_of_us=us("2026-11-09 00:00Z")).device_us
        == 2 * 86_400_000_000
    )


# --- the ways in which a CSV file is broken -----------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    table = "from,to,node\n2026-11-02 03:14,2026-11-02 04:14,n1\n".replace(",", delimiter)

    assert [i.domain[0].id for i in through(tmp_path, table, SMALL).incidents] == ["n1"]


def test_the_delimiter_is_the_one_that_splits_all_lines_alike():
    assert sniff_delimiter("from, at;to\n1;2\n3;4\n") == ";"
    assert sniff_delimiter("a,b\n1;2,3;4\n") == ","
    assert sniff_delimiter("one column\nand no more\n") == ","


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_of_spreadsheets_with_a_byte_order_mark_are_read(tmp_path, encoding):
    table = "from,to,node\r\n2026-11-02 03:14,,nö\r\n".encode(encoding)

    assert [e.domain[0].id for e in through(tmp_path, table, SMALL).events] == ["nö"]


def test_another_encoding_is_named_in_the_map_and_damage_is_counted_without_it(tmp_path):
    table = "from,to,node\n2026-11-02 03:14,,nö\n".encode("latin-1")

    assert [
        e.domain[0].id
        for e in through(tmp_path, table, SMALL + "encoding: latin-1\n", ledger="a").events
    ] == ["nö"]
    damaged = through(tmp_path, table, SMALL, ledger="b")
    assert (damaged.quality.damaged_lines, [e.domain[0].id for e in damaged.events]) == (
        1,
        ["n\ufffd"],
    )


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path):
    rows = "".join(f"2026-11-02 03:{m:02d},,n{m}\n" for m in range(30))
    read = through(tmp_path, 'from,to,node\n2026-11-01 00:00,,"n\n' + rows, SMALL)

    assert {r: x.count for r, x in read.quality.rejected.items()} == {
        "a quote that is never closed": 1
    }
    assert len(read.events) == 30


def test_a_quote_inside_a_field_is_a_character(tmp_path):
    read = through(
        tmp_path, 'from,to,node\n2026-11-02 03:14,,5" disk\n2026-11-02 03:15,,"a ""b"""\n', SMALL
    )

    assert [e.domain[0].id for e in read.events] == ['5" disk', 'a "b"']


def test_a_map_for_another_table_is_a_finding_of_that_table(tmp_path):
    other = through(tmp_path, "begin,end\n2026-11-02 03:14,\n", SMALL)

    (finding,) = other.quality.rejected["the column map does not fit the table"].examples
    assert finding.detail == "no column from in line 1: begin, end"
    assert other.events == []


@pytest.mark.parametrize("words", [["table"], []], ids=["named", "detected"])
def test_a_table_without_a_map_is_asked_for_one_before_anything_is_written(cli, tmp_path, words):
    (tmp_path / "t.csv").write_text("begin,end,node\n2026-11-02 03:14,,n1\n")
    result = cli("import", *words, tmp_path / "t.csv", "--ledger", tmp_path / "l")

    assert result.exit_code == 2
    assert f"lastgood import table {tmp_path}/t.csv --guess" in result.stderr
    assert not (tmp_path / "l").exists()


# --- JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["[{0},{1}]", "{0}\n{1}\n", '{"data":{"rows":[{0},{1}]}}'])
def test_json_rows_come_as_a_list_as_lines_and_under_a_key(tmp_path, form):
    rows = [json.dumps({"t": f"2026-11-02T03:1{n}:00Z", "at": {"node": f"n{n}"}}) for n in (1, 2)]
    text = form.replace("{0}", rows[0]).replace("{1}", rows[1])
    column_map = "rows: signal\ncolumns: {time: t, host: at.node}\ndefaults: {class: fail_slow}\n"
    path = "path: data.rows\n" if "data" in form else ""

    read = through(tmp_path, text, column_map + path)

    assert [(e.kind, e.domain[0].id, e.class_) for e in read.events] == [
        ("observation", "n1", "fail_slow"), ("observation", "n2", "fail_slow"),
    ]  # fmt: skip


def test_a_map_alone_says_that_the_file_is_a_table(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("rows: signal\ncolumns: {time: t}\n")
    read = import_text(tmp_path, '{"t":"2026-11-02T03:14:00Z"}\n', column_map=path)

    assert (read.file.format, read.file.is_detected, len(read.events)) == ("table", True, 1)


def test_equal_rows_of_one_file_are_several_and_rows_with_an_id_are_one(tmp_path):
    table = "t,ticket\n2026-11-02T03:14:00Z,7\n2026-11-02T03:14:00Z,7\n"
    plain = "rows: signal\ncolumns: {time: t}\n"

    assert len(through(tmp_path, table, plain, ledger="a").events) == 2
    assert (
        len(
            through(
                tmp_path, table, "rows: signal\ncolumns: {time: t, id: ticket}\n", ledger="b"
            ).events
        )
        == 1
    )


# --- published schemas --------------------------------------------------------------------------------


def test_jobs_of_acme_are_attempts_with_devices_and_only_failed_ones_state_a_failure(tmp_path):
    read = import_one(tmp_path, SAMPLES / "acme-seren.csv")

    assert read.file.format == "table"
    assert Counter(e.kind for e in read.events) == {"attempt.start": 3, "attempt.end": 3}
    ends = {e.run: e for e in read.events if e.kind == "attempt.end"}
    assert {run: (e.class_, e.symptom, e.devices) for run, e in ends.items()} == {
        "501": ("fail_stop", "process_exit", 8), "502": (None, None, 16), "504": ("fail_stop", "host_unreachable", 32),
    }  # fmt: skip
    assert {run: e.cause for run, e in ends.items()} == {
        "501": "unknown",
        "502": None,
        "504": "unknown",
    }
    assert ends["504"].t_occurred_us - us("2023-03-01 00:32:00+08:00") == 7_200_000_000
    assert dict(read.quality.ignored) == {"jobs that never started": 1}
    assert any("the files themselves were not read" in note for note in read.quality.notes)


def test_kalos_and_helios_are_told_apart_by_their_columns(tmp_path):
    kalos = import_one(tmp_path, SAMPLES / "acme-kalos.csv", ledger="a")
    helios = import_one(tmp_path, SAMPLES / "helios.csv", ledger="b")

    assert any("preset acme-kalos" in note for note in kalos.quality.notes)
    assert any("preset helios" in note for note in helios.quality.notes)
    assert {e.clock.source for e in helios.events} == {"inferred"}
    assert all(e.clock is None for e in kalos.events)


def test_the_attempts_of_philly_are_nested_and_their_nulls_are_no_times(tmp_path):
    read = import_one(tmp_path, SAMPLES / "philly.json", zone="America/Los_Angeles")
    ends = [e for e in read.events if e.kind == "attempt.end"]

    assert [(e.run, e.attempt, e.devices, e.body["state"], e.class_) for e in ends] == [
        ("application_1_1", 1, 3, "followed by another attempt", None),
        ("application_1_1", 2, 1, "Failed", "fail_stop"),
    ]
    assert [d.id for d in ends[0].domain] == ["m47", "m48"]
    started = [e for e in read.events if e.kind == "attempt.start"]
    assert len(started) == 3  # the third job still runs
    assert dict(read.quality.ignored) == {"rows without attempts": 1, "jobs that never started": 1}


def test_importing_a_job_trace_twice_changes_nothing(tmp_path):
    import_one(tmp_path, SAMPLES / "philly.json", zone="UTC")

    assert import_one(tmp_path, SAMPLES / "philly.json", zone="UTC").quality.events_new == 0
