"""A checkpoint plan: τ, the useful fraction with its interval, where the waste goes, and when all this does not hold.

`make_plan` is the one entry. The exact value stands first; the first-order value beside it is flagged above a waste of
15 % and replaced by the reason where it means nothing. The interval comes from the intervals of the inputs alone: it
does not cover what the model leaves out, which is what the list of checks is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.base.errors import Refused
from lastgood.base.figures import Figure, Interval, combine
from lastgood.budget.closed.efficiency import (
    Budget,
    efficiency,
    exact_budget,
    first_order,
    plateau,
    require_first_order,
)
from lastgood.budget.closed.interval import IntervalRule, choose_work, exact_work
from lastgood.budget.plan_checks import PlanCheck, check_plan
from lastgood.budget.sampling import SAMPLE_COUNT, Samples, draw, interval_from, map_samples
from lastgood.budget.scenario import Scenario

ASSUMES = (
    "stationary, independent (Poisson) interruptions",
    "blocking periodic checkpoints that never fail",
    "every interruption is detected",
)
EXACT_SOURCE = {
    True: "exact renewal formula, recovery exposed to failure (Daly 2006; Hérault and Robert 2015)",
    False: "exact renewal formula, recovery free of failure (Hérault and Robert 2015)",
}
FIRST_SOURCE = "first-order budget (Young 1974)"
RULE_SOURCE = {
    IntervalRule.EXACT: "exact optimum by Lambert's W",
    IntervalRule.DALY: "Daly 2006, higher order",
    IntervalRule.DALY_FIRST_ORDER: "Daly 2006, first order",
    IntervalRule.YOUNG: "Young 1974, as work between checkpoints",
    IntervalRule.YOUNG_PERIOD: "Young 1974, as the whole period; work is less by C",
}
CURVE_POINTS = 61
CURVE_SAMPLES = 400
PARTS = ("mtti", "checkpoint_cost", "detection", "recovery")
TERMS = ("checkpoint", "rework", "detection", "recovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One formula for τ and what its τ is worth by the exact formula."""

    rule: IntervalRule
    work: Figure | None
    useful: Figure | None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """E at one τ, with the band of the sampled inputs, and what the first order claims."""

    work: float
    useful: float
    lo: float | None
    hi: float | None
    first_order: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer, all of it as figures."""

    scenario: Scenario
    rule: IntervalRule
    samples: Samples
    work: Figure
    """τ by the chosen rule; its interval is where the optimum of sampled inputs lies."""
    useful: Figure
    """E at τ, exact, with the propagated interval."""
    waste: Figure
    first: Figure | None
    """E at τ in the first order; None where it is refused,"""
    first_refused: str
    """for this reason."""
    is_first_flagged: bool
    """True when its waste is above 15 %."""
    terms: dict[str, Figure]
    """Exact shares of wall time by what they are spent on."""
    first_terms: dict[str, Figure]
    rules: tuple[RuleResult, ...]
    plateau: tuple[Figure, Figure]
    """τ from here to there costs at most a tenth of a point."""
    best_work: Figure
    """τ of the exact optimum, whatever rule was chosen."""
    round_work: Figure
    """A round τ on the plateau."""
    round_useful: Figure
    """E at the round τ, exact, with the propagated interval."""
    today: RuleResult | None
    """The interval in use, when it is known."""
    checks: tuple[PlanCheck, ...]
    curve: tuple[CurvePoint, ...]

    @property
    def tau(self) -> float:
        """τ in microseconds."""
        assert self.work.value is not None
        return float(self.work.value)


def make_plan(
    scenario: Scenario,
    *,
    rule: IntervalRule = IntervalRule.EXACT,
    is_first_order: bool = False,
    seed: int = 0,
    sample_count: int = SAMPLE_COUNT,
    with_curve: bool = True,
) -> Plan:
    """Plan checkpoints for a scenario.

    Args:
        scenario: the inputs; `mtti` and `checkpoint_cost` must be there.
        rule: the formula for τ.
        is_first_order: insist on the first-order budget, and refuse where it means nothing.
        seed: of the sampled inputs.
        sample_count: draws of the inputs.
        with_curve: leave out the curve when nobody draws it.

    Raises:
        Problems: a needed input is missing.
        Refused: the rule gives no interval here, or the insisted-on budget is meaningless.
    """
    scenario.require()
    regime = scenario.regime()
    samples = draw(scenario, seed=seed, count=sample_count)
    work = choose_work(rule, regime)
    budget, first = exact_budget(work, regime), first_order(work, regime)
    if is_first_order:
        require_first_order(first)
    first_figure, refused = _first_figure(scenario, first)
    best = exact_work(regime)
    low, high = plateau(best, regime)
    today = None
    if scenario.has("interval"):
        today = _at(scenario, samples, rule, scenario.figure("interval"))
    return Plan(
        scenario=scenario,
        rule=rule,
        samples=samples,
        work=work_figure(scenario, samples, rule, work),
        useful=useful_figure(scenario, samples, work),
        waste=share_figure(scenario, "waste", budget.waste),
        first=first_figure,
        first_refused=refused,
        is_first_flagged=first.waste > 0.15,
        terms=_terms(scenario, budget, EXACT_SOURCE[regime.is_recovery_exposed]),
        first_terms=_terms(scenario, first, FIRST_SOURCE),
        rules=tuple(_by_rule(scenario, samples, one) for one in IntervalRule),
        plateau=(
            _edge(scenario, "plateau from", low),
            _edge(scenario, "plateau to", high),
        ),
        **_best(scenario, samples, best=best, round_work=round_within(best, low, high)),
        today=today,
        checks=check_plan(scenario, work=work, budget=budget, first=first),
        curve=_curve(scenario, samples, work) if with_curve else (),
    )


def _best(
    scenario: Scenario, samples: Samples, *, best: float, round_work: float
) -> dict[str, Figure]:
    """The exact optimum, the round value beside it, and what that one is worth."""
    name, source = "round interval", "a round value of the plateau"
    return {
        "best_work": work_figure(scenario, samples, IntervalRule.EXACT, best),
        "round_work": share_figure(scenario, name, round_work, source=source, unit="us"),
        "round_useful": useful_figure(
            scenario, samples, round_work, name="useful fraction, round interval"
        ),
    }


def parts_of(scenario: Scenario) -> list[Figure]:
    """The inputs of the closed forms as figures."""
    return [scenario.figure(name) for name in PARTS]


def useful_figure(
    scenario: Scenario, samples: Samples, work: float, *, name: str = "useful fraction"
) -> Figure:
    """E at this τ, exact, with the interval of the sampled inputs at the same τ."""
    regime = scenario.regime()
    drawn = map_samples(scenario, samples, lambda s, values: efficiency(work, s.regime(values)))
    value = efficiency(work, regime)
    return combine(
        parts_of(scenario),
        lambda *_: value,
        name=name,
        unit="ratio",
        source=EXACT_SOURCE[regime.is_recovery_exposed],
        assumptions=ASSUMES,
        interval=_around(value, interval_from(drawn, samples)),
    )


def work_figure(scenario: Scenario, samples: Samples, rule: IntervalRule, work: float) -> Figure:
    """τ by this rule; its interval says where τ lies for the sampled inputs."""

    def chosen(s: Scenario, values: dict[str, float]) -> float:
        try:
            return choose_work(rule, s.regime(values))
        except Refused:
            return 0.0

    drawn = map_samples(scenario, samples, chosen)
    return combine(
        [scenario.figure("mtti"), scenario.figure("checkpoint_cost")],
        lambda *_: work,
        name="interval",
        unit="us",
        source=RULE_SOURCE[rule],
        assumptions=ASSUMES[:2],
        interval=_around(work, interval_from(drawn, samples)),
    )


def share_figure(
    scenario: Scenario, name: str, value: float, *, source: str = "", unit: str = "ratio"
) -> Figure:
    """A number of the exact formula without an interval of its own."""
    exposed = bool(scenario.value("recovery_exposed"))
    return combine(
        parts_of(scenario),
        lambda *_: value,
        name=name,
        unit=unit,
        source=source or EXACT_SOURCE[exposed],
        assumptions=ASSUMES,
    )


def round_within(best: float, low: float, high: float) -> float:
    """A duration that a person would write, within these bounds: the nearest to the best, else two digits of it."""
    second = 1e6
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90)
    hours = (2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 36, 48)
    candidates = [unit * step for unit in (1e-3 * second, second, 60 * second) for step in steps]
    candidates += [hour * 3600 * second for hour in hours]
    inside = [value for value in candidates if low <= value <= high]
    if inside:
        return min(inside, key=lambda value: abs(math.log(value / best)))
    digits = 10 ** (math.floor(math.log10(best)) - 1)
    return min(max(round(best / digits) * digits, low), high)


def _around(value: float, interval: Interval | None) -> Interval | None:
    """The sampled interval, widened to hold the value itself: quantiles of few draws can miss it by a hair."""
    if interval is None:
        return None
    return Interval(
        lo=min(value, interval.lo),
        hi=max(value, interval.hi),
        level=interval.level,
        method=interval.method,
    )


def _first_figure(scenario: Scenario, budget: Budget) -> tuple[Figure | None, str]:
    try:
        value = require_first_order(budget)
    except Refused as refused:
        return None, f"{refused.what}: {refused.found}"
    return share_figure(scenario, "useful fraction, first order", value, source=FIRST_SOURCE), ""


def _terms(scenario: Scenario, budget: Budget, source: str) -> dict[str, Figure]:
    return {
        name: share_figure(scenario, f"waste: {name}", getattr(budget, name), source=source)
        for name in TERMS
    }


def _by_rule(scenario: Scenario, samples: Samples, rule: IntervalRule) -> RuleResult:
    try:
        work = choose_work(rule, scenario.regime())
    except Refused as refused:
        return RuleResult(rule=rule, work=None, useful=None, refused=f"{refused.what}")
    return _at(scenario, samples, rule, work_figure(scenario, samples, rule, work))


def _at(scenario: Scenario, samples: Samples, rule: IntervalRule, work: Figure) -> RuleResult:
    assert work.value is not None
    useful = useful_figure(scenario, samples, float(work.value))
    return RuleResult(rule=rule, work=work, useful=useful)


def _edge(scenario: Scenario, name: str, value: float) -> Figure:
    source = "τ at which the exact useful fraction is 0.1 points below its best"
    return share_figure(scenario, name, value, source=source, unit="us")


def _curve(scenario: Scenario, samples: Samples, work: float) -> tuple[CurvePoint, ...]:
    """E over a factor of six around τ, evenly on a logarithmic axis."""
    regime = scenario.regime()
    drawn = [
        scenario.regime(samples.at(index)) for index in range(min(CURVE_SAMPLES, samples.count))
    ]
    points = []
    for index in range(CURVE_POINTS):
        at = work * 6 ** (2 * index / (CURVE_POINTS - 1) - 1)
        lo = hi = None
        if samples.varied:
            lo, hi = _ends([efficiency(at, one) for one in drawn])
        points.append(
            CurvePoint(
                work=at,
                useful=efficiency(at, regime),
                lo=lo,
                hi=hi,
                first_order=first_order(at, regime).useful,
            )
        )
    return tuple(points)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    tail = round(0.025 * (len(ordered) - 1))
    return ordered[tail], ordered[-1 - tail]
