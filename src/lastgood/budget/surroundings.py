"""What surrounds a plan: how many checkpoints to keep, how many spares to hold, what waiting in a queue costs."""

from __future__ import annotations

from lastgood.base.figures import Figure
from lastgood.budget.alternative import (
    FIRST_ORDER,
    TOO_WASTEFUL,
    Alternative,
    figure_from,
    missing_inputs,
    or_refused,
)
from lastgood.budget.closed.queueing import (
    Resubmission,
    best_work,
    expected_ettr,
    mean_to_stop_for,
)
from lastgood.budget.closed.retention import retained_for, retention_risk
from lastgood.budget.closed.spares import spare_pool
from lastgood.budget.scenario import Scenario

RISK_COUNTS_MAX = 60
KOKOLIS = "Kokolis and others 2024, with a queue"


def surroundings(scenario: Scenario, *, work: float) -> tuple[Alternative, ...]:
    """Return retention, spares and queue in this order, those without inputs included."""
    return (_retention(scenario, work), _spares(scenario), _queue(scenario))


def retention_curve(scenario: Scenario, *, work: float) -> list[tuple[int, float]]:
    """(kept checkpoints, risk per corruption) until the risk is far below what is wanted; empty without a latency."""
    if not scenario.has("detection_latency"):
        return []
    period = work + scenario.value("checkpoint_cost")
    latency, wanted = scenario.value("detection_latency"), scenario.value("retention_risk")
    points = []
    for count in range(1, RISK_COUNTS_MAX + 1):
        risk = retention_risk(count, period=period, mean_detection=latency)
        points.append((count, risk))
        if risk < wanted / 30 and count >= 4:
            break
    return points


def _retention(scenario: Scenario, work: float) -> Alternative:
    name, how = "retention", "keep enough checkpoints for late detection"
    absent = missing_inputs(scenario, name, how, "detection_latency")
    if absent:
        return absent
    period, latency = work + scenario.value("checkpoint_cost"), scenario.value("detection_latency")
    kept, wanted = int(scenario.value("retained_checkpoints")), scenario.value("retention_risk")

    def make() -> Alternative:
        need = retained_for(wanted, period=period, mean_detection=latency)
        risk = retention_risk(kept, period=period, mean_detection=latency)
        names = ("mtti", "checkpoint_cost", "detection_latency", "retained_checkpoints")
        source = "exp(-kT/μ) (exp(T/μ) - 1) μ/T"
        assumes = ("exponential detection latency", "corruption at any moment alike")
        return Alternative(
            name=name,
            how=f"keep {need} checkpoints for a risk of {wanted:g} per corruption",
            extra=(
                figure_from(
                    scenario, names, f"risk with {kept} kept", risk, "ratio", source, *assumes
                ),
                figure_from(scenario, names[:3], "checkpoints to keep", need, "", source, *assumes),
            ),
        )

    return or_refused(name, how, make)


def _spares(scenario: Scenario) -> Alternative:
    name, how = "spares", "a failed node finds a spare"
    absent = missing_inputs(scenario, name, how, "node_mtti", "refill")
    if absent:
        return absent

    def make() -> Alternative:
        pool = spare_pool(
            mean_to_stop=scenario.value("node_mtti"),
            refill=scenario.value("refill"),
            chance=scenario.value("spare_chance"),
            window=scenario.value("window"),
        )
        names = ("node_mtti", "refill", "spare_chance", "window")
        source = "Palm's theorem"
        assumes = ("nodes fail one by one", "refills do not wait for each other")

        def make_one(label: str, value: float, unit: str) -> Figure:
            return figure_from(scenario, names, label, value, unit, source, *assumes)

        return Alternative(
            name=name,
            how=f"{pool.spare_count} spares",
            extra=(
                make_one("spares", pool.spare_count, ""),
                make_one("p that a failure finds one", pool.chance, "ratio"),
                make_one("failures in the window that find none", pool.waits, ""),
                scenario.figure("refill"),
                scenario.figure("window"),
            ),
        )

    return or_refused(name, how, make)


def _queue(scenario: Scenario) -> Alternative:
    name, how = "queue", "every restart waits in the scheduler's queue"
    absent = missing_inputs(scenario, name, how, "queue")
    if absent:
        return absent
    costs = Resubmission(
        checkpoint=scenario.value("checkpoint_cost"),
        restart=scenario.value("detection") + scenario.value("recovery"),
        queue=scenario.value("queue"),
        scheduled=scenario.value("work") if scenario.has("work") else float("inf"),
    )
    mean = scenario.value("mtti")
    work = best_work(costs, mean_to_stop=mean)
    ettr = expected_ettr(work, costs, mean_to_stop=mean)
    if ettr <= 0:
        return Alternative(name=name, how=how, refused=TOO_WASTEFUL)
    names = ("mtti", "checkpoint_cost", "detection", "recovery", "queue")

    def make() -> Alternative:
        return Alternative(
            name=name,
            how=how,
            work=figure_from(scenario, names, "interval", work, "us", KOKOLIS, FIRST_ORDER),
            useful=figure_from(
                scenario, names, "expected ETTR", ettr, "ratio", KOKOLIS, FIRST_ORDER
            ),
            extra=_wanted(scenario, costs),
            note="counts the first wait too, over the job's work"
            if scenario.has("work")
            else "the first wait is left out",
        )

    return or_refused(name, how, make)


def _wanted(scenario: Scenario, costs: Resubmission) -> tuple[Figure, ...]:
    """The inverse: how rare interruptions have to be for the wanted ETTR."""
    if not scenario.has("ettr_wanted"):
        return ()
    wanted = scenario.value("ettr_wanted")
    names = ("checkpoint_cost", "detection", "recovery", "queue", "ettr_wanted")
    mean = mean_to_stop_for(wanted, costs)
    label = f"mean time to interruption for an ETTR of {wanted:g}"
    return (figure_from(scenario, names, label, mean, "us", KOKOLIS, FIRST_ORDER),)
