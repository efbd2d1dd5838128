"""A plan as a section of a report: the answer, what it rests on, where the time goes, and what else could be done."""

from __future__ import annotations

from lastgood.base.figures import Figure, combine
from lastgood.base.units import format_duration
from lastgood.budget.alternatives import alternatives
from lastgood.budget.closed.regime import expected_lost
from lastgood.budget.plan import ASSUMES, TERMS, Plan, parts_of, share_figure
from lastgood.budget.plan_finite import FinitePlan
from lastgood.budget.surroundings import surroundings
from lastgood.budget.unused import unused_sentence
from lastgood.budget.whatif import tornado
from lastgood.evidence.plan_finite_part import finite_part
from lastgood.evidence.plan_inputs_part import inputs_part
from lastgood.evidence.plan_other_part import as_sentence, other_part
from lastgood.evidence.plan_pictures import plan_charts
from lastgood.evidence.report import (
    Check,
    Column,
    FigureRow,
    Headline,
    Note,
    Section,
    Table,
)

TERM_WORDS = {
    "checkpoint": "writing checkpoints",
    "rework": "work done again",
    "detection": "detection and diagnosis",
    "recovery": "recovery",
}
DISPERSION = "dispersion: "
"""A note that the checks already tell."""
INTERVAL_NOTE = (
    "The interval comes from the intervals of the inputs alone. It does not cover what the model leaves out: "
    "see the checks."
)


def plan_section(plan: Plan, finite: FinitePlan | None = None) -> Section:
    """Everything about one plan."""
    return Section(
        name="plan",
        title="Checkpoint plan",
        headline=Headline(state="unknown", sentence=headline_sentence(plan), checks=_checks(plan)),
        figures=_key_rows(plan),
        notes=_notes(plan),
        parts=tuple(
            part
            for part in (
                inputs_part(plan),
                _interval_part(plan, finite),
                finite_part(plan, finite) if finite else None,
                other_part(
                    "alternatives",
                    "Other ways to checkpoint",
                    alternatives(plan.scenario),
                    "First-order formulas all of them: compare them with the first row, never with the exact value.",
                ),
                other_part(
                    "surroundings",
                    "Around the plan",
                    surroundings(plan.scenario, work=plan.tau),
                    "How many checkpoints to keep, how many spares to hold, what waiting in a queue costs.",
                ),
            )
            if part is not None
        ),
    )


def headline_sentence(plan: Plan) -> str:
    """The answer in one sentence."""
    useful = plan.round_useful
    interval = useful.interval
    sure = f"; {_percent(interval.lo)} to {_percent(interval.hi)}" if interval else ""
    low, high = (_duration(edge) for edge in plan.plateau)
    about, optimum = (
        ("about ", f"optimum {_duration(plan.best_work)}; ") if _is_rounded(plan) else ("", "")
    )
    return (
        f"Checkpoint {about}every {_duration(plan.round_work)} of work ({optimum}{low} to {high} are as good): "
        f"at best {_percent(useful.value)} of wall time is then useful ({useful.kind}{sure})."
    )


def _is_rounded(plan: Plan) -> bool:
    """True when the round interval reads differently from the optimum."""
    return _duration(plan.round_work) != _duration(plan.best_work)


def _percent(value: float | None) -> str:
    return "not observed" if value is None else f"{100 * value:.2f} %"


def _duration(figure: Figure) -> str:
    return format_duration(float(figure.value or 0))


def _checks(plan: Plan) -> tuple[Check, ...]:
    return tuple(
        Check(question=one.question, state=one.state, detail=one.detail) for one in plan.checks
    )


def _key_rows(plan: Plan) -> tuple[FigureRow, ...]:
    rows = [
        FigureRow(label="Interval τ, work between checkpoints", figure=plan.work, is_key=True),
        FigureRow(label="Useful fraction E, exact", figure=plan.useful, is_key=True),
    ]
    if _is_rounded(plan):
        label = f"The same at {_duration(plan.round_work)}"
        rows.append(FigureRow(label=label, figure=plan.round_useful, is_key=True))
    if plan.first is not None:
        flag = "above 15 % waste: do not use" if plan.is_first_flagged else "waste is below 15 %"
        rows.append(
            FigureRow(
                label="The same in the first order", figure=plan.first, note=flag, is_key=True
            )
        )
    if plan.today is not None and plan.today.useful is not None and plan.today.work is not None:
        rows += [
            FigureRow(label="Interval in use", figure=plan.today.work, is_key=True),
            FigureRow(label="E at the interval in use", figure=plan.today.useful, is_key=True),
        ]
    return tuple(rows)


def _notes(plan: Plan) -> tuple[Note, ...]:
    low, high = (_duration(edge) for edge in plan.plateau)
    notes = [
        Note(
            text=f"Any interval from {low} to {high} is within 0.1 points of the best: the choice of the formula "
            "for τ matters less than the inputs."
        )
    ]
    if plan.first is None:
        notes.append(Note(text=f"First order refused: {plan.first_refused}.", level="warning"))
    elif plan.is_first_flagged:
        notes.append(
            Note(
                text="The first-order waste is above 15 %: its error is a point and more.",
                level="warning",
            )
        )
    if plan.samples.varied:
        notes.append(Note(text=INTERVAL_NOTE))
    else:
        notes.append(
            Note(text="No input has an interval, so the result has none either.", level="missing")
        )
    if plan.useful.condition:
        notes.append(
            Note(
                text=f"The rate was carried to another size: it holds if {plan.useful.condition}; observed "
                f"{plan.useful.source_window}; extrapolated {plan.useful.extrapolation:.3g} times.",
                level="warning",
            )
        )
    if unused := unused_sentence(plan.scenario):
        notes.append(Note(text=unused, level="missing"))
    notes += [
        Note(text=as_sentence(note))
        for note in plan.scenario.notes
        if not note.startswith(DISPERSION)
    ]
    return tuple(notes)


def _interval_part(plan: Plan, finite: FinitePlan | None) -> Section:
    rules = Table(
        name="rules",
        title="The interval by each formula",
        columns=(
            Column(title="formula", is_number=False),
            Column(title="τ"),
            Column(title="E at it, exact"),
        ),
        rows=tuple(
            (one.rule.value, one.work or f"refused: {one.refused}", one.useful)
            for one in plan.rules
        ),
        note="τ is useful work between completed checkpoints. young-period reads Young's formula as the whole period.",
    )
    shares = Table(
        name="waste",
        title="Where the time goes",
        columns=(
            Column(title="spent on", is_number=False),
            Column(title="exact"),
            Column(title="first order"),
        ),
        rows=(
            *((TERM_WORDS[name], plan.terms[name], plan.first_terms[name]) for name in TERMS),
            ("all waste", plan.waste, None if plan.first is None else _sum(plan)),
        ),
    )
    return Section(
        name="interval",
        title="Interval and waste",
        figures=(FigureRow(label="Thrown away per interruption, on average", figure=_lost(plan)),),
        charts=plan_charts(plan, finite),
        tables=(rules, shares, _tornado_table(plan)),
    )


def _lost(plan: Plan) -> Figure:
    """How far into a period an interruption strikes on average."""
    regime = plan.scenario.regime()
    lost = expected_lost(plan.tau + regime.checkpoint, mean_to_stop=regime.mean_to_stop)
    source = "mean of an exponential truncated at the period, 1/λ - T/(exp(λT) - 1)"
    return share_figure(plan.scenario, "lost per interruption", lost, source=source, unit="us")


def _tornado_table(plan: Plan) -> Table:
    """What halving or doubling an input moves, in points of E."""
    rows = []
    for name, title, *points in tornado(plan.scenario):
        cells = [
            combine(
                parts_of(plan.scenario),
                lambda *_, v=value: v,
                name=f"change of E, {name} {how}",
                unit="points",
                source="exact, at the best interval of each",
                assumptions=ASSUMES,
            )
            for how, value in zip(("halved", "doubled"), points, strict=True)
        ]
        rows.append((title, *cells))
    return Table(
        name="moves",
        title="What moves the useful fraction",
        columns=(
            Column(title="input", is_number=False),
            Column(title="halved", unit="points"),
            Column(title="doubled", unit="points"),
        ),
        rows=tuple(rows),
        is_folded=True,
    )


def _sum(plan: Plan) -> Figure:
    parts = list(plan.first_terms.values())
    return combine(
        parts,
        lambda *terms: sum(terms),
        name="waste, first order",
        unit="ratio",
        source="sum of its terms",
    )
