from __future__ import annotations

import json

import pytest

from lastgood.ledger.importers.times import Times
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

SAMPLE = SAMPLES / "alertmanager.jsonl"


def us(text: str) -> int:
    return Times().parse(text).t_us


def alert(**changes: object) -> dict:
    plain = {
        "status": "firing", "labels": {"alertname": "GpuXid", "node": "n1"}, "annotations": {},
        "startsAt": "2026-11-02T03:14:30Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "f1",
    }  # fmt: skip
    return plain | changes


def message(*alerts: object, **changes: object) -> str:
    return json.dumps(
        {"version": "4", "groupKey": "g", "truncatedAlerts": 0, "alerts": list(alerts)} | changes
    )


def test_an_alert_is_an_incident_from_its_start_to_its_resolution(tmp_path):
    incidents = {i.domain[0].id: i for i in import_one(tmp_path, SAMPLE).incidents}

    gpu = incidents["gpu-0007"]
    assert (gpu.opened_us, gpu.closed_us) == (
        us("2026-11-02T03:14:30Z"),
        us("2026-11-02T03:44:30Z"),
    )
    assert [d.id for d in gpu.domain] == ["gpu-0007", "gpu-0007/3"]
    # A firing alert has the time-out of its renewal in endsAt: that is no end.
    assert incidents["gpu-0009"].is_open
    assert incidents["gpu-0009"].opened_us == us("2026-11-02T03:00:00.123456Z")


def test_a_message_that_is_sent_again_changes_nothing(tmp_path):
    read = import_one(tmp_path, SAMPLE)

    assert (read.quality.read, read.quality.accepted) == (6, 6)
    assert len(read.incidents) == 3
    assert (read.quality.events_new, read.quality.events_merged) == (6, 2)


def test_an_alert_with_an_xid_is_read_through_the_table_of_xids(tmp_path):
    (event,) = [e for e in import_one(tmp_path, SAMPLE).events if e.body.get("code") == "94"]

    assert (event.cause, event.symptom) == ("gpu.memory", "memory_error")
    assert event.body["mapping"].startswith("xid/1@sha256:")


def test_an_alert_that_no_table_knows_is_kept_with_its_cause_unknown(tmp_path):
    (event,) = [
        e for e in import_one(tmp_path, SAMPLE).events if e.body.get("code") == "TapeRobotJammed"
    ]

    assert (event.class_, event.cause, event.domain[0].id) == (None, "unknown", "tape1")


def test_an_alert_that_always_fires_is_no_incident(tmp_path):
    (event,) = [e for e in import_one(tmp_path, SAMPLE).events if e.body.get("code") == "Watchdog"]

    assert (event.kind, event.incident, event.role) == ("observation", None, "context")


def test_what_a_message_left_out_is_a_known_loss_and_counts_once(tmp_path):
    losses = import_one(tmp_path, SAMPLE).quality.known_losses

    assert dict(losses) == {"alerts that Alertmanager left out of a message": 2}


def test_of_the_messages_of_a_group_the_one_that_left_out_most_counts(tmp_path):
    text = "\n".join(message(alert(), truncatedAlerts=count) for count in (2, 5, 1, True, -3, "9"))

    assert sum(import_text(tmp_path, text).quality.known_losses.values()) == 5


def test_names_in_the_text_are_masked(tmp_path):
    texts = json.dumps(import_one(tmp_path, SAMPLE).bodies)

    assert "jane.doe" not in texts
    assert "Xid 94 on gpu-0007" in texts


@pytest.mark.parametrize("form", ["{0}", "[{0}]", "{0}\n{0}\n"])
def test_one_message_a_list_and_messages_one_after_another_are_the_same(tmp_path, form):
    text = form.replace("{0}", message(alert()))

    assert len(import_text(tmp_path, text).incidents) == 1


def test_pretty_printed_messages_and_the_alerts_of_the_api_are_read_too(tmp_path):
    pretty = json.dumps(json.loads(message(alert())), indent=2)
    api = json.dumps(
        [alert(fingerprint="f2", status={"state": "active"}, endsAt="2026-11-02T03:18:30Z")]
    )

    assert len(import_text(tmp_path, pretty + "\n" + pretty, name="a").incidents) == 1
    assert [i.is_open for i in import_text(tmp_path, api, name="b").incidents] == [True, True]


def test_a_broken_alert_costs_itself_and_not_its_message(tmp_path):
    read = import_text(tmp_path, message(alert(startsAt="yesterday"), "text", alert()))

    assert {r: x.count for r, x in read.quality.rejected.items()} == {
        "not a time": 1, "an alert that is no object": 1,
    }  # fmt: skip
    assert len(read.incidents) == 1


def test_a_message_without_alerts_is_counted(tmp_path):
    assert dict(import_text(tmp_path, message(), format="alertmanager").quality.ignored) == {
        "messages without alerts": 1
    }


def test_an_alert_that_ends_before_it_starts_is_rejected_whole(tmp_path):
    read = import_text(tmp_path, message(alert(status="resolved", endsAt="2026-11-02T03:00:00Z")))

    assert list(read.quality.rejected) == ["an alert that ends before it starts"]
    assert read.events == []


def test_without_a_fingerprint_the_labels_are_the_name(tmp_path):
    plain = {k: v for k, v in alert().items() if k != "fingerprint"}
    other = plain | {"labels": {"alertname": "GpuXid", "node": "n2"}}

    assert len(import_text(tmp_path, message(plain, other, plain)).incidents) == 2


def test_a_site_gives_its_own_table_of_alerts(tmp_path):
    table = tmp_path / "alert.json"
    row = {
        "class": "fail_slow",
        "cause": "storage.fs",
        "cause_status": "supported",
        "symptom": "slow",
    }
    table.write_text(
        json.dumps(
            {"mapping": "alert", "version": "7", "source": "site", "rows": {"TapeRobotJammed": row}}
        )
    )

    (event,) = [
        e
        for e in import_one(tmp_path, SAMPLE, mappings={"alert": table}).events
        if e.body.get("code") == "TapeRobotJammed"
    ]
    assert (event.class_, event.cause) == ("fail_slow", "storage.fs")
    assert event.body["mapping"].startswith("alert/7@sha256:")
