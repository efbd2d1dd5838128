"""The wall time of a job that ends: its exact mean, and p50, p90 and p99 by simulation.

The mean is what the closed form gives; what a deadline needs is the tail. The simulation also does what no formula
here does: Weibull gaps, bursts, failed checkpoints, corruption found late.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lastgood.base.errors import Refused
from lastgood.base.figures import Figure, FigureKind, Interval, weakest
from lastgood.budget.closed.efficiency import finite_job
from lastgood.budget.montecarlo.engine import Engine
from lastgood.budget.montecarlo.model import JobModel
from lastgood.budget.montecarlo.replicate import LEVEL, Estimate, Runs, simulate
from lastgood.budget.plan import Plan, share_figure
from lastgood.budget.scenario import Scenario

QUANTILES = (0.5, 0.9, 0.99)
CURVE_POINTS = 160
MODELLED_INPUTS = (
    "mtti", "checkpoint_cost", "detection", "recovery", "work", "weibull_shape", "burst_chance", "burst_gap",
    "checkpoint_failure", "silent_mtti", "detection_latency", "retained_checkpoints",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FinitePlan:
    """How long the job takes on the wall."""

    runs: Runs
    mean_exact: Figure | None
    """By the closed form; None when the simulated world is one that it does not know."""
    mean: Figure
    quantiles: dict[float, Figure]
    useful: Figure
    """Useful work over mean wall time, simulated."""
    untouched: Figure
    """Chance that no failure strikes."""
    counts: dict[str, Figure]
    """Per job, on average: failures, failures during recovery, ..."""
    world: str
    """What is in the simulation beyond plain Poisson failures, in words."""
    curve: tuple[tuple[float, float], ...]
    """(wall time in microseconds, share of jobs that are done by then)."""


def job_model(scenario: Scenario, *, work: float) -> JobModel:
    """The simulated world of a scenario.

    Raises:
        Problems: `work` or a needed input is missing.
    """
    scenario.require(("mtti", "checkpoint_cost", "work"))
    has_silent = scenario.has("silent_mtti", "detection_latency")
    return JobModel(
        regime=scenario.regime(),
        work=work,
        total_work=scenario.value("work"),
        weibull_shape=scenario.value("weibull_shape"),
        burst_chance=scenario.value("burst_chance"),
        burst_gap=scenario.value("burst_gap"),
        checkpoint_failure_chance=scenario.value("checkpoint_failure"),
        mean_to_corruption=scenario.value("silent_mtti") if has_silent else math.inf,
        detection_latency=scenario.value("detection_latency") if has_silent else 0.0,
        retained_count=int(scenario.value("retained_checkpoints")),
    )


def plan_finite(
    plan: Plan,
    *,
    seed: int,
    count: int = 1_000,
    half_width: float | None = None,
    engine: Engine = Engine.AUTO,
    on_progress: Callable[[int, int], None] | None = None,
) -> FinitePlan:
    """Simulate the job at the plan's τ.

    Raises:
        Problems: the amount of work is not given.
        Refused: the job makes so little progress that it does not end.
    """
    scenario = plan.scenario
    model = job_model(scenario, work=plan.tau)
    runs = simulate(
        model,
        seed=seed,
        scenario=scenario.name,
        count=count,
        half_width=half_width,
        engine=engine,
        on_progress=on_progress,
    )
    make = _Maker(scenario, runs)
    mean_exact, untouched = _exact(plan, model)
    return FinitePlan(
        runs=runs,
        mean_exact=mean_exact,
        mean=make.figure("wall time, mean", runs.mean(), "us", "normal"),
        quantiles={
            share: make.figure(
                f"wall time, p{100 * share:g}", runs.quantile(share), "us", "order statistics"
            )
            for share in QUANTILES
        },
        useful=make.figure("useful fraction", runs.useful_share(), "ratio", "normal"),
        untouched=untouched,
        counts={
            name: make.figure(f"{name} per job", Estimate(total / runs.count, None, None), "", "")
            for name, total in runs.counts.items()
        },
        world=world_in_words(model),
        curve=_curve(runs),
    )


def world_in_words(model: JobModel) -> str:
    """What the simulated world holds, so that nobody takes it for another."""
    exposed = "exposed to failure" if model.regime.is_recovery_exposed else "free of failure"
    parts = [f"recovery {exposed}"]
    if model.weibull_shape != 1:
        parts.append(f"Weibull gaps of shape {model.weibull_shape:g} with the same mean")
    if model.burst_chance:
        parts.append(f"{100 * model.burst_chance:g} % of failures followed by another soon")
    if model.checkpoint_failure_chance:
        parts.append(f"{100 * model.checkpoint_failure_chance:g} % of checkpoints fail")
    if math.isfinite(model.mean_to_corruption):
        parts.append(f"silent corruption found late, {model.retained_count} checkpoints kept")
    if len(parts) == 1:
        parts.insert(0, "Poisson failures")
    return ", ".join(parts)


class _Maker:
    """Makes simulated figures that keep the kinds of their inputs."""

    def __init__(self, scenario: Scenario, runs: Runs) -> None:
        inputs = [scenario.figure(name) for name in MODELLED_INPUTS]
        kinds = [kind for one in inputs if one.value is not None for kind in one.kinds]
        self.kinds = tuple(dict.fromkeys((*kinds, FigureKind.SIMULATED)))
        self.runs = runs

    def figure(self, name: str, estimate: Estimate, unit: str, method: str) -> Figure:
        value, lo, hi = estimate
        interval = None
        if lo is not None and hi is not None:
            interval = Interval(lo=min(lo, value), hi=max(hi, value), level=LEVEL, method=method)
        return Figure(
            name=name,
            value=value,
            unit=unit,
            kind=weakest(self.kinds),
            kinds=self.kinds,
            interval=interval,
            n=self.runs.count,
            assumptions=("the inputs at their values; their uncertainty is not in it",),
            source=f"Monte Carlo, seed {self.runs.seed}",
        )


def _exact(plan: Plan, model: JobModel) -> tuple[Figure | None, Figure]:
    """The closed mean where the world is one that it knows, and the chance of no failure."""
    try:
        job = finite_job(model.total_work, work=plan.tau, regime=model.regime)
        wall, untouched = job.wall, job.chance_untouched
    except Refused:
        wall, untouched = math.inf, 0.0
    is_plain = (
        model.weibull_shape == 1
        and not model.burst_chance
        and not model.checkpoint_failure_chance
        and math.isinf(model.mean_to_corruption)
    )
    mean = None
    if is_plain and math.isfinite(wall):
        mean = share_figure(plan.scenario, "wall time, mean, exact", wall, unit="us")
    source = "exp(-time at risk / M)"
    return mean, share_figure(plan.scenario, "chance of no failure", untouched, source=source)


def _curve(runs: Runs) -> tuple[tuple[float, float], ...]:
    import numpy as np

    shares = np.linspace(0, 1, min(CURVE_POINTS, runs.count))
    places = np.maximum(0, np.ceil(shares * runs.count).astype(int) - 1)
    walls: Any = runs.wall[places]
    return tuple((float(w), float(p)) for w, p in zip(walls, shares, strict=True))
