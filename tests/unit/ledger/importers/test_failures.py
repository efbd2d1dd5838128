"""The failures that an import counts are those of a report: incidents once, no planned stops, nothing taken back."""

import pytest

from lastgood.contract.taxonomy import FailureClass
from lastgood.ledger.event import Event, Links
from lastgood.ledger.importers.failures import FailureCount
from lastgood.ledger.importers.quality import Quality
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

OUTAGES = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|TRES\n"
    "c|n1|2026-11-02T03:00:00|2026-11-02T05:00:00|DOWN|Not responding|root|gres/gpu=8\n"
    "c|n1|2026-11-02T05:00:00|2026-11-02T06:00:00|DRAIN|Xid 79|root|gres/gpu=8\n"
    "c|n2|2026-11-03T03:00:00|2026-11-03T05:00:00|DOWN|Not responding|root|gres/gpu=8\n"
    "c|n3|2026-11-03T03:00:00|2026-11-03T05:00:00|DRAIN|planned maintenance|root|gres/gpu=8\n"
)


@pytest.mark.parametrize("oldest_first", [True, False])
def test_records_that_continue_an_outage_and_planned_ones_are_no_more_failures(
    tmp_path, oldest_first
):
    header, *rows = OUTAGES.splitlines(keepends=True)
    text = header + "".join(rows if oldest_first else reversed(rows))
    imported = import_text(tmp_path, text, zone="UTC")
    incidents = [i for i in imported.incidents if not i.is_planned]
    unknown = [i for i in incidents if i.cause in {None, "unknown"}]
    counted = (imported.quality.failures, imported.quality.unknown_causes)
    assert counted == (len(incidents), len(unknown)) == (2, 1)


@pytest.mark.parametrize(
    "name",
    [
        "incidents.md", "sacctmgr_events.psv", "sacct_requeue.psv", "stepfun.json", "alertmanager.jsonl", "scontrol_nodes.txt",
    ],
)  # fmt: skip
def test_where_records_declare_their_incidents_an_import_counts_what_a_report_does(tmp_path, name):
    imported = import_one(tmp_path, SAMPLES / name, zone="UTC", year=2026)
    incidents = [i for i in imported.incidents if not i.is_planned]
    unknown = [i for i in incidents if i.cause in {None, "unknown"}]
    counted = (imported.quality.failures, imported.quality.unknown_causes)
    assert counted == (len(incidents), len(unknown))


def counted(*events):
    quality = Quality()
    count = FailureCount(quality)
    for event in events:
        count.add(event)
    return quality.failures, quality.unknown_causes, quality.unplaced


def signal(name, **fields):
    return Event(kind="observation", id=name, **fields)


def test_signals_count_by_their_class_and_bystanders_and_planned_ones_do_not():
    assert counted(
        signal("a", class_="fail_stop", cause="gpu.memory"),
        signal("b", class_="fail_stop"),
        signal("c", cause="unknown"),
        signal("d", class_="fail_stop", cause="unknown", role="cascade"),
        signal("e", class_=str(FailureClass.PLANNED)),
        signal("f", role="context"),
    ) == (2, 1, 1)


def test_a_signal_that_a_later_one_takes_back_or_repeats_counts_once():
    assert counted(
        signal("a", class_="fail_stop"),
        signal("a", class_="fail_stop"),
        signal("b", class_="fail_stop", cause="gpu.memory", links=Links(supersedes="a")),
    ) == (1, 0, 0)


def test_an_end_without_its_begin_is_no_failure():
    assert counted(Event(kind="incident.close", id="x", links=Links(incident="i"))) == (0, 0, 0)
