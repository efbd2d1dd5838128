"""A plan: its figures and kinds, its refusals, its alternatives, and what a change does to it."""

import math

import pytest

from lastgood.base.errors import BadInput, Refused
from lastgood.base.figures import Figure, FigureKind
from lastgood.budget.alternatives import alternatives
from lastgood.budget.closed.interval import IntervalRule
from lastgood.budget.plan import make_plan, round_within
from lastgood.budget.plan_finite import job_model, plan_finite
from lastgood.budget.scenario import Scenario, read_value
from lastgood.budget.surroundings import retention_curve, surroundings
from lastgood.budget.whatif import parse_change, tornado, what_if

MIN, H, D = 60e6, 3600e6, 86_400e6


def scenario(**values: str) -> Scenario:
    typed = {
        "mtti": "185.584726min",
        "checkpoint_cost": "1min",
        "detection": "1min",
        "recovery": "1min",
    }
    given = {**typed, **values}
    return Scenario(
        name="test",
        given={name: read_value(name, text, where="test") for name, text in given.items()},
    )


def test_a_plan_gives_the_exact_values_beside_the_first_order():
    plan = make_plan(scenario())
    assert plan.work.value == pytest.approx(18.604939 * MIN, rel=1e-6)
    assert plan.useful.value == pytest.approx(0.890118, abs=1e-6)
    assert plan.first is not None
    assert plan.first.value == pytest.approx(0.8853, abs=1e-4)
    assert not plan.is_first_flagged
    assert math.fsum(float(t.value) for t in plan.terms.values()) == pytest.approx(
        1 - 0.890118, abs=1e-6
    )
    low, high = (edge.value / MIN for edge in plan.plateau)
    assert (low, high) == pytest.approx((16.0134, 21.5997), abs=1e-3)
    assert plan.round_work.value == 20 * MIN
    # E = τ / (exp(R/M) (M + D) (exp((τ + C)/M) - 1)) at τ = 20 min, by hand
    mean, grown = 185.584726, math.expm1(21 / 185.584726)
    by_hand = 20 / (math.exp(1 / mean) * (mean + 1) * grown)
    assert plan.round_useful.value == pytest.approx(by_hand, rel=1e-9)
    assert plan.best_work.value == plan.work.value
    by_rule = {one.rule: one for one in plan.rules}
    assert by_rule[IntervalRule.YOUNG].work.value == pytest.approx(19.265759 * MIN, rel=1e-6)


def test_without_an_uncertain_input_there_is_no_interval():
    plan = make_plan(scenario())
    assert plan.useful.interval is None
    assert plan.curve[0].lo is None


def test_the_interval_of_the_result_is_that_of_the_inputs_carried_through():
    """E rises with M alone, so its interval must be E at the two ends of M, at the same τ."""
    from lastgood.budget.closed.efficiency import efficiency

    plan = make_plan(scenario(mtti="150min..185.584726min..230min"), sample_count=4_000)
    ends = [efficiency(plan.tau, scenario(mtti=f"{minutes}min").regime()) for minutes in (150, 230)]
    assert plan.useful.interval is not None
    assert (plan.useful.interval.lo, plan.useful.interval.hi) == pytest.approx(ends, abs=2e-3)
    assert plan.useful.interval.level == 0.95
    assert plan.work.interval is not None
    assert plan.work.interval.lo < plan.tau < plan.work.interval.hi
    assert plan.curve[30].lo < plan.curve[30].useful < plan.curve[30].hi


@pytest.mark.parametrize("kind", list(FigureKind)[:5])
def test_a_plan_is_at_best_modelled_and_keeps_the_kinds_of_its_inputs(kind):
    inputs = {
        name: Figure(name=name, value=figure.value, unit="us", kind=kind)
        for name, figure in scenario().given.items()
    }
    plan = make_plan(Scenario(given=inputs), with_curve=False)
    expected = max(kind, FigureKind.MODELLED, key=list(FigureKind).index)
    assert plan.useful.kind is expected
    assert kind in plan.useful.kinds
    assert plan.work.kind is expected
    assert "blocking periodic checkpoints that never fail" in plan.useful.assumptions


def test_the_first_order_is_flagged_above_fifteen_percent_and_refused_where_it_means_nothing():
    flagged = make_plan(
        scenario(mtti="60min", checkpoint_cost="5min", recovery="10min", detection="0s")
    )
    assert flagged.is_first_flagged
    assert flagged.first is not None
    senseless = make_plan(scenario(mtti="20min", checkpoint_cost="20min", recovery="10min"))
    assert senseless.first is None
    assert "meaningless" in senseless.first_refused
    assert senseless.useful.value > 0
    with pytest.raises(Refused, match="meaningless"):
        make_plan(senseless.scenario, is_first_order=True)
    states = {check.question: check.state for check in senseless.checks}
    assert states["first order usable"] == "not_held"
    assert states["checkpoint well below M"] == "not_held"
    assert states["recovery well below M"] == "not_held"


def test_a_rule_that_gives_no_interval_is_refused_alone():
    hard = scenario(mtti="15min", checkpoint_cost="60min")
    with pytest.raises(Refused, match="not positive"):
        make_plan(hard, rule=IntervalRule.DALY_FIRST_ORDER)
    refused = [one.rule for one in make_plan(hard, with_curve=False).rules if one.refused]
    assert refused == [IntervalRule.DALY_FIRST_ORDER, IntervalRule.YOUNG_PERIOD]


def test_what_nobody_tested_is_unknown():
    checks = {one.question: one for one in make_plan(scenario()).checks}
    assert checks["interruptions are Poisson"].state == "unknown"
    assert checks["no silent corruption"].state == "unknown"
    assert "mtti" in checks["inputs come from records"].detail


def test_the_interval_in_use_is_compared():
    plan = make_plan(scenario(interval="1h"))
    assert plan.today is not None
    assert plan.today.useful.value < plan.useful.value - 0.05


@pytest.mark.parametrize(
    ("best", "low", "high", "expected"),
    [
        (18.6 * MIN, 16 * MIN, 21.6 * MIN, 20 * MIN),
        (7e6, 6.9e6, 7.1e6, 7e6),
        (3.3 * H, 2.6 * H, 4.2 * H, 3 * H),
    ],
)
def test_a_round_interval_lies_on_the_plateau(best, low, high, expected):
    assert round_within(best, low, high) == pytest.approx(expected)


# --- a job that ends ---------------------------------------------------------------------------------------


def test_the_wall_time_of_a_job_is_simulated_around_the_exact_mean():
    plan = make_plan(scenario(work="2d"))
    finite = plan_finite(plan, seed=1, count=2_000)
    assert finite.mean_exact is not None
    assert finite.mean.interval is not None
    assert finite.mean.interval.lo < finite.mean_exact.value < finite.mean.interval.hi
    p50, p90, p99 = (finite.quantiles[share].value for share in (0.5, 0.9, 0.99))
    assert 2 * D < p50 < p90 < p99
    assert all(one.kind is FigureKind.SIMULATED for one in finite.quantiles.values())
    assert FigureKind.ASSUMED in finite.mean.kinds
    assert finite.mean_exact.kind is FigureKind.ASSUMED
    shares = [share for _, share in finite.curve]
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert finite.untouched.value == pytest.approx(
        math.exp(-(2 * 1440 + 155) / 185.584726), rel=0.01
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"checkpoint_failure": "5%"}, "5 % of checkpoints fail"),
        ({"weibull_shape": "0.7"}, "Weibull gaps of shape 0.7"),
        ({"burst_chance": "10%", "burst_gap": "1min"}, "10 % of failures"),
        ({"silent_mtti": "2d", "detection_latency": "1h"}, "silent corruption found late"),
    ],
)
def test_a_world_that_the_formula_does_not_know_has_no_exact_mean(given, words):
    plan = make_plan(scenario(work="1d", **given), with_curve=False)
    finite = plan_finite(plan, seed=1, count=50)
    assert finite.mean_exact is None
    assert words in finite.world
    assert job_model(plan.scenario, work=plan.tau).retained_count == 2


def test_failed_checkpoints_are_counted():
    finite = plan_finite(make_plan(scenario(work="1d", checkpoint_failure="5%")), seed=1, count=200)
    share = finite.counts["failed checkpoints"].value / finite.counts["checkpoints"].value
    assert share == pytest.approx(0.05, abs=0.006)


# --- alternatives ------------------------------------------------------------------------------------------


def by_name(rows):
    return {one.name: one for one in rows}


def test_an_alternative_without_its_inputs_names_them():
    rows = by_name(alternatives(scenario()))
    assert rows["plain"].useful.value == pytest.approx(0.885412, abs=1e-6)
    assert rows["asynchronous"].missing == ("snapshot_copy", "snapshot_persist")
    assert rows["verified pattern"].missing == ("silent_mtti", "verification_cost")
    around = by_name(surroundings(scenario(), work=19 * MIN))
    assert around["retention"].missing == ("detection_latency",)
    assert around["spares"].missing == ("node_mtti", "refill")


def test_alternatives_give_the_numbers_of_their_oracles():
    given = scenario(
        snapshot_copy="10s", snapshot_persist="5min", silent_mtti="3000min", verification_cost="30s",
        queue="10min", node_mtti="3h", refill="2d", detection_latency="15min", retained_checkpoints="3",
    )  # fmt: skip
    rows = by_name(alternatives(given))
    assert rows["asynchronous"].work.value == pytest.approx(7.865 * MIN, rel=1e-3)
    assert rows["asynchronous"].useful.value == pytest.approx(0.9199, abs=1e-4)
    around = by_name(surroundings(given, work=19 * MIN))
    assert around["retention"].extra[0].value == pytest.approx(
        0.03838, abs=1e-5
    )  # T = 20, k = 3, mu = 15
    assert around["spares"].extra[0].value == 27
    assert around["queue"].useful.value < rows["plain"].useful.value
    curve = retention_curve(given, work=19 * MIN)
    assert curve[2] == (3, pytest.approx(0.03838, abs=1e-5))
    assert curve[-1][1] < 0.001


def test_detection_and_recovery_are_the_restart_of_the_queueing_formula():
    """Its oracle: 1,500 nodes at 6.5 per 1,000 node-days, write 10 s, restart 5 min: 0.9205."""
    given = scenario(
        mtti="147.692308min", checkpoint_cost="10s", detection="2min", recovery="3min", queue="1us"
    )
    row = by_name(surroundings(given, work=7 * MIN))["queue"]
    assert row.useful.value == pytest.approx(0.9205, abs=6e-5)
    assert row.work.value == pytest.approx(7.016 * MIN, abs=0.001 * MIN)


def test_the_mean_time_that_a_wanted_ettr_needs_is_given_back():
    given = scenario(queue="10min", ettr_wanted="90%")
    need = by_name(surroundings(given, work=19 * MIN))["queue"].extra[0]
    there = scenario(queue="10min", mtti=f"{need.value / 1e6:.6f}s")
    reached = by_name(surroundings(there, work=19 * MIN))["queue"].useful.value
    assert reached == pytest.approx(0.9, abs=1e-6)
    never = scenario(queue="10min", ettr_wanted="90%", work="30min")
    assert (
        "no rate of interruptions" in by_name(surroundings(never, work=19 * MIN))["queue"].refused
    )


def test_copies_at_peers_are_counted_for_the_loss_that_is_meant():
    lone = by_name(
        alternatives(scenario(machines="16", peer_copy_cost="1s", simultaneous_losses="2"))
    )
    assert lone["copies at peers"].extra[0].value == pytest.approx(0.93333, abs=1e-5)
    rack = by_name(alternatives(scenario(machines="16", peer_copy_cost="1s", evicted_together="4")))
    assert rack["copies at peers"].extra[0].value == 1.0
    assert "neighbours 0.000" in rack["copies at peers"].note
    both = by_name(
        alternatives(
            scenario(
                machines="16", peer_copy_cost="1s", evicted_together="4", simultaneous_losses="1"
            )
        )
    )
    # Four of eight pairs have lost one machine; of the twelve that are left, four are last copies.
    assert both["copies at peers"].extra[0].value == pytest.approx(8 / 12)


# --- what if -----------------------------------------------------------------------------------------------


def test_a_change_is_the_difference_of_two_exact_values():
    answer = what_if(scenario(), [parse_change("checkpoint_cost=30s"), parse_change("mtti=x2")])
    halved = make_plan(scenario(checkpoint_cost="30s")).useful.value
    effects = {effect.change: effect for effect in answer.effects}
    assert effects["checkpoint_cost=30s"].delta.value == pytest.approx(
        100 * (halved - 0.890118), abs=1e-3
    )
    assert [effect.rank for effect in answer.effects] == [1, 2]
    assert answer.effects[0].change == "mtti=x2"
    assert answer.all_together is not None
    assert answer.all_together.delta.value > answer.effects[0].delta.value
    assert (
        answer.effects[0].sign_share.value is None
    )  # nothing is uncertain, so nothing is known about it
    assert answer.ranking_share.value is None


def test_sign_and_ranking_are_shares_of_the_draws():
    sure = scenario(mtti="2.8h..3.09h..3.4h")
    unsure = scenario(mtti="2.8h..3.09h..3.4h", checkpoint_cost="20s..1min..3min")
    clear = what_if(sure, [parse_change("checkpoint_cost=10s")])
    assert clear.effects[0].sign_share.value == 1.0
    coin = what_if(unsure, [parse_change("checkpoint_cost=58s"), parse_change("recovery=30s")])
    shares = {effect.change: effect.sign_share.value for effect in coin.effects}
    assert 0.4 < shares["checkpoint_cost=58s"] < 0.6
    assert shares["recovery=30s"] == 1.0
    assert 0.3 < coin.ranking_share.value < 0.7
    scaled = what_if(unsure, [parse_change("checkpoint_cost=x0.9")])
    assert scaled.effects[0].sign_share.value == 1.0  # the same draws, scaled: chance cancels


def test_a_change_of_the_mean_keeps_the_draws_of_its_domains():
    stops = {
        "a": read_value("mtti", "3h..4h..6h", where="t"),
        "b": read_value("mtti", "8h..12h..20h", where="t"),
    }
    base = Scenario(
        given={"checkpoint_cost": read_value("checkpoint_cost", "1min", where="t")}, stops=stops
    )
    assert what_if(base, [parse_change("mtti=x1.05")]).effects[0].sign_share.value == 1.0


@pytest.mark.parametrize(
    "text", ["checkpoint_cost", "nothing=1min", "work=3d", "mtti=-100%", "mtti=x0"]
)
def test_a_change_that_means_nothing_is_bad_input(text):
    with pytest.raises(BadInput):
        parse_change(text)


def test_the_tornado_orders_inputs_by_what_they_move():
    rows = tornado(scenario())
    assert [row[0] for row in rows] == ["mtti", "checkpoint_cost", "recovery", "detection"]
    assert rows[0][2] < 0 < rows[0][3]
    assert rows[1][2] > 0 > rows[1][3]
    assert "detection" not in [row[0] for row in tornado(scenario(detection="0s"))]
