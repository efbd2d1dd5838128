"""What must hold for a plan to mean anything, and whether it does: held, not held, or unknown.

Nothing here is fixed by more digits. A plan from typed numbers alone leaves most of these unknown, and unknown is never
good.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.base.figures import FigureKind
from lastgood.base.units import format_number
from lastgood.budget.closed.efficiency import FLAG_WASTE, Budget
from lastgood.budget.scenario import Scenario

PRESSURE_MAX = 0.25
"""(D + R)/M above this: failures during recovery shape the result."""
HELD, NOT_HELD, UNKNOWN = "held", "not_held", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCheck:
    """One condition."""

    question: str
    state: str
    detail: str


def check_plan(
    scenario: Scenario, *, work: float, budget: Budget, first: Budget
) -> tuple[PlanCheck, ...]:
    """Every condition of the closed forms for this plan."""
    return (
        _first_order(first, budget),
        _checkpoint_fits(scenario),
        _recovery_pressure(scenario),
        _inputs(scenario),
        _poisson(scenario),
        _writes(scenario),
        _silent(scenario, work=work),
    )


def _first_order(first: Budget, exact: Budget) -> PlanCheck:
    gap = 100 * (exact.useful - first.useful)
    is_small = first.waste <= FLAG_WASTE
    return PlanCheck(
        question="first order usable",
        state=HELD if is_small else NOT_HELD,
        detail=f"its waste is {100 * first.waste:.1f} % (limit 15 %); it differs from the exact value by "
        f"{format_number(abs(gap))} points",
    )


def _checkpoint_fits(scenario: Scenario) -> PlanCheck:
    ratio = scenario.value("checkpoint_cost") / scenario.value("mtti")
    return PlanCheck(
        question="checkpoint well below M",
        state=HELD if ratio < 0.5 else NOT_HELD,
        detail=f"C/M is {format_number(ratio)} (limit 0.5)",
    )


def _recovery_pressure(scenario: Scenario) -> PlanCheck:
    pressure = (scenario.value("detection") + scenario.value("recovery")) / scenario.value("mtti")
    form = (
        "recovery is exposed to failure"
        if scenario.value("recovery_exposed")
        else "failures during recovery are taken to be absorbed"
    )
    return PlanCheck(
        question="recovery well below M",
        state=HELD if pressure <= PRESSURE_MAX else NOT_HELD,
        detail=f"(D + R)/M is {format_number(pressure)} (limit {PRESSURE_MAX}); {form}",
    )


def _inputs(scenario: Scenario) -> PlanCheck:
    names = [
        name
        for name in ("mtti", "checkpoint_cost", "detection", "recovery")
        if FigureKind.ASSUMED in scenario.figure(name).kinds
    ]
    if not names:
        return PlanCheck(question="inputs come from records", state=HELD, detail="none is assumed")
    return PlanCheck(
        question="inputs come from records",
        state=NOT_HELD,
        detail=f"assumed: {', '.join(names)}",
    )


def _poisson(scenario: Scenario) -> PlanCheck:
    question = "interruptions are Poisson"
    for note in scenario.notes:
        if note.startswith("dispersion: "):
            is_held = note.startswith("dispersion: held")
            return PlanCheck(
                question=question,
                state=HELD if is_held else NOT_HELD,
                detail=note.partition(": ")[2].partition(", ")[2],
            )
    return PlanCheck(
        question=question,
        state=UNKNOWN,
        detail="not tested: no ledger was given. With a measured mean, τ hardly depends on it; the tail does",
    )


def _writes(scenario: Scenario) -> PlanCheck:
    chance = scenario.value("checkpoint_failure")
    return PlanCheck(
        question="checkpoints never fail",
        state=NOT_HELD if chance else UNKNOWN,
        detail=f"{100 * chance:g} % fail; only the simulation accounts for it"
        if chance
        else "not recorded; give checkpoint_failure",
    )


def _silent(scenario: Scenario, *, work: float) -> PlanCheck:
    question = "no silent corruption"
    if not scenario.has("silent_mtti"):
        return PlanCheck(
            question=question, state=UNKNOWN, detail="not part of this plan; give silent_mtti"
        )
    share = work / scenario.value("silent_mtti")
    return PlanCheck(
        question=question,
        state=NOT_HELD,
        detail=f"{format_number(share)} corruptions per interval; see the verified pattern and the retention risk",
    )
