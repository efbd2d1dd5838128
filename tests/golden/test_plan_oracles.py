"""The oracle tables of the checkpoint models: every closed form against its printed digits."""

import json
from pathlib import Path

import pytest

from lastgood.base.errors import Refused
from lastgood.budget.closed.asynchronous import Snapshot, snapshot_waste, snapshot_work
from lastgood.budget.closed.efficiency import (
    efficiency,
    exact_budget,
    first_order,
    require_first_order,
)
from lastgood.budget.closed.interval import daly, daly_first_order, exact_work, young
from lastgood.budget.closed.multilevel import Level, multilevel
from lastgood.budget.closed.placement import adjacent_groups, random_loss_survival
from lastgood.budget.closed.queueing import Resubmission, best_work, expected_ettr
from lastgood.budget.closed.regime import Regime
from lastgood.budget.closed.retention import retention_risk
from lastgood.budget.closed.silent import (
    SilentErrors,
    ideal_segment_count,
    verified_pattern,
)

ORACLES = json.loads(Path(__file__).with_name("plan_oracles.json").read_text(encoding="utf-8"))


def regime(row, **other) -> Regime:
    return Regime(
        mean_to_stop=row["M"], checkpoint=row["C"], detection=row["D"], recovery=row["R"], **other
    )


@pytest.mark.parametrize("row", ORACLES["intervals"], ids=lambda row: f"C{row['C']}-M{row['M']}")
def test_intervals_and_efficiencies_equal_the_printed_digits(row):
    world, near = regime(row), {"abs": row["tolerance"]}
    assert exact_work(world) == pytest.approx(row["exact"], **near)
    assert daly(world) == pytest.approx(row["daly"], **near)
    assert young(world) == pytest.approx(row["young"], **near)
    assert efficiency(exact_work(world), world) == pytest.approx(row["E_exact"], **near)
    assert efficiency(young(world), world) == pytest.approx(row["E_young"], **near)
    assert exact_budget(young(world), world).useful == pytest.approx(row["E_young"], **near)
    assert first_order(young(world), world).useful == pytest.approx(row["E_first"], **near)
    if row["daly1"] is None:
        with pytest.raises(Refused, match="not positive"):
            daly_first_order(world)
    else:
        assert daly_first_order(world) == pytest.approx(row["daly1"], **near)


@pytest.mark.parametrize("row", ORACLES["intervals"], ids=lambda row: f"C{row['C']}-M{row['M']}")
def test_a_first_order_budget_that_loses_more_than_everything_is_refused(row):
    budget = first_order(young(regime(row)), regime(row))
    if row["E_first"] > 0:
        assert require_first_order(budget) == budget.useful
    else:
        with pytest.raises(Refused, match="meaningless"):
            require_first_order(budget)


def test_recovery_without_failures_gives_the_other_form():
    row = ORACLES["intervals"][0]
    world = regime(row, is_recovery_exposed=False)
    expected = ORACLES["recovery_free_first_row"]
    assert efficiency(exact_work(world), world) == pytest.approx(expected, abs=6e-7)
    assert exact_budget(exact_work(world), world).useful == pytest.approx(expected, abs=6e-7)


def test_levels_have_their_own_young_intervals():
    table = ORACLES["levels"]
    plan = multilevel(
        [
            Level(name=str(mean), mean_to_stop=mean, checkpoint=cost)
            for mean, cost in zip(table["means"], table["costs"], strict=True)
        ]
    )
    assert plan.overhead == pytest.approx(table["overhead"], abs=6e-7)
    assert plan.works == pytest.approx(table["works"], abs=6e-5)


@pytest.mark.parametrize("row", ORACLES["snapshots"], ids=lambda row: f"a{row['slowdown']}")
def test_snapshots_lose_the_time_that_persisting_takes(row):
    world = Regime(mean_to_stop=185.584726, checkpoint=1, detection=1, recovery=1)
    snapshot = Snapshot(copy=row["copy"], persist=row["persist"], slowdown=row["slowdown"])
    work = snapshot_work(snapshot, mean_to_stop=185.584726)
    useful = 1 - snapshot_waste(work, snapshot, world)
    assert work == pytest.approx(row["work"], abs=6e-3)
    assert useful == pytest.approx(row["useful"], abs=6e-5)
    assert 0 < row["simulated"] - useful < 0.01  # pessimistic, by less than a point


def test_verified_patterns_have_their_minimum_at_two_segments():
    table = ORACLES["patterns"]
    errors = SilentErrors(
        mean_to_stop=table["mean_to_stop"],
        mean_to_corruption=table["mean_to_corruption"],
        checkpoint=table["C"],
        verification=table["V"],
    )
    overheads = [verified_pattern(k, errors).overhead for k in range(1, 7)]
    assert overheads == pytest.approx(table["overheads"], abs=6e-6)
    assert ideal_segment_count(errors) == pytest.approx(table["best_count"])
    assert min(overheads) == pytest.approx(table["limit"], abs=6e-7)


@pytest.mark.parametrize("row", ORACLES["retention"], ids=lambda row: f"k{row['retained']}")
def test_retention_risk_equals_its_printed_digits(row):
    risk = retention_risk(row["retained"], period=row["period"], mean_detection=row["latency"])
    assert risk == pytest.approx(row["risk"], abs=6e-6)


def test_copy_groups_survive_random_losses_as_published():
    table = ORACLES["groups"]
    groups = adjacent_groups(machine_count=table["machines"], copy_count=table["copies"])
    for losses, expected in table["losses"].items():
        chance = random_loss_survival(groups, loss_count=int(losses))
        assert chance == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize("row", ORACLES["queueing"]["rows"], ids=lambda row: f"w{row['write']:.1f}")
def test_expected_ettr_equals_its_printed_digits_and_lies_near_the_exact_form(row):
    table = ORACLES["queueing"]
    mean = 1440 / (table["node_rate_per_day"] * table["nodes"])
    costs = Resubmission(checkpoint=row["write"], restart=row["restart"])
    work = best_work(costs, mean_to_stop=mean)
    assert work == pytest.approx(row["work"], abs=6e-4)
    assert expected_ettr(work, costs, mean_to_stop=mean) == pytest.approx(row["ettr"], abs=6e-5)
    world = Regime(mean_to_stop=mean, checkpoint=row["write"], recovery=row["restart"])
    assert efficiency(work, world) == pytest.approx(row["exact"], abs=6e-5)
