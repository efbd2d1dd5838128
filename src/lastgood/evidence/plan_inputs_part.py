"""What a plan rests on, as tables: every input with kind, interval and source; Λ = Σλ; R(t)."""

from __future__ import annotations

import msgspec

from lastgood.base.figures import Figure, combine, format_value
from lastgood.base.units import US_PER_H, format_duration
from lastgood.budget.closed.regime import chance_of_no_stop
from lastgood.budget.plan import ASSUMES, Plan
from lastgood.budget.sampling import interval_from
from lastgood.budget.scenario import QUANTITIES, Scenario
from lastgood.evidence.report import Column, Section, Table

CHANCE_MIN = 5e-5
"""Smaller chances would print as zero."""


def inputs_part(plan: Plan) -> Section:
    """Every input that was given or has a default that matters here, with its kind and source."""
    scenario = plan.scenario
    needed = ("mtti", "checkpoint_cost", "detection", "recovery")
    names = [*needed]
    names += [name for name in QUANTITIES if name in scenario.given and name not in needed]
    rows = [_row(QUANTITIES[name].title, _figure(plan, name)) for name in names]
    table = Table(
        name="inputs",
        title="What the plan rests on",
        columns=(
            Column(title="input", is_number=False),
            Column(title="value"),
            Column(title="low"),
            Column(title="high"),
            Column(title="from", is_number=False),
        ),
        rows=tuple(rows),
        note="A value without a stated basis is assumed. An input without low and high is held fixed.",
    )
    tables = [table]
    if scenario.stops:
        tables.append(_stops_table(scenario))
    tables.append(_untouched_table(scenario))
    return Section(name="inputs", title="Inputs", tables=tuple(tables))


def _figure(plan: Plan, name: str) -> Figure:
    """The input; the joint mean of several domains gets the interval of its draws."""
    figure = plan.scenario.figure(name)
    if name != "mtti" or figure.interval is not None or not plan.scenario.stops:
        return figure
    drawn = interval_from(plan.samples.values["mtti"], plan.samples)
    return msgspec.structs.replace(figure, interval=drawn)


def _row(title: str, figure: Figure) -> tuple:
    interval = figure.interval
    if interval is None:
        return (title, figure, None, None, figure.source)
    ends = [
        format_value(msgspec.structs.replace(figure, value=end, interval=None))
        for end in (interval.lo, interval.hi)
    ]
    told = f"{figure.source}; {interval.level * 100:g} %, {interval.method}"
    return (title, figure, *ends, told)


def _stops_table(scenario: Scenario) -> Table:
    """Λ = Σλ: what each domain adds to the rate of the job."""
    total = sum(1 / float(f.value or 1) for f in scenario.stops.values())
    rows = []
    told_by: dict[str, list[str]] = {}
    for name, figure in scenario.stops.items():
        share = combine(
            [figure],
            lambda mean: 1 / mean / total,
            name=f"share of {name}",
            unit="ratio",
            source="λ of this domain over Λ",
        )
        title, value, low, high, told = _row(name, figure)
        rows.append((title, value, low, high, share))
        told_by.setdefault(told, []).append(title)
    return Table(
        name="stops",
        title="Λ = Σλ over the domains that stop the job",
        columns=(
            Column(title="domain", is_number=False),
            Column(title="mean time between its stops"),
            Column(title="low"),
            Column(title="high"),
            Column(title="share of Λ"),
        ),
        rows=tuple(rows),
        note=". ".join(f"{', '.join(names)}: {told}" for told, names in told_by.items()) + ".",
    )


def _untouched_table(scenario: Scenario) -> Table:
    """R(t): the chance that nothing stops the job for this long."""
    mean = scenario.figure("mtti")
    rows = tuple(
        (
            format_duration(t_us),
            combine(
                [mean],
                lambda value, t=t_us: chance_of_no_stop(t, mean_to_stop=value),
                name=f"chance of no stop in {format_duration(t_us)}",
                unit="ratio",
                source="exp(-t/M)",
                assumptions=ASSUMES[:1],
            ),
        )
        for t_us in (US_PER_H, 6 * US_PER_H, 24 * US_PER_H, 168 * US_PER_H)
        if chance_of_no_stop(t_us, mean_to_stop=float(mean.value or 1)) >= CHANCE_MIN
    )
    return Table(
        name="untouched",
        title="R(t): chance that nothing stops the job",
        columns=(Column(title="for", is_number=False), Column(title="chance")),
        rows=rows,
        is_folded=True,
    )
