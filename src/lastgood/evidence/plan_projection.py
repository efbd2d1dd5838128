"""A projection as a section: the condition first, the number after it, and what the same arithmetic gave elsewhere."""

from __future__ import annotations

from lastgood.base.figures import Figure, FigureKind
from lastgood.base.units import format_duration, format_number
from lastgood.budget.projection import BackTest, Projection
from lastgood.evidence.report import Column, FigureRow, Headline, Note, Section, Table


def projection_section(projection: Projection) -> Section:
    """Everything that a projected mean time must not be shown without."""
    figure = projection.mean_time
    return Section(
        name="projection",
        title="Projection",
        headline=Headline(state="unknown", sentence=projection_sentence(projection)),
        figures=(
            FigureRow(
                label="Mean time between interruptions",
                figure=figure,
                note="a projection, never a promise",
            ),
            FigureRow(label="In the source window", figure=projection.source.mean_time),
            FigureRow(label="Extrapolation factor", figure=_factor(projection)),
        ),
        tables=(_back_tests(projection),) if projection.back_tests else (),
        notes=_notes(projection),
    )


def projection_sentence(projection: Projection) -> str:
    """The condition and the number in one sentence."""
    figure = projection.mean_time
    assert figure.value is not None
    sure = ""
    if figure.interval is not None:
        sure = f" ({format_duration(figure.interval.lo)} to {format_duration(figure.interval.hi)} from the count alone)"
    return (
        f"If {figure.condition}, {projection.devices:,.0f} devices are interrupted every "
        f"{format_duration(figure.value)}{sure} on average; observed: {projection.source.window}."
    )


def _factor(projection: Projection) -> Figure:
    """How far beyond the source, as a figure that carries the condition as well."""
    base = projection.mean_time
    return Figure(
        name="extrapolation factor",
        value=base.extrapolation,
        unit="times",
        kind=FigureKind.PROJECTED,
        kinds=base.kinds,
        source=f"{projection.devices:,.0f} devices against {projection.source.window}",
        condition=base.condition,
        source_window=base.source_window,
        extrapolation=base.extrapolation,
    )


def _back_tests(projection: Projection) -> Table:
    return Table(
        name="back_tests",
        title="Back-test: the same arithmetic where the answer is known",
        columns=(
            Column(title="devices", is_number=False),
            Column(title="projected"),
            Column(title="measured there"),
            Column(title="projected over measured"),
        ),
        rows=tuple(_row(test) for test in projection.back_tests),
        note=". ".join(
            test.sentence[:1].upper() + test.sentence[1:] for test in projection.back_tests
        )
        + ".",
    )


def _row(test: BackTest) -> tuple:
    return (f"{test.devices:,.0f}", test.projected, test.measured, test.ratio)


def _notes(projection: Projection) -> tuple[Note, ...]:
    notes = []
    if projection.no_back_test:
        notes.append(Note(text=f"No back-test: {projection.no_back_test}.", level="missing"))
    for test in projection.back_tests:
        value = float(test.ratio.value or 1)
        off = max(value, 1 / value)
        if off >= 2:
            notes.append(
                Note(
                    text=f"The back-test misses by a factor of {format_number(off)}: the condition does not hold inside "
                    "these records, so do not plan on this number.",
                    level="warning",
                )
            )
    notes.append(
        Note(
            text="The interval, where there is one, covers the count alone. Burn-in, ageing, common software and another "
            "network are not in it."
        )
    )
    return tuple(notes)
