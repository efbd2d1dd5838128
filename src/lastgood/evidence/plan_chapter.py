"""The source chapter's numbers: as printed, computed again, and beside them what the exact formulas give."""

from __future__ import annotations

from lastgood.base.figures import Figure, FigureKind
from lastgood.base.units import US_PER_H, US_PER_MIN
from lastgood.budget.closed.interval import IntervalRule
from lastgood.budget.published.chapter import Chapter
from lastgood.evidence.report import Column, Note, Section, Table

PERCENT = "%"


def chapter_section(chapter: Chapter) -> Section:
    """Four printed numbers, recomputed and exact."""
    facts, plan, printed = chapter.facts, chapter.plan, chapter.facts.printed
    by_rule = {one.rule: one for one in plan.rules}
    young, exact = by_rule[IntervalRule.YOUNG], by_rule[IntervalRule.EXACT]
    mean = plan.scenario.figure("mtti")
    first = _first_at_young(chapter)
    rows = (
        ("mean time between interruptions, h", _printed(chapter, "mean", printed.mean_hours, "h"), _in(mean, US_PER_H, "h"), None),
        ("interval τ, min", _printed(chapter, "interval", printed.young_minutes, "min"), _in(young.work, US_PER_MIN, "min"), _in(exact.work, US_PER_MIN, "min")),
        ("useful fraction, %", _printed(chapter, "useful", printed.useful_percent, PERCENT), _in(first, 0.01, PERCENT), _in(exact.useful, 0.01, PERCENT)),
        (f"interval at {facts.projected_devices:,} devices, min", _printed(chapter, "projected", printed.projected_minutes, "min"), _in(chapter.projection.mean_time, US_PER_MIN, "min"), None),
    )  # fmt: skip
    return Section(
        name="chapter",
        title=facts.title,
        lead=f"From {facts.events} interruptions in {facts.window_days} days on up to {facts.devices:,} devices; costs of "
        "one minute each are illustrative.",
        tables=(
            Table(
                name="numbers",
                title="Printed, computed again, and exact",
                columns=(
                    Column(title="number", is_number=False),
                    Column(title="printed"),
                    Column(title="recomputed"),
                    Column(title="exact"),
                ),
                rows=tuple(rows),
                note="The printed interval and useful fraction are first-order; exact is the best interval by Lambert's W "
                "and the renewal formula with recovery exposed to failure.",
            ),
        ),
        notes=_notes(chapter),
    )


def _notes(chapter: Chapter) -> tuple[Note, ...]:
    figure = chapter.projection.mean_time
    exact = next(one for one in chapter.plan.rules if one.rule is IntervalRule.EXACT).useful
    young = next(one for one in chapter.plan.rules if one.rule is IntervalRule.YOUNG).useful
    assert exact is not None
    assert exact.value is not None
    assert young is not None
    assert young.value is not None
    first = float(_first_at_young(chapter).value or 0)
    work, value = _value_of(chapter, IntervalRule.EXACT) / US_PER_MIN, 100 * exact.value
    return (
        Note(
            text=f"Exact: checkpoint after {work:.2f} min of work, {value:.2f} % of wall time is useful. First order: "
            f"{_value_of(chapter, IntervalRule.YOUNG) / US_PER_MIN:.2f} min and {100 * first:.2f} %."
        ),
        Note(
            text=f"The first order is {100 * (exact.value - first):.2f} points too low. Young's interval instead of the exact "
            f"one costs {100 * (exact.value - young.value):.3f} points."
        ),
        Note(
            text=f"The last row is a projection: if {figure.condition}; observed {figure.source_window}; "
            f"extrapolated {figure.extrapolation:.1f} times. No back-test: {chapter.projection.no_back_test}.",
            level="warning",
        ),
        Note(
            text="The source does not say that all devices were at risk for the whole window; that exposure is an assumption."
        ),
    )


def _value_of(chapter: Chapter, rule: IntervalRule) -> float:
    """τ by this rule, in microseconds."""
    work = next(one for one in chapter.plan.rules if one.rule is rule).work
    assert work is not None
    return float(work.value or 0)


def _first_at_young(chapter: Chapter) -> Figure:
    """The first-order useful fraction at Young's interval, as the chapter computes it."""
    from lastgood.base.figures import combine
    from lastgood.budget.closed.efficiency import first_order
    from lastgood.budget.closed.interval import young
    from lastgood.budget.plan import ASSUMES, FIRST_SOURCE, parts_of

    regime = chapter.plan.scenario.regime()
    value = first_order(young(regime), regime).useful
    return combine(
        parts_of(chapter.plan.scenario),
        lambda *_: value,
        name="useful fraction, first order at Young's interval",
        unit="ratio",
        source=FIRST_SOURCE,
        assumptions=ASSUMES,
    )


def _printed(chapter: Chapter, name: str, text: str, unit: str) -> Figure:
    return Figure(
        name=f"{name}, printed",
        value=float(text),
        unit=unit,
        kind=FigureKind.REPORTED,
        source=chapter.facts.source,
    )


def _in(figure: Figure | None, scale: float, unit: str) -> Figure | None:
    """The same number in the unit of its row, rounded as far as a reader can use."""
    import msgspec

    if figure is None or figure.value is None:
        return None
    return msgspec.structs.replace(
        figure, value=round(figure.value / scale, 4), unit=unit, interval=None
    )
