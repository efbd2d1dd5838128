from __future__ import annotations

import json

import pytest

from lastgood.ledger.importers.times import Times
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

SAMPLE = SAMPLES / "kubernetes.json"


def us(text: str) -> int:
    return Times().parse(text).t_us


def event(**changes: object) -> dict:
    plain = {
        "kind": "Event", "metadata": {"uid": "u1", "name": "n1.1", "creationTimestamp": "2026-11-02T03:15:09Z"},
        "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "NodeNotReady", "type": "Normal",
        "firstTimestamp": "2026-11-02T03:15:01Z", "lastTimestamp": "2026-11-02T03:15:01Z", "count": 1,
    }  # fmt: skip
    return plain | changes


def test_a_list_of_both_apis_is_recognised_and_every_object_is_accounted_for(tmp_path):
    read = import_one(tmp_path, SAMPLE)

    assert read.file.format == "kubernetes"
    assert (read.quality.read, read.quality.accepted, read.quality.ignored_count) == (5, 4, 1)
    assert any("one hour by default" in note for note in read.quality.notes)


def test_a_count_is_at_least_and_never_that_many_events(tmp_path):
    mounts = [e for e in import_one(tmp_path, SAMPLE).events if e.body["code"] == "FailedMount"]

    assert [e.body["at_least"] for e in mounts] == [1, 13]
    assert [e.t_occurred_us for e in mounts] == [
        us("2026-11-02T02:00:00Z"),
        us("2026-11-02T02:30:00Z"),
    ]


def test_a_series_of_the_newer_api_is_read_like_a_count(tmp_path):
    ooms = [e for e in import_one(tmp_path, SAMPLE).events if e.body["code"] == "SystemOOM"]

    assert [e.body["at_least"] for e in ooms] == [1, 2]
    assert [e.t_occurred_us for e in ooms] == [
        us("2026-11-02T04:59:58.123456Z"),
        us("2026-11-02T05:10:00Z"),
    ]
    assert ooms[0].body["text"].startswith("System OOM encountered")


def test_the_node_is_the_object_or_the_one_whose_kubelet_speaks(tmp_path):
    hosts = {e.body["code"]: e.domain[0].id for e in import_one(tmp_path, SAMPLE).events}

    assert hosts == {
        "NodeNotReady": "gpu-0007", "FailedMount": "gpu-0008", "SystemOOM": "gpu-0009", "FluxInverted": "gpu-0007",
    }  # fmt: skip


def test_with_all_times_null_the_time_of_the_object_is_taken_and_marked(tmp_path):
    (event,) = [e for e in import_one(tmp_path, SAMPLE).events if e.body["code"] == "FluxInverted"]

    assert (event.t_occurred_us, event.clock.source) == (us("2026-11-02T06:00:00Z"), "inferred")


def test_an_unknown_reason_is_kept_when_it_warns_and_counted_when_it_does_not(tmp_path):
    read = import_one(tmp_path, SAMPLE)
    (event,) = [e for e in read.events if e.body["code"] == "FluxInverted"]

    assert (event.class_, event.cause) == (None, "unknown")
    assert dict(read.quality.ignored) == {
        "Normal events of reasons that the table does not list": 1
    }


def test_a_drivers_line_in_the_message_is_read_through_the_table_of_xids(tmp_path):
    message = "kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
    (event_,) = import_text(tmp_path, json.dumps(event(reason="GpuFault", message=message))).events

    assert (event_.body["label"], event_.body["code"], event_.cause) == (
        "GpuFault",
        "79",
        "gpu.bus",
    )
    assert [d.id for d in event_.domain] == ["n1", "n1/0000:41:00"]


def test_a_later_dump_of_the_same_object_adds_its_newest_occurrence_only(tmp_path):
    import_text(
        tmp_path, json.dumps(event(count=3, lastTimestamp="2026-11-02T03:20:00Z")), name="a"
    )
    read = import_text(
        tmp_path, json.dumps(event(count=9, lastTimestamp="2026-11-02T03:50:00Z")), name="b"
    )

    stamps = [e.t_occurred_us for e in read.events]
    assert stamps == [us(f"2026-11-02T03:{m}Z") for m in ("15:01", "20:00", "50:00")]


def test_lines_and_watched_events_are_read_too(tmp_path):
    lines = "\n".join(
        json.dumps(x)
        for x in (
            event(),
            {"type": "ADDED", "object": event(metadata={"uid": "u2"})},
            {"type": "DELETED", "object": event()},
        )
    )

    assert len(import_text(tmp_path, lines).events) == 2


def test_names_in_messages_are_masked(tmp_path):
    assert "jdoe" not in json.dumps(import_one(tmp_path, SAMPLE).bodies)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reason": None}, "an event without a reason"),
        ({"involvedObject": None}, "an object that is no event"),
        ({"kind": "Pod"}, "an object that is no event"),
        ({"firstTimestamp": "Tuesday"}, "not a time"),
        (
            {"firstTimestamp": None, "lastTimestamp": None, "metadata": {"uid": "u"}},
            "an event without any time",
        ),
        ({"metadata": {}}, "an event without uid and name"),
    ],
)
def test_an_object_that_cannot_be_read_is_rejected_with_its_reason(tmp_path, changes, reason):
    read = import_text(tmp_path, json.dumps([event(**changes), event()]), format="kubernetes")

    assert list(read.quality.rejected) == [reason]
    assert len(read.events) == 1


@pytest.mark.parametrize("count", [0, -5, None, "many", True, 2**70])
def test_a_count_that_is_none_is_one_or_bounded(tmp_path, count):
    read = import_text(
        tmp_path, json.dumps(event(count=count, lastTimestamp="2026-11-02T03:20:00Z"))
    )

    assert read.quality.rejected_count == 0
    assert all(1 <= e.body["at_least"] < 2**31 for e in read.events)
