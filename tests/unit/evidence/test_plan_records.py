"""A plan's inputs from a ledger: only failures of the field are a rate, and costs say what they rest on."""

from __future__ import annotations

import pytest

from lastgood.base.errors import Problems, Refused
from lastgood.base.figures import FigureKind
from lastgood.base.units import US_PER_DAY, US_PER_S
from lastgood.evidence.plan_records import back_tests, ledger_inputs, rate_source
from lastgood.evidence.rates_records import RatesQuestion
from tests.unit.evidence import made_fleet as made

SMALL, LARGE = 16, 64
"""Hosts of eight devices, in the first and in the second sixty days."""


def growing(*, factor: int = 2) -> made.Fleet:
    """20 faults on 128 devices, then `factor` times as many per device on 512."""
    fleet = made.Fleet()
    fleet.covers(0, 120)
    for number in range(LARGE):
        day = 0 if number < SMALL else 60
        fleet.joins(day, made.host(number), 8)
        fleet.leaves(120, made.host(number), 8)
    for i in range(20):
        fleet.fault(3 * i + 1, made.host(i % SMALL), "gpu.memory")
    many = 20 * (LARGE // SMALL) * factor
    for i in range(many):
        fleet.fault(60 + 60 * (i + 0.5) / many, made.host(i % LARGE), "gpu.memory")
    return fleet


def drilled(*, body: dict) -> made.Fleet:
    """A run whose five faults were caused on purpose, with measured times, and three checkpoints of 2, 3 and 4 s."""
    fleet = made.Fleet()
    fleet.add("run.start", 0, run="r", body=body)
    for i in range(5):
        at, name = 0.1 + 0.1 * i, f"r/{i}"
        mark = {"injected": True} if body.get("mode") is None else {}
        fleet.add("incident.open", at, run="r", class_="fail_stop", incident=name, body=mark)
        fleet.add(
            "incident.close", at + 0.01, run="r", incident=name, detect_us=(10 + i) * US_PER_S, diagnose_us=US_PER_S,
            isolate_us=2 * US_PER_S, recover_us=20 * US_PER_S, verify_us=3 * US_PER_S,
        )  # fmt: skip
    for step, seconds in ((1, 2), (2, 3), (3, 4)):
        day = 0.6 + 0.01 * step
        fleet.add("checkpoint.begin", day, run="r", body={"step": step})
        end = day + seconds * US_PER_S / US_PER_DAY
        fleet.add("checkpoint.commit", end, run="r", body={"step": step})
    fleet.add("checkpoint.begin", 0.7, run="r", body={"step": 4})
    fleet.add("checkpoint.fail", 0.7001, run="r", body={"step": 4})
    fleet.add("run.end", 0.9, run="r", body={"exit_code": 0})
    return fleet


def test_the_rate_is_that_of_the_field_with_its_interval(tmp_path):
    found = ledger_inputs(made.troubled().write(tmp_path / "l.db"))
    mean = found.scenario.figure("mtti")
    assert mean.value == pytest.approx(100 * US_PER_DAY / 153)
    assert (mean.kind, mean.n) == (FigureKind.MEASURED, 153)
    assert mean.interval is not None
    assert mean.interval.lo < mean.value < mean.interval.hi
    assert found.injected_count == 1
    assert "1 planned stop" in found.scenario.notes[0]
    assert found.scenario.notes[1].startswith("dispersion: ")
    assert len(found.root) == 64


def test_the_classes_of_the_ledger_add_up_to_its_rate(tmp_path):
    fleet = made.few()
    for i in range(12):
        fleet.fault(2 + 3 * i, made.host(20), "gpu.bus")
    found = ledger_inputs(fleet.write(tmp_path / "l.db"))
    stops = found.scenario.stops
    assert {name: figure.n for name, figure in stops.items()} == {"fail_stop": 12, "sdc": 6}
    total = sum(1 / figure.value for figure in stops.values())
    assert 1 / total == pytest.approx(found.scenario.figure("mtti").value)


@pytest.mark.parametrize("body", [{"mode": "demo"}, {}])
def test_injected_faults_give_costs_and_never_a_rate(tmp_path, body):
    found = ledger_inputs(drilled(body=body).write(tmp_path / "l.db"))
    assert (found.records, found.injected_count) == (None, 5)
    assert not found.scenario.has("mtti")
    detection, recovery = found.scenario.figure("detection"), found.scenario.figure("recovery")
    assert detection.value == pytest.approx(13 * US_PER_S)  # 10 to 14 s and one of diagnosis
    assert recovery.value == pytest.approx(25 * US_PER_S)
    assert (detection.n, detection.kind) == (5, FigureKind.MEASURED)
    # Student, n = 5, standard deviation sqrt(2.5): 13 -+ 2.776445 * 0.707107
    assert detection.interval.lo == pytest.approx((13 - 1.963243) * US_PER_S, rel=1e-5)
    assert any("5 of 5 incidents behind the costs were injected" in n for n in found.scenario.notes)
    with pytest.raises(Refused, match="injected are not a rate"):
        rate_source(found.records, injected_count=found.injected_count)


def test_a_drill_is_no_rate_in_an_export_of_its_ledger_either(tmp_path):
    """Its incidents do not say that they were injected; only the start of the run does."""
    pytest.importorskip("pyarrow", reason="the extra analysis is not installed")
    from lastgood.evidence.rates_report import read_records
    from lastgood.ledger.parquet_export import export_parquet

    ledger = drilled(body={"mode": "demo"}).write(tmp_path / "l.db")
    export_parquet(ledger, tmp_path / "out")
    found = ledger_inputs(tmp_path / "out")
    assert (found.records, found.injected_count) == (None, 5)
    assert not found.scenario.has("mtti")
    for place in (ledger, tmp_path / "out"):
        records = read_records(place, RatesQuestion())
        assert (len(records.incidents), records.injected_count) == (0, 5)


def test_the_cost_of_checkpoints_is_measured_from_begin_to_commit(tmp_path):
    found = ledger_inputs(drilled(body={}).write(tmp_path / "l.db"))
    cost = found.scenario.figure("checkpoint_cost")
    assert (cost.value, cost.n) == (pytest.approx(3 * US_PER_S, rel=1e-6), 3)
    assert "taken to block" in cost.source
    assert found.scenario.figure("checkpoint_failure").value == 0.25


@pytest.mark.parametrize("blocked_us", [0, US_PER_S])
def test_the_time_for_which_a_checkpoint_blocked_counts_where_it_is_recorded(tmp_path, blocked_us):
    fleet = drilled(body={})
    for event in fleet.events:
        if event.kind == "checkpoint.commit":
            event.body["blocked_us"] = blocked_us
    scenario = ledger_inputs(fleet.write(tmp_path / "l.db")).scenario
    if blocked_us:
        assert scenario.value("checkpoint_cost") == blocked_us
        assert "as recorded" in scenario.figure("checkpoint_cost").source
        return
    assert not scenario.has("checkpoint_cost")
    with pytest.raises(Problems, match=r"3 checkpoints .* beside the job, in 3 s each, and blocked it for 0 s"):  # fmt: skip
        scenario.require(("checkpoint_cost",))


def test_blocking_stretches_count_before_whole_writes(tmp_path):
    fleet = drilled(body={})
    fleet.add("section.begin", 0.8, run="r", body={"name": "save", "state": "checkpoint.blocking"})
    fleet.add(
        "section.end",
        0.8 + 1 / 86_400,
        run="r",
        body={"name": "save", "state": "checkpoint.blocking"},
    )
    fleet.add("section.begin", 0.81, run="r", body={"name": "eval", "state": "planned"})
    fleet.add("section.end", 0.82, run="r", body={"name": "eval", "state": "planned"})
    cost = ledger_inputs(fleet.write(tmp_path / "l.db")).scenario.figure("checkpoint_cost")
    assert (cost.value, cost.n) == (pytest.approx(US_PER_S, rel=1e-5), 1)


def test_a_rate_with_exposure_can_be_projected_and_is_tested_on_the_ledger_itself(tmp_path):
    found = ledger_inputs(growing().write(tmp_path / "l.db"))
    source = rate_source(found.records)
    assert (source.devices_min, source.devices_max) == (128, 512)
    assert source.devices == pytest.approx(320)
    (test,), reason = back_tests(found.records)
    assert reason == ""
    assert test.devices == pytest.approx(512)
    assert test.projected.value == pytest.approx(60 * US_PER_DAY / 20 / 4)
    assert test.measured.value == pytest.approx(60 * US_PER_DAY / 160)
    assert test.ratio.value == pytest.approx(2.0)


def test_the_back_test_agrees_where_the_rate_per_device_is_constant(tmp_path):
    found = ledger_inputs(growing(factor=1).write(tmp_path / "l.db"))
    (test,), _ = back_tests(found.records)
    assert test.ratio.value == pytest.approx(1.0)


def test_without_two_sizes_or_enough_failures_there_is_no_back_test(tmp_path):
    one = ledger_inputs(made.fleet(with_exposure=True).write(tmp_path / "one.db"))
    assert back_tests(one.records) == ((), "the records hold one size only")
    fleet = growing()
    fleet.events = [
        e for e in fleet.events if e.t_occurred_us > made.at_us(50) or "incident" not in e.kind
    ]
    few = ledger_inputs(fleet.write(tmp_path / "few.db"))
    assert "fewer than 10" in back_tests(few.records)[1]


def test_without_exposure_nothing_is_projected_and_a_typed_one_is_assumed(tmp_path):
    path = made.fleet().write(tmp_path / "l.db")
    with pytest.raises(Refused, match="without exposure"):
        rate_source(ledger_inputs(path).records)
    typed = rate_source(ledger_inputs(path, RatesQuestion(devices=320)).records)
    assert typed.mean_time.kind is FigureKind.ASSUMED
    assert FigureKind.MEASURED in typed.mean_time.kinds
    assert typed.mean_time.value == pytest.approx(100 * US_PER_DAY / 120)


def test_a_ledger_without_failures_says_that_the_rate_must_come_from_elsewhere(tmp_path):
    fleet = made.Fleet()
    fleet.covers(0, 10)
    found = ledger_inputs(fleet.write(tmp_path / "l.db"))
    assert not found.scenario.has("mtti")
    assert "holds no failure" in found.scenario.notes[0]
    with pytest.raises(Refused, match="nothing to project"):
        rate_source(found.records)


def test_the_gap_between_two_runs_is_no_time_between_failures(tmp_path):
    """Eight devices for 20 of 100 days, and two faults: the mean time is 10 days, at the same size carried or not."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for begin, end in ((0, 10), (90, 100)):
        fleet.joins(begin, made.host(1), 8)
        fleet.fault(begin + 5, made.host(1), "gpu.memory")
        fleet.leaves(end, made.host(1), 8)
    found = ledger_inputs(fleet.write(tmp_path / "l.db"))
    mean = found.scenario.figure("mtti")
    assert mean.value == pytest.approx(10 * US_PER_DAY)
    assert "80 d in which no device was at risk" in found.scenario.notes[0]
    source = rate_source(found.records)
    assert source.devices == pytest.approx(8)
    assert source.mean_time.value == pytest.approx(mean.value)
