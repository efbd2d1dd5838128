from __future__ import annotations

import json

import pytest

from lastgood.ledger.importers.stepfun import DAY_ZERO_US, GRID_US
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

DAY_US = 86_400_000_000
SAMPLE = SAMPLES / "stepfun.json"


def record(kind: str, day: object = 1.0, *, node: object = "n1", fault: object = None) -> dict:
    fault = fault or {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU Lost"}
    return {"node_id": node, "event_time": day, "event_type": kind, "fault_type": fault}


def test_the_format_is_detected_and_every_record_counts(tmp_path):
    read = import_one(tmp_path, SAMPLE)

    assert (read.file.format, read.file.is_detected) == ("stepfun", True)
    assert (read.quality.read, read.quality.accepted) == (9, 9)
    assert len(read.incidents) == 5


def test_two_equal_faults_of_one_node_are_closed_first_opened_first(tmp_path):
    faults = [i for i in import_one(tmp_path, SAMPLE).incidents if i.domain[0].id == "n1"]

    lengths = sorted((i.closed_us - i.onset_us) / DAY_US for i in faults)
    assert lengths == [0.25, 1.5]


def test_a_fault_of_no_length_is_a_fault(tmp_path):
    (fault,) = [i for i in import_one(tmp_path, SAMPLE).incidents if i.class_ == "sdc"]

    assert fault.onset_us == fault.closed_us == DAY_ZERO_US + DAY_US // 2


def test_a_fault_without_an_end_stays_open_and_the_table_says_so(tmp_path):
    read = import_one(tmp_path, SAMPLE)

    assert [i.domain[0].id for i in read.incidents if i.is_open] == ["n3"]
    assert any("1 faults have a start and no end" in note for note in read.quality.notes)


def test_unknown_stays_unknown_and_a_new_word_is_kept_as_it_is(tmp_path):
    faults = {i.domain[0].id: i for i in import_one(tmp_path, SAMPLE).incidents}

    assert (faults["n3"].cause, faults["n3"].cause_status) == ("unknown", "unknown")
    assert (faults["n4"].class_, faults["n4"].cause) == (None, "unknown")
    assert import_one(tmp_path, SAMPLE).quality.unknown_causes == 2


def test_times_lie_on_the_grid_exactly_and_are_marked_as_inferred(tmp_path):
    read = import_one(tmp_path, SAMPLE)

    assert all((e.t_occurred_us - DAY_ZERO_US) % GRID_US == 0 for e in read.events)
    assert {e.clock.source for e in read.events} == {"inferred"}
    assert any("no zone" in note for note in read.quality.notes)


def test_the_window_begins_at_day_zero_though_nothing_failed_then(tmp_path):
    file = import_one(tmp_path, SAMPLE).file

    assert (file.coverage_begin_us, file.coverage_end_us) == (
        DAY_ZERO_US,
        DAY_ZERO_US + 7 * DAY_US // 2,
    )


def test_a_second_import_and_an_overlapping_file_add_only_what_is_new(tmp_path):
    first = import_one(tmp_path, SAMPLE)
    records = json.loads(SAMPLE.read_text())
    records.insert(0, record("fault_start", 0.25, node="n9"))
    again = import_text(tmp_path, json.dumps(records), name="longer.json")

    assert (again.quality.events_new, again.quality.events_merged) == (1, 10)
    assert len(again.events) == len(first.events) + 1


def test_the_same_fault_of_the_same_node_at_another_time_is_another_one(tmp_path):
    import_one(tmp_path, SAMPLE)
    later = import_text(tmp_path, json.dumps([record("fault_start", 9.0)]), format="stepfun")

    assert len(later.incidents) == 6


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record("fault_end"), "a fault ends that did not start"),
        (record("fault_start", "soon"), "event_time is no number of days"),
        (record("fault_start", -1), "event_time is no number of days"),
        (record("fault_start", 1e300), "event_time is no number of days"),
        (record("fault_start", node=7), "no node_id"),
        (record("fault_start", fault={"Level": "x"}), "no fault_type with Level, Class and Desc"),
        (record("fault_middle"), "event_type is neither fault_start nor fault_end"),
        ("text", "not a record of the trace"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_meant_is_rejected_with_its_reason(tmp_path, bad, reason):
    good = record("fault_start", 2.0, node="good")
    read = import_text(tmp_path, json.dumps([bad, good]), format="stepfun")

    assert {r: x.count for r, x in read.quality.rejected.items()} == {reason: 1}
    assert read.quality.rejected[reason].examples[0].locator == "file.txt#1"
    assert [e.domain[0].id for e in read.events] == ["good"]
