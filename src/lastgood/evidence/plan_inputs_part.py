"""What a plan rests on, as tables: every input with kind, interval and source; Λ = Σλ; R(t)."""

from __future__ import annotations

from lastgood.base.figures import Figure, combine, format_interval
from lastgood.base.units import US_PER_H, format_duration
from lastgood.budget.closed.regime import chance_of_no_stop
from lastgood.budget.plan import ASSUMES
from lastgood.budget.scenario import QUANTITIES, Scenario
from lastgood.evidence.report import Column, Section, Table


def inputs_part(scenario: Scenario) -> Section:
    """Every input that was given or has a default that matters here, with its kind and source."""
    names = [n for n in QUANTITIES if n in scenario.given]
    names += [
        n for n in ("mtti", "checkpoint_cost", "detection", "recovery") if n not in scenario.given
    ]
    rows = [
        (
            QUANTITIES[n].title,
            scenario.figure(n),
            _interval_words(scenario.figure(n)),
            scenario.figure(n).source,
        )
        for n in names
    ]
    rows += [
        (f"stops: {name}", figure, _interval_words(figure), figure.source)
        for name, figure in scenario.stops.items()
    ]
    table = Table(
        name="inputs",
        title="What the plan rests on",
        columns=(
            Column(title="input", is_number=False),
            Column(title="value"),
            Column(title="interval", is_number=False),
            Column(title="source", is_number=False),
        ),
        rows=tuple(rows),
        note="A value without a stated basis is assumed. An input without an interval is held fixed.",
    )
    tables = [table]
    if len(scenario.stops) > 1:
        tables.append(_stops_table(scenario))
    tables.append(_untouched_table(scenario))
    return Section(name="inputs", title="Inputs", tables=tuple(tables))


def _stops_table(scenario: Scenario) -> Table:
    """Λ = Σλ: what each domain adds to the rate of the job."""
    total = sum(1 / float(f.value or 1) for f in scenario.stops.values())
    rows = []
    for name, figure in scenario.stops.items():
        share = combine(
            [figure],
            lambda mean: 1 / mean / total,
            name=f"share of {name}",
            unit="ratio",
            source="λ of this domain over Λ",
        )
        rows.append((name, figure, share))
    return Table(
        name="stops",
        title="Λ = Σλ over the domains that stop the job",
        columns=(
            Column(title="domain", is_number=False),
            Column(title="mean time between its stops"),
            Column(title="share of Λ"),
        ),
        rows=tuple(rows),
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
    )
    return Table(
        name="untouched",
        title="R(t): chance that nothing stops the job",
        columns=(Column(title="for", is_number=False), Column(title="chance")),
        rows=rows,
        is_folded=True,
    )


def _interval_words(figure: Figure) -> str | None:
    return format_interval(figure)
