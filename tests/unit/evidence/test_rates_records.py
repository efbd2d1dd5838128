"""What a fleet's statistics count: failures in the field, in their window, over an exposure that is known or typed."""

from __future__ import annotations

import pytest

from lastgood.base.errors import BadInput
from lastgood.evidence.rates_groups import group_incidents, group_names
from lastgood.evidence.rates_records import RatesQuestion, fleet_records
from lastgood.ledger.columns import read_events
from tests.unit.evidence import made_fleet as made


def records(tmp_path, fleet, **question):
    path = fleet.write(tmp_path / "ledger.db")
    return fleet_records(read_events(path), RatesQuestion(**question))


def test_only_failures_in_the_field_are_counted(tmp_path):
    """120 + 24 + 8 + 1 open; the injected fault and the planned stop stand apart."""
    found = records(tmp_path, made.troubled())
    assert len(found.incidents) == 153
    assert (found.injected_count, found.planned_count, found.outside_count) == (1, 1, 0)


def test_without_join_records_and_without_an_option_exposure_is_unknown(tmp_path):
    found = records(tmp_path, made.fleet())
    assert (found.exposure, found.node_count) == (None, None)
    assert (found.clock.unit, found.clock.total) == ("h", made.HOURS)


def test_join_and_leave_records_give_device_hours_and_the_nodes(tmp_path):
    found = records(tmp_path, made.fleet(with_exposure=True))
    assert (found.exposure.total, found.exposure.unit) == (made.DEVICE_HOURS, "device-h")
    assert (found.exposure.is_assumed, found.node_count) == (False, made.NODES)


@pytest.mark.parametrize(
    ("option", "unit", "total"),
    [("devices", "device-h", 320 * made.HOURS), ("nodes", "node-h", 320 * made.HOURS)],
)
def test_a_typed_number_gives_assumed_exposure(tmp_path, option, unit, total):
    found = records(tmp_path, made.fleet(), **{option: 320})
    assert (found.exposure.unit, found.exposure.total, found.exposure.is_assumed) == (unit, total, True)  # fmt: skip


@pytest.mark.parametrize("option", ["devices", "nodes"])
def test_a_fleet_of_nothing_is_refused(tmp_path, option):
    with pytest.raises(BadInput, match=f"--{option}"):
        records(tmp_path, made.fleet(), **{option: 0})


def test_fewer_nodes_than_failed_is_refused(tmp_path):
    with pytest.raises(BadInput, match="failures on 40 nodes, needs 40 or more"):
        records(tmp_path, made.fleet(), nodes=39)


def test_time_that_no_file_covers_is_no_exposure_and_stops_the_clock(tmp_path):
    fleet = made.Fleet()
    fleet.covers(0, 10)
    fleet.covers(30, 40)
    for day in (1, 2, 35):
        fleet.fault(day, "gpu-0001", "gpu.memory")
    found = records(tmp_path, fleet, devices=5)
    assert found.exposure.total == 5 * 20 * 24
    assert found.clock.until([24.0 * 35]) == pytest.approx([5 * 15 * 24])
    assert (found.window_d, found.observed_us) == (40, made.at_us(20) - made.BEGIN_US)


def test_since_and_until_cut_the_window_and_say_so(tmp_path):
    found = records(
        tmp_path, made.fleet(), since_us=made.at_us(50), until_us=made.at_us(100), nodes=40
    )
    # 60 (1 - 0.25) rising and 60 x 0.25 falling faults lie in the second half.
    assert len(found.incidents) == 60
    assert found.outside_count == 60
    assert found.exposure.total == 40 * 50 * 24
    assert found.window_source.endswith("cut by --since, cut by --until")


def test_a_window_without_records_is_refused(tmp_path):
    with pytest.raises(BadInput, match="nothing is observed"):
        records(tmp_path, made.fleet(), since_us=made.at_us(200))


def test_a_window_that_nobody_declared_is_called_inferred(tmp_path):
    fleet = made.fleet()
    fleet.events = [e for e in fleet.events if e.kind != "annotation"]
    assert "inferred" in records(tmp_path, fleet).window_source


def test_the_rule_is_the_one_that_was_asked_for_and_is_printed(tmp_path):
    """The eight hosts of the burst count once when starts at one instant are merged over the site."""
    merged = records(tmp_path, made.troubled(), rule="links+merge:1s@site")
    assert len(merged.incidents) == 153 - 7
    assert merged.rule.startswith("links+merge:1s@site")


def test_codes_that_no_table_knows_are_kept_and_counted(tmp_path):
    fleet = made.fleet()
    for day in (1, 2):
        fleet.add("observation", day, cause="unknown", cause_status="unknown", body={"code": "999"})
    assert records(tmp_path, fleet).unread_codes == {"999": 2}


def test_a_log_of_one_moment_counts_and_never_gives_a_rate(tmp_path):
    fleet = made.Fleet()
    fleet.covers(5, 5)
    fleet.fault(5, "gpu-0001", "gpu.memory", hours=None)
    found = records(tmp_path, fleet, devices=8)
    assert (len(found.incidents), found.exposure) == (1, None)
    assert found.window_source.startswith("one moment only")


def test_runs_that_are_read_from_logs_give_run_hours(tmp_path):
    """One run of ten days, and one that began on day 95 and has no end: five days in the window."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    fleet.add("run.start", 10, run="a")
    fleet.add("run.end", 20, run="a")
    fleet.add("run.start", 95, run="b")
    fleet.fault(12, "gpu-0001", "gpu.memory")
    found = records(tmp_path, fleet)
    assert (found.exposure.unit, found.exposure.total) == ("run-h", pytest.approx(15 * 24))


# --- groups ---------------------------------------------------------------------------------------------


def names(grouping):
    return [(g.name, g.count, g.depth) for g in grouping.groups]


def test_a_label_is_counted_as_a_branch_and_as_its_leaves(tmp_path):
    found = records(tmp_path, made.troubled()).incidents
    assert names(group_incidents(found, "label")) == [
        ("Hardware", 144, 0),
        ("Hardware/GPU", 84, 1),
        ("Hardware/Cable", 60, 1),
        ("Other", 9, 0),
        ("Other/Unknown", 9, 1),
    ]


def test_a_cause_is_counted_as_a_branch_and_unknown_has_a_row_of_its_own(tmp_path):
    found = records(tmp_path, made.troubled()).incidents
    assert names(group_incidents(found, "cause")) == [
        ("gpu", 84, 0),
        ("gpu.memory", 60, 1),
        ("gpu.bus", 24, 1),
        ("network", 60, 0),
        ("network.cable", 60, 1),
        ("unknown", 9, 0),
    ]


def test_rows_of_a_group_are_in_order_of_time(tmp_path):
    found = records(tmp_path, made.troubled()).incidents
    for group in group_incidents(found, "cause").groups:
        assert (found.begin_us[group.rows][1:] >= found.begin_us[group.rows][:-1]).all()


def test_groups_beyond_the_table_are_counted_as_left_out(tmp_path):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(50):
        fleet.fault(i, made.host(i), "gpu.memory")
    grouping = group_incidents(records(tmp_path, fleet).incidents, "host")
    assert (len(grouping.groups), grouping.left_out) == (40, 10)


def test_the_smallest_domain_that_is_named_decides_and_shared_ones_follow(tmp_path):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i, domain in enumerate(
        (
            [("host", "h1"), ("device", "h1/0")],
            [("host", "h1"), ("rack", "r1")],
            [("host", "h2"), ("rack", "r1")],
            [],
        )
    ):
        fleet.add(
            "incident.open", i, class_="fail_stop", cause="gpu.memory", incident=f"i{i}",
            domain=[{"kind": kind, "id": name} for kind, name in domain],
        )  # fmt: skip
    found = records(tmp_path, fleet).incidents
    assert names(group_incidents(found, "domain")) == [
        ("device", 1, 0), ("host", 2, 0), ("unknown", 1, 0), ("rack r1", 2, 1),
    ]  # fmt: skip


def test_a_way_to_group_of_which_nothing_is_known_is_not_offered(tmp_path):
    fleet = made.Fleet()
    fleet.covers(0, 1)
    fleet.fault(0.5, "h", "gpu.memory")
    assert group_names(records(tmp_path, fleet).incidents) == ["class", "cause"]
