"""Outages and present states of Slurm nodes. Times of the samples are counted by hand."""

from __future__ import annotations

import pytest

from lastgood.ledger.event import in_effect
from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.importers.importer import Head
from lastgood.ledger.importers.slurm_nodes import IMPORTER
from lastgood.ledger.importers.slurm_outages import state_of
from lastgood.ledger.incident import fold_incidents
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

S = 1_000_000
EVENTS = SAMPLES / "sacctmgr_events.psv"
HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|TRES"


def outage(node: str, begin: int, end: int | None, state: str = "DOWN*", reason: str = "x") -> str:
    until = "Unknown" if end is None else str(1_793_600_000 + end)
    return f"tyl|{node}|{1_793_600_000 + begin}|{until}|{state}|{reason}|root|gres/gpu=8"


def table(*rows: str) -> str:
    return "\n".join((HEADER, *rows, ""))


def spans(imported) -> list[tuple]:
    return [
        (
            i.domain[0].id,
            (i.opened_us or 0) // S - 1_793_600_000,
            i.closed_us and i.closed_us // S - 1_793_600_000,
            i.class_,
        )
        for i in fold_incidents(in_effect(imported.events))
    ]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("DOWN*+DRAIN", "DOWN"),
        ("IDLE+DRAIN", "DRAIN"),
        ("MIXED+DRAINING", "DRAIN"),
        ("IDLE", None),
        ("ALLOCATED*", None),
        ("MIX-", None),
        ("IDLE~", "POWERED_DOWN"),
        ("IDLE+CLOUD+POWERED_DOWN", "POWERED_DOWN"),
        ("IDLE$", "MAINT"),
        ("WARPED", "WARPED"),
    ],
)
def test_the_state_that_decides_is_the_one_that_keeps_a_node_from_serving(text, state):
    assert state_of(text.split("+")) == state


def test_every_row_of_the_sample_is_accounted_for(tmp_path):
    quality = import_one(tmp_path, EVENTS).quality
    assert (quality.read, quality.accepted) == (9, 6)
    assert dict(quality.ignored) == {
        "an event of the whole cluster": 1,
        "not a failure (POWERED_DOWN)": 1,
    }
    assert {reason: r.count for reason, r in quality.rejected.items()} == {"not a time": 1}
    assert (quality.clock_corrections, quality.clock_corrected_us) == (1, 10_000 * S)


def test_the_reason_decides_where_the_state_says_nothing(tmp_path):
    incidents = import_one(tmp_path, EVENTS).incidents
    found = {i.domain[0].id: (i.class_, i.symptom, i.cause, i.cause_status) for i in incidents}
    assert found == {
        "gpu-0007": ("fail_stop", "device_error", "gpu.bus", "supported"),
        "gpu-0011": ("planned", None, "operator", "supported"),
        "gpu-0012": (None, None, "unknown", "unknown"),
        "gpu-0013": ("fail_stop", "health_check_failed", "unknown", "unknown"),
        "gpu-0014": ("fail_stop", "host_unreachable", "unknown", "unknown"),
    }


def test_records_of_one_outage_that_touch_are_one_incident_in_either_order(tmp_path):
    rows = [
        outage("a", 0, 100),
        outage("a", 100, 300, "DOWN*+DRAIN"),
        outage("a", 300, 400, "DRAIN"),
        outage("a", 500, 600),
        outage("b", 100, 200),
    ]
    forward = import_text(tmp_path, table(*rows), ledger="f")
    backward = import_text(tmp_path, table(*reversed(rows)), ledger="b")
    expected = [
        ("a", 0, 400, "fail_stop"),
        ("a", 500, 600, "fail_stop"),
        ("b", 100, 200, "fail_stop"),
    ]
    assert sorted(spans(forward)) == expected
    assert sorted(spans(backward)) == expected
    at_risk_us = [
        measure_exposure(i.events, as_of_us=(1_793_600_000 + 1000) * S).device_us
        for i in (forward, backward)
    ]
    # Both nodes are back from their last outage on; the first record is no earlier than the first outage.
    assert at_risk_us[0] == at_risk_us[1]


def test_an_outage_that_goes_on_is_open_and_a_later_export_closes_it(tmp_path):
    first = import_text(tmp_path, table(outage("a", 0, 100), outage("a", 100, None, "DRAIN")))
    assert spans(first) == [("a", 0, None, "fail_stop")]
    then = import_text(tmp_path, table(outage("a", 0, 100), outage("a", 100, 300, "DRAIN")))
    assert spans(then) == [("a", 0, 300, "fail_stop")]


def test_a_drain_without_a_reason_learns_its_class_from_the_record_that_continues_it(tmp_path):
    imported = import_text(
        tmp_path,
        table(
            outage("a", 0, 100, "DRAIN", "ask bob"), outage("a", 100, 200, "DOWN", "GPU 3 is lost")
        ),
    )
    assert [(i.class_, i.cause) for i in imported.incidents] == [("fail_stop", "gpu.unknown")]


@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("end", [300, None])
def test_the_record_that_names_the_cause_explains_the_whole_outage(tmp_path, end, is_newest_first):
    rows = [
        outage("a", 0, 100, "DOWN*", "Not responding"),
        outage("a", 100, 200, "DOWN*+DRAIN", "GPU 3 fallen off the bus"),
        outage("a", 200, end, "DRAIN", "maintenance: swap GPU 3"),
    ]
    imported = import_text(tmp_path, table(*(reversed(rows) if is_newest_first else rows)))
    (incident,) = fold_incidents(in_effect(imported.events))
    assert (incident.class_, incident.cause) == ("fail_stop", "gpu.bus")
    assert incident.is_open == (end is None)


def test_a_node_that_went_down_and_is_drained_for_its_repair_was_not_in_maintenance(tmp_path):
    rows = [outage("a", 0, 100, "DOWN*", "Not responding"), outage("a", 100, 200, "DRAIN", "maintenance")]  # fmt: skip
    (incident,) = import_text(tmp_path, table(*rows)).incidents
    assert (incident.class_, incident.cause) == ("fail_stop", "unknown")


def test_devices_leave_with_an_outage_and_come_back_after_it(tmp_path):
    events = import_text(tmp_path, table(outage("a", 100, 200), outage("a", 500, 500))).events
    exposure = [
        (e.kind, e.t_occurred_us // S - 1_793_600_000, e.devices)
        for e in events
        if e.kind.startswith("exp")
    ]
    assert exposure == [("exposure.leave", 100, 8), ("exposure.join", 200, 8)]


def test_present_and_past_of_one_drained_node_are_one_incident(tmp_path):
    past = import_one(tmp_path, EVENTS, cluster="tyl")
    shown = import_one(tmp_path, SAMPLES / "scontrol_nodes.txt", cluster="tyl", zone="UTC")
    assert len(shown.incidents) == len(past.incidents) == 5
    # New: that both nodes are at risk since their boot, and the coverage.
    assert (shown.quality.events_new, shown.quality.events_merged) == (3, 2)


def test_text_and_json_of_the_same_nodes_are_the_same_events(tmp_path):
    shown = import_one(tmp_path, SAMPLES / "scontrol_nodes.txt", cluster="tyl", zone="UTC")
    quality = shown.quality
    assert (quality.read, quality.accepted) == (4, 2)
    assert list(quality.rejected) == ["the record is cut: no State"]
    again = import_one(tmp_path, SAMPLES / "scontrol_nodes.json", cluster="tyl")
    assert (again.quality.events_new, again.quality.events_merged) == (0, 5)
    assert again.quality.rejected["no name of a node"].count == 2
    nodes = {e.domain[0].id: e.devices for e in shown.events if e.kind == "exposure.join"}
    assert nodes == {"gpu-0001": 8, "gpu-0013": 8}


def test_a_reason_keeps_its_words_and_its_time(tmp_path):
    shown = import_one(tmp_path, SAMPLES / "scontrol_nodes.txt", zone="UTC")
    opened = next(e for e in shown.events if e.kind == "incident.open")
    assert opened.body["reason"] == "NHC: check_hw_eth rate=100G on port=1"
    assert opened.t_occurred_us == 1_793_650_000 * S


def test_one_line_records_are_read_too(tmp_path):
    text = "NodeName=n1 Gres=gpu:4 State=DOWN+DRAIN Reason=dead fan [root@1793650000] Comment=x\n"
    shown = import_text(tmp_path, text)
    (incident,) = shown.incidents
    assert (incident.opened_us, incident.notes) == (1_793_650_000 * S, ("dead fan",))


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        (table(outage("a", 0, 1)), True),
        ("tyl|gpu-0007|1793601290|1793610000|DOWN*+DRAIN|Not responding|root\n", True),
        ("NodeName=a Arch=x86_64\n   State=IDLE\n", True),
        ("JobID|State\n1|COMPLETED\n", False),
        ("a,b,c\n1,2,3\n", False),
    ],
)
def test_the_format_knows_its_files(text, is_sure):
    assert (IMPORTER.recognises(Head(text.encode(), text, "x")) >= 80) == is_sure


def test_a_node_that_is_unknown_to_the_table_has_no_class(tmp_path):
    (incident,) = import_text(tmp_path, table(outage("a", 0, 9, "WARPED"))).incidents
    assert (incident.class_, incident.cause, incident.cause_status) == (None, "unknown", "unknown")


def test_a_record_of_a_megabyte_is_rejected_at_once(tmp_path):
    text = "NodeName=a State=DOWN " + "Reason=x [ " * 100_000
    quality = import_text(tmp_path, text).quality
    assert list(quality.rejected) == ["a record that is too long"]


def test_a_count_of_accelerators_that_cannot_be_keeps_the_outage(tmp_path):
    text = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|TRES\n"
        "c|n1|1793588400|1793592000|DOWN|Not responding|root|cpu=4,gres/gpu=-8\n"
    )
    read = import_text(tmp_path, text, name="x.psv")
    assert len(read.incidents) == 1
    assert list(read.quality.unusable.values()) == [1]
    assert not any(event.kind.startswith("exposure") for event in read.events)
