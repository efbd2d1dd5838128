"""A device is at risk once, and records decide over what a person types."""

from __future__ import annotations

import pytest

from lastgood.base.errors import BadInput
from lastgood.evidence.plan_records import ledger_inputs
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import read_records
from lastgood.evidence.rates_study import exposure_words
from tests.unit.evidence import made_fleet as made

NODES, DEVICES, DAYS = 10, 8, 100


def cluster(
    *, nodes: bool = True, jobs: tuple[tuple[float, float], ...] = ((0, 60),)
) -> made.Fleet:
    """Ten nodes of eight devices, and jobs on four of these nodes."""
    fleet = made.Fleet()
    fleet.covers(0, DAYS)
    for i in range(20):
        fleet.fault(5 * i + 0.1, made.host(i % NODES), "gpu.memory")
    for i in range(NODES if nodes else 0):
        fleet.joins(0, made.host(i), DEVICES)
        fleet.leaves(DAYS, made.host(i), DEVICES)
    for number, (begin, end) in enumerate(jobs):
        run = f"job-{number}"
        fleet.add("exposure.join", begin, devices=32, run=run, body={"basis": "allocation"})
        fleet.add("exposure.leave", end, devices=32, run=run, body={"basis": "allocation"})
    return fleet


def test_nodes_and_the_jobs_on_them_are_not_added_and_what_was_taken_is_said(tmp_path):
    path = cluster(jobs=((0, 60), (20, 30))).write(tmp_path / "both.db")
    found = read_records(path, RatesQuestion())
    assert found.exposure.total == pytest.approx(NODES * DEVICES * DAYS * 24)
    said = exposure_words(found.exposure)
    assert "join and leave records of nodes; those of 2 runs are left out, whose devices are the same" in said  # fmt: skip


def test_a_plan_counts_a_device_once_as_well(tmp_path):
    found = ledger_inputs(cluster().write(tmp_path / "plan.db")).records
    assert found.exposure.total == pytest.approx(NODES * DEVICES * DAYS * 24)


def test_jobs_alone_are_at_risk(tmp_path):
    path = cluster(nodes=False).write(tmp_path / "jobs.db")
    found = read_records(path, RatesQuestion())
    assert found.exposure.total == pytest.approx(32 * 60 * 24)
    assert exposure_words(found.exposure).endswith("from join and leave records)")


def test_a_job_in_whose_time_no_node_is_recorded_is_kept(tmp_path):
    fleet = cluster(nodes=False, jobs=((0, 40),))
    fleet.joins(50, made.host(0), DEVICES)
    fleet.leaves(60, made.host(0), DEVICES)
    found = read_records(fleet.write(tmp_path / "apart.db"), RatesQuestion())
    assert found.exposure.total == pytest.approx((32 * 40 + DEVICES * 10) * 24)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (RatesQuestion(devices=81), "80 devices"),
        (RatesQuestion(nodes=11), "10 nodes"),
    ],
)
def test_a_number_that_the_records_contradict_is_refused_with_theirs(tmp_path, asked, said):
    path = cluster().write(tmp_path / "typed.db")
    with pytest.raises(BadInput, match="the records say themselves what was at risk") as refused:
        read_records(path, asked)
    assert said in str(refused.value)
    assert "leave out --" in str(refused.value)


def test_the_number_of_the_records_may_be_typed_and_so_may_any_where_there_are_none(tmp_path):
    path = cluster().write(tmp_path / "same.db")
    assert read_records(path, RatesQuestion(devices=80, nodes=10)).exposure.total == pytest.approx(80 * DAYS * 24)  # fmt: skip
    bare = cluster(nodes=False, jobs=()).write(tmp_path / "bare.db")
    assert read_records(bare, RatesQuestion(devices=64)).exposure.is_assumed
