"""A plan as a section of a report: the answer, what it rests on, where the time goes, and what else could be done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastgood.base.figures import Figure, combine, format_interval
from lastgood.base.units import US_PER_H, format_duration
from lastgood.budget.alternative import Alternative
from lastgood.budget.alternatives import alternatives
from lastgood.budget.closed.regime import chance_of_no_stop
from lastgood.budget.plan import ASSUMES, TERMS, Plan, parts_of
from lastgood.budget.plan_finite import FinitePlan
from lastgood.budget.scenario import QUANTITIES, Scenario
from lastgood.budget.surroundings import surroundings
from lastgood.budget.whatif import tornado
from lastgood.evidence.plan_pictures import plan_charts, scale_for
from lastgood.evidence.report import (
    Check,
    Column,
    FigureRow,
    Headline,
    Note,
    Section,
    Table,
    Words,
)

CHANCE_MIN = 5e-5
"""Smaller chances would print as zero."""
TERM_WORDS = {
    "checkpoint": "writing checkpoints",
    "rework": "work done again",
    "detection": "detection and diagnosis",
    "recovery": "recovery",
}
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
                _inputs_part(plan.scenario),
                _interval_part(plan, finite),
                _finite_part(plan, finite) if finite else None,
                _other_part(
                    "alternatives",
                    "Other ways to checkpoint",
                    alternatives(plan.scenario),
                    "First-order formulas all of them: compare them with the first row, never with the exact value.",
                ),
                _other_part(
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
    interval = plan.useful.interval
    sure = f"; {_percent(interval.lo)} to {_percent(interval.hi)}" if interval else ""
    low, high = (_duration(edge) for edge in plan.plateau)
    return (
        f"Checkpoint after every {_duration(plan.round_work)} of work ({low} to {high} are as good): "
        f"at best {_percent(plan.useful.value)} of wall time is useful ({plan.useful.kind}{sure})."
    )


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
    notes += [Note(text=_sentence(note)) for note in plan.scenario.notes]
    return tuple(notes)


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _inputs_part(scenario: Scenario) -> Section:
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


def _interval_words(figure: Figure) -> str | None:
    return format_interval(figure)


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
        charts=plan_charts(plan, finite),
        tables=(rules, shares, _tornado_table(plan)),
    )


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


def _finite_part(plan: Plan, finite: FinitePlan) -> Section:
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
    work = _duration(plan.scenario.figure("work"))
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


def _other_part(name: str, title: str, rows: Sequence[Alternative], lead: str) -> Section:
    """One table row for each that was computed; the others are named with what they need."""
    made = [one for one in rows if not one.missing]
    compared = [one for one in made if one.work or one.refused]
    table = Table(
        name=name,
        title=title,
        columns=(
            Column(title="way", is_number=False),
            Column(title="how", is_number=False),
            Column(title="interval"),
            Column(title="useful fraction"),
            Column(title="note", is_number=False),
        ),
        rows=tuple(
            (
                one.name,
                f"refused: {one.refused}" if one.refused else one.how,
                one.work,
                one.useful,
                one.note or None,
            )
            for one in compared
        ),
    )
    extra = tuple(
        FigureRow(label=f"{one.name}: {figure.name.replace('_', ' ')}", figure=figure)
        for one in made
        for figure in one.extra
    )
    missing = [f"{one.name} (give {', '.join(one.missing)})" for one in rows if one.missing]
    notes = [Note(text=f"Not computed: {'; '.join(missing)}.", level="info")] if missing else []
    return Section(
        name=name,
        title=title,
        lead=lead if made else "",
        figures=extra,
        words=tuple(
            Words(title=one.name, sentences=(_sentence(one.how),))
            for one in made
            if one not in compared
        ),
        tables=(table,) if compared else (),
        notes=tuple(notes),
    )
