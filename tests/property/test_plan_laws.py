"""Laws that hold for every checkpoint plan, whatever its numbers."""

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lastgood.budget.closed.efficiency import (
    efficiency,
    exact_budget,
    finite_job,
    first_order,
    plateau,
)
from lastgood.budget.closed.interval import daly, exact_work, young
from lastgood.budget.closed.multilevel import Level, best_levels, multilevel
from lastgood.budget.closed.placement import (
    adjacent_groups,
    domain_survival,
    neighbour_domains,
    random_loss_survival,
    spread_groups,
    survives,
)
from lastgood.budget.closed.queueing import (
    Resubmission,
    best_work,
    expected_ettr,
    mean_to_stop_for,
)
from lastgood.budget.closed.regime import Regime, expected_lost
from lastgood.budget.closed.retention import retained_for, retention_risk
from lastgood.budget.closed.silent import (
    SilentErrors,
    best_pattern,
    pattern_overhead,
    verified_pattern,
)
from lastgood.budget.closed.spares import spare_pool

MEANS = st.floats(min_value=1, max_value=1e6)
SHARES = st.floats(min_value=1e-6, max_value=5)
DOWNS = st.floats(min_value=0, max_value=2)


@st.composite
def regimes(draw):
    mean = draw(MEANS)
    return Regime(
        mean_to_stop=mean,
        checkpoint=mean * draw(SHARES),
        detection=mean * draw(DOWNS),
        recovery=mean * draw(DOWNS),
        is_recovery_exposed=draw(st.booleans()),
    )


def changed(regime: Regime, **factors: float) -> Regime:
    names = ("mean_to_stop", "checkpoint", "detection", "recovery")
    values = {name: getattr(regime, name) * factors.get(name, 1) for name in names}
    return Regime(**values, is_recovery_exposed=regime.is_recovery_exposed)


@given(regimes())
def test_the_exact_interval_is_stationary_to_twelve_digits_and_a_maximum(regime):
    work = exact_work(regime)
    u, x = work / regime.mean_to_stop, regime.checkpoint / regime.mean_to_stop
    assert abs((1 - u) * math.exp(u + x) - 1) < 1e-12 * math.exp(u + x) + 1e-12
    best = efficiency(work, regime)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert efficiency(work * factor, regime) <= best * (1 + 1e-12)


@given(regimes())
def test_the_exact_interval_does_not_depend_on_the_time_down(regime):
    assert exact_work(regime) == exact_work(changed(regime, detection=3, recovery=0))


@pytest.mark.parametrize("ratio", [1e-3, 1e-4, 1e-5])
def test_young_nears_the_exact_interval_by_the_half_power_and_daly_by_the_three_halves(ratio):
    """A tenth of C/M must bring each closer by its own power of ten."""

    def errors(x):
        regime = Regime(mean_to_stop=1.0, checkpoint=x)
        exact = exact_work(regime)
        return young(regime) / exact - 1, daly(regime) / exact - 1

    (young_here, daly_here), (young_there, daly_there) = errors(ratio), errors(ratio / 10)
    assert young_here / young_there == pytest.approx(math.sqrt(10), rel=0.05)
    assert abs(daly_here / daly_there) == pytest.approx(10**1.5, rel=0.15)


@given(regimes(), st.floats(min_value=0.01, max_value=1000))
def test_useful_time_does_not_depend_on_the_unit(regime, scale):
    names = ("mean_to_stop", "checkpoint", "detection", "recovery")
    scaled = changed(regime, **dict.fromkeys(names, scale))
    work = young(regime)
    expected = efficiency(work, regime)
    assert efficiency(work * scale, scaled) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(regimes(), st.floats(min_value=1.01, max_value=3), st.floats(min_value=0.1, max_value=4))
def test_useful_time_falls_with_every_cost_and_rises_with_the_mean(regime, factor, part):
    work = exact_work(regime) * part
    before = efficiency(work, regime)
    for cost in ("checkpoint", "detection", "recovery"):
        assert efficiency(work, changed(regime, **{cost: factor})) <= before
    assert efficiency(work, changed(regime, mean_to_stop=factor)) >= before


@given(regimes(), st.floats(min_value=0.1, max_value=4))
def test_the_terms_of_the_exact_budget_add_up_to_all_of_the_time(regime, part):
    work = exact_work(regime) * part
    budget = exact_budget(work, regime)
    assert budget.useful == pytest.approx(efficiency(work, regime), abs=1e-9)
    terms = (budget.checkpoint, budget.rework, budget.detection, budget.recovery)
    assert all(0 <= term <= 1 for term in terms)


@given(st.floats(min_value=1e-5, max_value=1e-3))
def test_first_order_and_exact_agree_where_waste_is_small(ratio):
    regime = Regime(mean_to_stop=1.0, checkpoint=ratio / 100, detection=0, recovery=ratio)
    budget = first_order(young(regime), regime)
    gap = efficiency(young(regime), regime) - budget.useful
    assert 0 <= gap < 0.6 * budget.waste**2


@given(regimes())
def test_the_plateau_holds_what_it_says(regime):
    work = exact_work(regime)
    low, high = plateau(work, regime)
    best = efficiency(work, regime)
    assert low <= work <= high
    for edge in (low, high):
        assert efficiency(edge, regime) >= best - 0.001 * (1 + 1e-6)
    if best > 0.01:
        assert efficiency(high * 1.01, regime) < best - 0.001


@given(st.floats(min_value=1e-12, max_value=50), MEANS)
def test_lost_time_is_at_most_half_a_period_and_joins_smoothly(x, mean):
    lost = expected_lost(x * mean, mean_to_stop=mean)
    assert 0 < lost <= x * mean / 2
    assert lost <= mean
    before = expected_lost(0.00999999 * mean, mean_to_stop=mean)
    after = expected_lost(0.01000001 * mean, mean_to_stop=mean)
    assert before == pytest.approx(after, rel=1e-5)


@given(regimes(), st.integers(min_value=1, max_value=50))
def test_a_finite_job_of_whole_segments_takes_its_work_over_the_efficiency(regime, count):
    work = exact_work(regime)
    expected = efficiency(work, regime)
    assume(expected > 1e-200)
    job = finite_job(count * work, work=work, regime=regime)
    assert job.segment_count == count
    assert job.wall == pytest.approx(count * work / expected)
    longer = finite_job((count + 0.5) * work, work=work, regime=regime)
    assert job.wall < longer.wall
    assert longer.segment_count == count + 1


@given(st.lists(st.tuples(MEANS, SHARES), min_size=1, max_size=5))
def test_the_best_levels_waste_no_more_than_all_or_the_last_alone(rows):
    costs = sorted(share for _, share in rows)
    means = [mean * 1000 for mean, _ in rows]
    levels = [
        Level(name=str(i), mean_to_stop=mean, checkpoint=cost)
        for i, (mean, cost) in enumerate(zip(means, costs, strict=True))
    ]
    rate = math.fsum(1 / mean for mean in means)
    alone = multilevel([Level(name="last", mean_to_stop=1 / rate, checkpoint=costs[-1])])
    assume(alone.waste < 1)
    best = best_levels(levels)
    assert best.waste <= multilevel(levels).waste * (1 + 1e-12)
    assert best.waste <= alone.waste * (1 + 1e-12)
    assert best.levels[-1] == levels[-1].name


@given(MEANS, MEANS, SHARES, SHARES)
def test_the_best_pattern_beats_its_neighbours(stop, corruption, checkpoint, verification):
    errors = SilentErrors(
        mean_to_stop=stop,
        mean_to_corruption=corruption,
        checkpoint=checkpoint,
        verification=verification,
    )
    best = best_pattern(errors)
    assume(best.segment_count < 1000)
    for k in (best.segment_count - 1, best.segment_count + 1):
        if k >= 1:
            assert best.overhead <= verified_pattern(k, errors).overhead * (1 + 1e-12)
    for factor in (0.9, 1.1):
        other = pattern_overhead(
            best.work * factor, segment_count=best.segment_count, errors=errors
        )
        assert best.overhead <= other


@given(st.integers(min_value=1, max_value=60), SHARES, st.floats(min_value=1e-6, max_value=0.9))
def test_more_kept_checkpoints_never_raise_the_risk(count, ratio, wanted):
    risk = retention_risk(count, period=ratio, mean_detection=1.0)
    assert 0 <= retention_risk(count + 1, period=ratio, mean_detection=1.0) <= risk <= 1
    if ratio > 1e-3:
        enough = retained_for(wanted, period=ratio, mean_detection=1.0)
        assert retention_risk(enough, period=ratio, mean_detection=1.0) <= wanted * (1 + 1e-9)
        if enough > 1:
            assert retention_risk(enough - 1, period=ratio, mean_detection=1.0) > wanted * 0.999


@given(
    st.integers(min_value=1, max_value=3),
    st.integers(min_value=1, max_value=4),
    st.integers(min_value=0, max_value=4),
)
def test_copy_survival_equals_a_count_of_all_losses(copies, group_count, losses):
    machines = copies * group_count
    assume(losses <= machines)
    for groups in (
        adjacent_groups(machine_count=machines, copy_count=copies),
        spread_groups(machine_count=machines, copy_count=copies),
    ):
        sets = list(itertools.combinations(range(machines), losses))
        alive = sum(survives(groups, lost) for lost in sets)
        assert random_loss_survival(groups, loss_count=losses) == pytest.approx(alive / len(sets))
        domains = neighbour_domains(machine_count=machines, domain_machine_count=2)
        found = domain_survival(groups, domains)
        fatal = sum(not survives(groups, domain) for domain in domains)
        assert found.fatal_count == fatal
        assert found.mean == pytest.approx(1 - fatal / len(domains))


@given(
    st.floats(min_value=0.05, max_value=0.97),
    st.floats(min_value=0.01, max_value=10),
    st.floats(min_value=0, max_value=10),
    st.floats(min_value=0, max_value=10),
)
def test_the_mean_found_for_an_ettr_gives_that_ettr(ettr, write, restart, queue):
    costs = Resubmission(checkpoint=write, restart=restart, queue=queue)
    mean = mean_to_stop_for(ettr, costs)
    work = best_work(costs, mean_to_stop=mean)
    assert expected_ettr(work, costs, mean_to_stop=mean) == pytest.approx(ettr, rel=1e-9)


@given(SHARES, st.floats(min_value=0.5, max_value=0.9999))
def test_a_spare_pool_is_the_smallest_that_is_enough(busy, chance):
    pool = spare_pool(mean_to_stop=1.0, refill=busy, chance=chance, window=100.0)

    def below(count):
        terms = (math.exp(-busy) * busy**i / math.factorial(i) for i in range(count))
        return math.fsum(terms)

    assert below(pool.spare_count) >= chance * (1 - 1e-12)
    assert below(pool.spare_count - 1) < chance
    assert pool.waits == pytest.approx(100 * (1 - below(pool.spare_count)), abs=1e-9)
