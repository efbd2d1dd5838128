"""The wall time of a job that ends, as a section: mean, quantiles with intervals, and what happened on the way."""

from __future__ import annotations

import msgspec

from lastgood.base.figures import Figure, combine
from lastgood.base.units import format_duration
from lastgood.budget.plan import Plan
from lastgood.budget.plan_finite import FinitePlan
from lastgood.evidence.plan_pictures import scale_for
from lastgood.evidence.report import Column, FigureRow, Note, Section, Table

CHANCE_MIN = 5e-5
"""Smaller chances would print as zero."""


def finite_part(plan: Plan, finite: FinitePlan) -> Section:
    """Mean and tail of the wall time, the useful share, and the events of an average job."""
    rows = [FigureRow(label="Useful fraction, simulated", figure=finite.useful)]
    if float(finite.untouched.value or 0) >= CHANCE_MIN:
        rows.append(FigureRow(label="Chance that nothing fails", figure=finite.untouched))
    counts = tuple((name, figure) for name, figure in finite.counts.items() if figure.value)
    notes = [
        Note(
            text=f"Simulated world: {finite.world}. Seed {finite.runs.seed}, {finite.runs.count:,} jobs."
        )
    ]
    if finite.runs.is_narrow is False:
        notes.append(
            Note(text="The interval of p90 is still wider than asked for.", level="warning")
        )
    elif finite.runs.is_narrow:
        notes.append(
            Note(
                text="Stopped as soon as the interval of p90 was narrow enough, which makes it slightly too narrow."
            )
        )
    if any(figure.interval is None for figure in finite.quantiles.values()):
        notes.append(
            Note(
                text="Too few jobs for an interval around every quantile: use more --jobs.",
                level="missing",
            )
        )
    counted = Table(
        name="per_job",
        title="Per job, on average",
        columns=(Column(title="what", is_number=False), Column(title="count")),
        rows=counts,
    )
    work = format_duration(plan.scenario.value("work"))
    return Section(
        name="finite",
        title=f"A job of {work} of useful work",
        figures=tuple(rows),
        tables=(_wall_table(plan, finite), counted),
        notes=tuple(notes),
    )


def _wall_table(plan: Plan, finite: FinitePlan) -> Table:
    """Mean and quantiles of the wall time, in the unit of the job."""
    _, unit = scale_for(float(finite.mean.value or 0), at_least=20)
    work = plan.scenario.figure("work")
    named = [("mean, exact", finite.mean_exact)] if finite.mean_exact else []
    named.append(("mean, simulated", finite.mean))
    named += [(f"p{100 * share:g}", figure) for share, figure in finite.quantiles.items()]
    rows = tuple(
        (
            name,
            figure,
            _end(figure, is_low=True),
            _end(figure, is_low=False),
            _stretch(figure, work),
        )
        for name, figure in named
    )
    return Table(
        name="wall",
        title="Wall time until the last checkpoint",
        columns=(
            Column(title="of the jobs", is_number=False),
            Column(title="wall time", unit=unit),
            Column(title="low", unit=unit),
            Column(title="high", unit=unit),
            Column(title="over the work"),
        ),
        rows=rows,
        note="Low and high are 95 % intervals of the simulation; the uncertainty of the inputs is not in them.",
    )


def _end(figure: Figure, *, is_low: bool) -> Figure | None:
    """One end of an interval as a figure of the same kind."""
    if figure.interval is None:
        return None
    end = figure.interval.lo if is_low else figure.interval.hi
    return msgspec.structs.replace(figure, value=end, interval=None)


def _stretch(figure: Figure, work: Figure) -> Figure:
    """Wall time over useful work."""
    return combine(
        [figure, work],
        lambda wall, useful: wall / useful,
        name=f"{figure.name}, over the work",
        unit="ratio",
        source=figure.source,
    )
