from __future__ import annotations

import json

import pytest

from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

SAMPLE = SAMPLES / "otlp.jsonl"
NOW_NS = 1_793_589_247_120_000_000


def request(*records: object, host: str = "h1") -> dict:
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": host}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(records)}]}]}


def record(
    text: str = "boom", *, severity: int = 17, at: object = str(NOW_NS), **more: object
) -> dict:
    return {"timeUnixNano": at, "severityNumber": severity, "body": {"stringValue": text}} | more


def test_the_two_times_of_a_record_are_the_two_times_of_the_event(tmp_path):
    xid = import_one(tmp_path, SAMPLE).events[0]

    assert (xid.t_occurred_us, xid.t_observed_us) == (1_793_589_247_120_000, 1_793_589_249_000_000)


def test_a_driver_line_in_the_body_is_read_like_one_of_a_kernel_log(tmp_path):
    xid = import_one(tmp_path, SAMPLE).events[0]

    assert (xid.body["code"], xid.cause, xid.class_) == ("79", "gpu.bus", "fail_stop")
    assert [d.id for d in xid.domain] == ["gpu-0007", "gpu-0007/0000:41:00"]
    assert xid.source.importer == "otlp"


def test_a_record_without_a_time_of_its_own_has_the_one_when_it_was_seen_and_is_marked(tmp_path):
    fatal = next(
        e for e in import_one(tmp_path, SAMPLE).events if e.body.get("event") == "worker.exit"
    )

    assert fatal.t_occurred_us == fatal.t_observed_us == 1_793_589_300_000_000
    assert fatal.clock.source == "inferred"


def test_only_a_fatal_record_states_a_failure_and_its_cause_is_unknown(tmp_path):
    by_severity = {e.body.get("severity"): e for e in import_one(tmp_path, SAMPLE).events}

    fatal = by_severity[21]
    assert (fatal.class_, fatal.cause, fatal.symptom) == ("fail_stop", "unknown", "exception")
    assert by_severity[13].class_ is None


def test_structured_bodies_are_kept_as_data_and_masked(tmp_path):
    fatal = next(
        e for e in import_one(tmp_path, SAMPLE).events if e.body.get("event") == "worker.exit"
    )

    assert fatal.body["value"]["rank"] == 5
    assert "abc123def456" not in json.dumps(fatal.body)


def test_quiet_records_are_counted_and_dropped_attributes_are_a_known_loss(tmp_path):
    quality = import_one(tmp_path, SAMPLE).quality

    assert (quality.read, quality.accepted) == (4, 3)
    assert dict(quality.ignored) == {"records below WARN that name no failure": 1}
    assert dict(quality.known_losses) == {"attributes that the sender left out": 3}


def test_overlapping_files_merge_and_equal_records_of_one_file_are_several(tmp_path):
    import_text(tmp_path, json.dumps(request(record(), record())), name="a")
    read = import_text(tmp_path, json.dumps(request(record(), record(), record())), name="b")

    assert len(read.events) == 3


def test_the_same_record_of_two_hosts_is_two(tmp_path):
    import_text(tmp_path, json.dumps(request(record())), name="a")

    assert (
        len(import_text(tmp_path, json.dumps(request(record(), host="h2")), name="b").events) == 2
    )


def test_an_error_that_was_logged_may_have_been_handled_and_states_no_failure(tmp_path):
    read = import_text(tmp_path, json.dumps(request(record(severity=20))))

    assert [e.class_ for e in read.events] == [None]
    assert read.quality.failures == 0


def test_a_cleanup_is_settled_by_the_xids_around_it_and_by_nothing_else(tmp_path):
    cleanup = record("NVRM: Xid (PCI:0000:41:00): 45, pid=1, Ch 00000010")
    xid = record(
        "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.", at=str(NOW_NS + 10**9)
    )
    near = import_text(tmp_path, json.dumps(request(cleanup, xid)), name="a", ledger="a")
    lone = import_text(
        tmp_path, json.dumps(request(record("error"), cleanup)), name="b", ledger="b"
    )

    assert {e.body["code"]: e.role for e in near.events}["45"] == "teardown"
    assert {e.body.get("code"): e.role for e in lone.events}["45"] == "unknown"


def test_pretty_printed_requests_are_read_too(tmp_path):
    assert len(import_text(tmp_path, json.dumps(request(record()), indent=2)).events) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(at="soon"), "a time that is no number of nanoseconds"),
        (record(at=1.5), "a time that is no number of nanoseconds"),
        (record(at=True), "a time that is no number of nanoseconds"),
        (record(at=None), "a record without any time"),
        (record(at="9" * 40), "a time outside of 1990 to 2100"),
        ("text", "a record that is no object"),
    ],
)
def test_a_record_that_cannot_be_read_costs_itself_only(tmp_path, bad, reason):
    read = import_text(tmp_path, json.dumps(request(bad, record())))

    assert list(read.quality.rejected) == [reason]
    assert len(read.events) == 1


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("SEVERITY_NUMBER_ERROR2", None, 18), ("17", None, 17), (None, "warning", 13), (0, "Fatal", 21), (99, "ERROR", 17),
        ("SEVERITY_NUMBER_X4", "WARN", 13), ("", "WARN", 13), (True, "WARN", 13),
    ],
)  # fmt: skip
def test_a_severity_is_a_number_or_a_name(tmp_path, number, text, expected):
    read = import_text(
        tmp_path, json.dumps(request(record() | {"severityNumber": number, "severityText": text}))
    )

    assert [b["severity"] for b in read.bodies] == [expected]


def test_what_holds_no_records_is_counted_too(tmp_path):
    scopes = [
        {"logRecords": []},
        {"scope": {}},
        "text",
        {"logRecords": 5},
        {"logRecords": [record()]},
    ]
    read = import_text(
        tmp_path, json.dumps({"resourceLogs": [{"scopeLogs": scopes}, {"resource": {}}]})
    )

    assert dict(read.quality.ignored) == {"scopes without records": 2}
    assert {r: x.count for r, x in read.quality.rejected.items()} == {
        "scopeLogs without a list of logRecords": 2, "no resourceLogs with scopeLogs": 1,
    }  # fmt: skip


def test_half_a_surrogate_beside_a_nan_costs_its_item_and_not_the_file(tmp_path):
    text = json.dumps(request(record("SURROGATE"), record(body={"doubleValue": 1})))
    text = text.replace("SURROGATE", "\\ud800").replace('"doubleValue": 1', '"doubleValue": NaN')
    read = import_text(tmp_path, text + "\n" + json.dumps(request(record("a"))))

    assert (read.quality.rejected_count, [b["text"] for b in read.bodies]) == (1, ["a"])


def test_odd_values_never_stop_an_import(tmp_path):
    deep: dict = {"stringValue": "x"}
    for _ in range(60):
        deep = {"arrayValue": {"values": [deep]}}
    odd = [
        record(body=deep), record(body={"intValue": "12"}), record(body={"doubleValue": 0.5}), record(body=None),
        record(body={"kvlistValue": {"values": "x"}}), record(attributes="x"), record(body={"intValue": str(2**70)}),
    ]  # fmt: skip
    read = import_text(tmp_path, json.dumps(request(*odd)))

    assert read.quality.read == 7
    assert list(read.quality.rejected) == ["a number of more than 64 bits"]
