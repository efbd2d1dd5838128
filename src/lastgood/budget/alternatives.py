"""Other ways to checkpoint: each computed when its inputs are given, each with its limits.

All of these are first-order formulas, so they are compared with the first-order value of the plain plan and never with
its exact one. Where the inputs are missing the name of what to give stands in their place.
"""

from __future__ import annotations

from lastgood.base.figures import Figure, combine
from lastgood.budget.alternative import (
    FIRST_ORDER,
    TOO_WASTEFUL,
    Alternative,
    figure_from,
    missing_inputs,
    or_refused,
)
from lastgood.budget.closed.asynchronous import Snapshot, snapshot_waste, snapshot_work
from lastgood.budget.closed.efficiency import first_order
from lastgood.budget.closed.interval import young
from lastgood.budget.closed.multilevel import Level, best_levels
from lastgood.budget.closed.placement import (
    adjacent_groups,
    domain_survival,
    neighbour_domains,
    random_loss_survival,
    spread_groups,
)
from lastgood.budget.closed.silent import SilentErrors, best_pattern
from lastgood.budget.scenario import Scenario

INPUTS = ("mtti", "checkpoint_cost", "detection", "recovery")


def alternatives(scenario: Scenario) -> tuple[Alternative, ...]:
    """Every way in a fixed order, the plain one first, those without inputs included."""
    return (
        _plain(scenario),
        _levels(scenario),
        _asynchronous(scenario),
        _verified(scenario),
        _peers(scenario),
    )


def _plain(scenario: Scenario) -> Alternative:
    regime = scenario.regime()
    budget = first_order(young(regime), regime)
    how = "blocking checkpoints, one kind"
    if budget.waste >= 1:
        return Alternative(name="plain", how=how, refused=TOO_WASTEFUL)
    names = ("mtti", "checkpoint_cost", "detection", "recovery")
    return Alternative(
        name="plain",
        how=how,
        work=figure_from(
            scenario, names[:2], "interval", young(regime), "us", "Young 1974", FIRST_ORDER
        ),
        useful=figure_from(
            scenario, names, "useful fraction", budget.useful, "ratio", "Young 1974", FIRST_ORDER
        ),
        note="the baseline of the rows below, which are first-order too",
    )


def _levels(scenario: Scenario) -> Alternative:
    name, how = "multi-level", "cheap checkpoints often, dear ones rarely"
    if not scenario.levels:
        return Alternative(name=name, how=how, missing=("levels (in a scenario file)",))
    parts = [
        f for level in scenario.levels for f in (level.mtti, level.checkpoint_cost, level.recovery)
    ]

    def make() -> Alternative:
        levels = [
            Level(
                name=level.name,
                mean_to_stop=float(level.mtti.value or 0),
                checkpoint=float(level.checkpoint_cost.value or 0),
                recovery=float(level.recovery.value or 0),
            )
            for level in scenario.levels
        ]
        best = best_levels(levels)
        detection = scenario.value("detection") * sum(1 / level.mean_to_stop for level in levels)
        source = "Benoit and others, IEEE TC 2017"
        figures = [
            combine(
                parts,
                lambda *_, v=value: v,
                name=label,
                unit=unit,
                source=source,
                assumptions=(FIRST_ORDER,),
            )
            for label, value, unit in (
                ("interval of the first level", best.nested_work, "us"),
                ("useful fraction", 1 - best.waste - detection, "ratio"),
            )
        ]
        counts = ", ".join(map(str, best.ratios))
        left_out = [level.name for level in levels if level.name not in best.levels]
        return Alternative(
            name=name,
            how=f"{' + '.join(best.levels)}" + (f", every {counts}" if counts else ""),
            work=figures[0],
            useful=figures[1],
            note=f"not worth having: {', '.join(left_out)}"
            if left_out
            else "every level is worth having",
        )

    return or_refused(name, how, make)


def _asynchronous(scenario: Scenario) -> Alternative:
    name, how = "asynchronous", "copy, go on, persist in the background"
    absent = missing_inputs(scenario, name, how, "snapshot_copy", "snapshot_persist")
    if absent:
        return absent
    regime = scenario.regime()
    snapshot = Snapshot(
        copy=scenario.value("snapshot_copy"),
        persist=scenario.value("snapshot_persist"),
        slowdown=scenario.value("snapshot_slowdown"),
    )
    work = snapshot_work(snapshot, mean_to_stop=regime.mean_to_stop)
    waste = snapshot_waste(work, snapshot, regime) if work > 0 else 1.0
    if waste >= 1:
        return Alternative(name=name, how=how, refused=TOO_WASTEFUL)
    names = (
        "mtti",
        "detection",
        "recovery",
        "snapshot_copy",
        "snapshot_persist",
        "snapshot_slowdown",
    )
    assumes = (FIRST_ORDER, "one snapshot on its way at a time")
    return Alternative(
        name=name,
        how=how,
        work=figure_from(
            scenario, names, "interval", work, "us", "max(P, sqrt(2(s + aP)M))", *assumes
        ),
        useful=figure_from(
            scenario,
            names,
            "useful fraction",
            1 - waste,
            "ratio",
            "first-order snapshot budget",
            *assumes,
        ),
        note="a failure also loses the time that persisting takes",
    )


def _verified(scenario: Scenario) -> Alternative:
    name, how = "verified pattern", "verify several times, then checkpoint"
    absent = missing_inputs(scenario, name, how, "silent_mtti", "verification_cost")
    if absent:
        return absent
    errors = SilentErrors(
        mean_to_stop=scenario.value("mtti"),
        mean_to_corruption=scenario.value("silent_mtti"),
        checkpoint=scenario.value("checkpoint_cost"),
        verification=scenario.value("verification_cost"),
    )
    best = best_pattern(errors)
    down = scenario.value("detection") + scenario.value("recovery")
    waste = (
        best.overhead
        + down / errors.mean_to_stop
        + scenario.value("recovery") / errors.mean_to_corruption
    )
    if waste >= 1:
        return Alternative(name=name, how=how, refused=TOO_WASTEFUL)
    names = ("mtti", "checkpoint_cost", "silent_mtti", "verification_cost", "detection", "recovery")
    source = "Benoit, Cavelan, Robert, Sun, IPDPS 2016"
    assumes = (FIRST_ORDER, "a verification finds every corruption")
    return Alternative(
        name=name,
        how=f"{best.segment_count} verified segment{'s' if best.segment_count > 1 else ''} per checkpoint",
        work=figure_from(
            scenario, names[:4], "work per pattern", best.work, "us", source, *assumes
        ),
        useful=figure_from(
            scenario, names, "useful fraction", 1 - waste, "ratio", source, *assumes
        ),
        note="pays for silent errors too, which the plain plan leaves out",
    )


def _peers(scenario: Scenario) -> Alternative:
    name, how = "copies at peers", "copy to the memory of peers, durable checkpoints rarely"
    absent = missing_inputs(scenario, name, how, "machines", "peer_copy_cost")
    if absent:
        return absent
    survival, note = _copies_survive(scenario)
    chance = float(survival.value or 0)

    def make() -> Alternative:
        regime = scenario.regime()
        best = best_levels(_peer_levels(scenario, chance))
        waste = best.waste + regime.detection / regime.mean_to_stop
        parts = [
            survival,
            *(scenario.figure(one) for one in (*INPUTS, "peer_copy_cost", "peer_recovery")),
        ]
        figures = [
            combine(
                [part for part in parts if part.value is not None],
                lambda *_, v=value: v,
                name=label,
                unit=unit,
                source="two levels; placement after Wang and others, SOSP 2023",
                assumptions=(FIRST_ORDER,),
            )
            for label, value, unit in (
                ("interval of the first level", best.nested_work, "us"),
                ("useful fraction", 1 - waste, "ratio"),
            )
        ]
        only_durable = "durable checkpoints only: copies at peers do not pay here"
        return Alternative(
            name=name,
            how=how if len(best.levels) > 1 else only_durable,
            work=figures[0],
            useful=figures[1],
            extra=(survival,),
            note=note,
        )

    return or_refused(name, how, make)


def _copies_survive(scenario: Scenario) -> tuple[Figure, str]:
    """The chance that a copy of everything is left after the loss that is meant, and that loss in words."""
    machines, copies = int(scenario.value("machines")), int(scenario.value("copies"))
    groups = spread_groups(machine_count=machines, copy_count=copies)
    names = ["machines", "copies"]
    if scenario.has("evicted_together"):
        size = int(scenario.value("evicted_together"))
        domains = neighbour_domains(machine_count=machines, domain_machine_count=size)
        # One more machine at random only when somebody asks for it: the default speaks of losses without a domain.
        more = (
            int(scenario.value("simultaneous_losses"))
            if "simultaneous_losses" in scenario.given
            else 0
        )
        chance = domain_survival(groups, domains, extra_loss_count=more).mean
        beside = adjacent_groups(machine_count=machines, copy_count=copies)
        close = domain_survival(beside, domains, extra_loss_count=more).mean
        besides = f" and {more} more at random" if more else ""
        note = f"a whole fault domain of {size}{besides} lost or evicted: copies far apart survive {chance:.3f}, neighbours {close:.3f}"
        names += ["evicted_together", *(["simultaneous_losses"] if more else [])]
    else:
        losses = min(machines, int(scenario.value("simultaneous_losses")))
        chance = random_loss_survival(groups, loss_count=losses)
        note = f"{losses} machine{'s' if losses > 1 else ''} lost at random; correlated losses need evicted_together"
        names.append("simultaneous_losses")
    source = "exact count of losses"
    figure = figure_from(
        scenario, names, "copies survive", chance, "ratio", source, "this kind of loss only"
    )
    return figure, note


def _peer_levels(scenario: Scenario, chance: float) -> list[Level]:
    """Failures that peers can mend, where there are any, and those that need a durable checkpoint."""
    regime = scenario.regime()
    recovery = scenario.figure("peer_recovery").value
    durable = Level(
        name="durable",
        mean_to_stop=regime.mean_to_stop / max(1e-9, 1 - chance),
        checkpoint=regime.checkpoint,
        recovery=regime.recovery,
    )
    if not chance:
        return [durable]
    peers = Level(
        name="peers",
        mean_to_stop=regime.mean_to_stop / chance,
        checkpoint=scenario.value("peer_copy_cost"),
        recovery=regime.recovery if recovery is None else float(recovery),
    )
    return [peers, durable]
