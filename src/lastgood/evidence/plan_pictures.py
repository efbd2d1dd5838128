"""Which pictures a plan has, as data: the drawing itself is in `plan_charts.py`."""

from __future__ import annotations

from typing import Final

from lastgood.base.figures import FigureKind, weakest
from lastgood.base.units import US_PER_DAY, US_PER_H, US_PER_MIN, US_PER_S, format_duration
from lastgood.budget.plan import TERMS, Plan
from lastgood.budget.plan_finite import FinitePlan
from lastgood.budget.scenario import QUANTITIES
from lastgood.budget.surroundings import retention_curve
from lastgood.budget.whatif import tornado
from lastgood.evidence.report import Chart, Column, Data, Mark

SCALES: Final = ((US_PER_DAY, "d"), (US_PER_H, "h"), (US_PER_MIN, "min"), (US_PER_S, "s"))
TERM_STATES: Final = {
    "checkpoint": "checkpoint.blocking",
    "rework": "lost",
    "detection": "down.detect",
    "recovery": "restore",
}
"""Term of the budget -> the state of wall time that a report would measure it as, with its colour."""


def plan_charts(plan: Plan, finite: FinitePlan | None) -> tuple[Chart, ...]:
    """E over τ, the waste, what moves it, the wall time where it was simulated, the risk where a latency is known."""
    charts = [_curve(plan)] if plan.curve else []
    charts += [_waste(plan), _tornado(plan)]
    if finite is not None:
        charts.append(_wall(finite))
    risk = _risk(plan)
    return tuple(charts + ([risk] if risk else []))


def scale_for(value_us: float, *, at_least: float = 2) -> tuple[float, str]:
    """The largest unit in which a duration is at least this many."""
    return next(((s, u) for s, u in SCALES if value_us >= at_least * s), (US_PER_S, "s"))


def _curve(plan: Plan) -> Chart:
    scale, unit = scale_for(plan.tau)
    low, high = (float(edge.value or 0) for edge in plan.plateau)
    rows = [
        (
            p.work / scale,
            p.useful,
            p.lo,
            p.hi,
            p.first_order,
            "yes" if low <= p.work <= high else "no",
        )
        for p in plan.curve
    ]
    # The edges of the plateau lie between two points of the curve; they are points of it too.
    rows += [_row_at(plan, edge, scale) for edge in (low, high)]
    band = "; the grey band is where sampled inputs put it" if plan.samples.varied else ""
    return Chart(
        name="useful_fraction",
        title="Useful fraction over the interval",
        form="useful_curve",
        alt=f"The useful fraction rises to its best at {format_duration(plan.tau)} and falls slowly beyond it.",
        caption=f"Blue is exact, dashed red is the first-order claim; the shaded range is within 0.1 points of the best{band}.",
        data=Data(
            columns=(
                Column(title="work between checkpoints", unit=unit),
                Column(title="useful fraction"),
                Column(title="low"),
                Column(title="high"),
                Column(title="first order"),
                Column(title="plateau", is_number=False),
            ),
            rows=tuple(sorted(rows)),
            kind=plan.useful.kind,
        ),
        marks=_curve_marks(plan, scale),
    )


def _curve_marks(plan: Plan, scale: float) -> tuple[Mark, ...]:
    """The chosen τ, and the interval in use where it lies inside the picture and not beside τ."""
    marks = [Mark(at=plan.tau / scale, label="τ")]
    today = plan.scenario.figure("interval").value
    is_inside = today is not None and plan.curve[0].work <= today <= plan.curve[-1].work
    if is_inside and not 0.8 < today / plan.tau < 1.25:
        marks.append(Mark(at=today / scale, label="in use"))
    return tuple(marks)


def _row_at(plan: Plan, work: float, scale: float) -> tuple:
    from lastgood.budget.closed.efficiency import efficiency, first_order

    regime = plan.scenario.regime()
    near = min(plan.curve, key=lambda p: abs(p.work - work))
    useful = efficiency(work, regime)
    lo = None if near.lo is None else near.lo + useful - near.useful
    hi = None if near.hi is None else near.hi + useful - near.useful
    return (work / scale, useful, lo, hi, first_order(work, regime).useful, "yes")


def _waste(plan: Plan) -> Chart:
    rows = [(TERM_STATES[name], 100 * float(plan.terms[name].value or 0), "lost") for name in TERMS]
    rows.append(("all waste", 100 * float(plan.waste.value or 0), "total"))
    return Chart(
        name="waste",
        title="Where the time goes",
        form="waterfall",
        alt="Waste by what it is spent on, adding up to all of it.",
        data=Data(
            columns=(
                Column(title="spent on", is_number=False),
                Column(title="share of wall time", unit="%"),
                Column(title="role", is_number=False),
            ),
            rows=tuple(rows),
            kind=plan.waste.kind,
        ),
    )


def _tornado(plan: Plan) -> Chart:
    rows = []
    for name, _, halved, doubled in tornado(plan.scenario):
        label = name.replace("_", " ")
        rows += [(label, "halved", halved), (label, "doubled", doubled)]
    return Chart(
        name="tornado",
        title="What moves it",
        form="tornado",
        alt="Points of useful fraction won or lost when an input is halved or doubled, largest first.",
        caption=f"Each input halved and doubled, at its own best interval; mtti is the {QUANTITIES['mtti'].title}.",
        data=Data(
            columns=(
                Column(title="input", is_number=False),
                Column(title="change", is_number=False),
                Column(title="change of the useful fraction", unit="points"),
            ),
            rows=tuple(rows),
            kind=weakest((plan.useful.kind, FigureKind.ASSUMED)),
        ),
    )


def _wall(finite: FinitePlan) -> Chart:
    last = float(finite.quantiles[0.99].value or 0)
    scale, unit = scale_for(last)
    marks = tuple(
        Mark(at=float(figure.value or 0) / scale, label=f"p{100 * share:g}")
        for share, figure in finite.quantiles.items()
    )
    return Chart(
        name="wall_time",
        title="Wall time of the job",
        form="wall_time",
        alt="Share of simulated jobs that are done by a wall time.",
        caption="Share of simulated jobs that end within this time; the inputs at their values.",
        data=Data(
            columns=(Column(title="wall time", unit=unit), Column(title="share of jobs done")),
            rows=tuple((wall / scale, share) for wall, share in finite.curve),
            kind=finite.mean.kind,
        ),
        marks=marks,
    )


def _risk(plan: Plan) -> Chart | None:
    scenario = plan.scenario
    points = retention_curve(scenario, work=plan.tau)
    if not points:
        return None
    wanted = scenario.value("retention_risk")
    kept = scenario.value("retained_checkpoints")
    return Chart(
        name="retention_risk",
        title="Risk that no clean checkpoint is left",
        form="risk",
        alt="Risk per silent corruption, falling with the number of kept checkpoints.",
        caption=f"Per silent corruption; dashed is the wanted {wanted:g}.",
        data=Data(
            columns=(
                Column(title="kept checkpoints"),
                Column(title="risk per corruption"),
                Column(title="wanted"),
            ),
            rows=tuple((count, risk, wanted) for count, risk in points),
            kind=weakest([scenario.figure("detection_latency").kind, FigureKind.MODELLED]),
        ),
        marks=(Mark(at=kept, label=f"{kept:g} kept"),) if kept <= points[-1][0] else (),
    )
