"""Repairs that did not hold, nodes to pull, bursts, and how long things took.

A list of the worst nodes exists in every fleet and is mostly chance. So a node is named for pulling only when the
statistics behind it agree (`budget/lemons.py`); the table below shows the others with their shrunken rates, and says
why they are not named.
"""

from __future__ import annotations

from typing import Final

from lastgood.base.figures import Figure, FigureKind, Interval
from lastgood.base.units import US_PER_H
from lastgood.budget.finding import format_p
from lastgood.budget.repair import Bounces
from lastgood.budget.survival import Durations, Percentile
from lastgood.evidence.rates_answers import chance_caveat, too_few_words
from lastgood.evidence.rates_charts import node_rank_chart, raster_chart
from lastgood.evidence.rates_leads import recent_words
from lastgood.evidence.rates_study import FleetStudies
from lastgood.evidence.report import Cell, Column, FigureRow, Note, Section, Table, Words
from lastgood.evidence.wording import instant_text

ROWS_MAX: Final = 15
MARKS_MAX: Final = 5
PER_DAYS: Final = 1000


def repairs_section(studies: FleetStudies) -> Section:
    """The share of repaired nodes that failed again soon, beside what chance would give."""
    found = [b for b in (studies.all.bounce_day, studies.all.bounce_week) if b is not None]
    lead = (
        "A repair is the end of a fault; it did not hold when the same node faults again, strictly later and within the "
        "horizon. Only repairs with a whole horizon left in the window are counted."
    )
    if not found:
        text = "No ends of faults with their nodes are recorded."
        if studies.all.is_too_few:
            text = too_few_words(studies)
        note = Note(level="missing", text=text)
        return Section(name="repairs", title="Repairs that did not hold", lead=lead, notes=(note,))
    rows = tuple(row for b in found for row in _bounce_rows(b, studies.all.sample.as_of_us))
    tables = (_bounced_nodes(studies, found[0]),) if found[0].bounces else ()
    words = tuple(Words(title=f"B{b.finding.test[1:]}", sentences=(b.finding.sentence, b.finding.limit)) for b in found)  # fmt: skip
    return Section(
        name="repairs",
        title="Repairs that did not hold",
        lead=lead,
        figures=rows,
        words=words,
        tables=tables,
        notes=()
        if studies.records.node_count is not None
        else (Note(level="missing", text=chance_caveat(studies)),),
    )


def _bounce_rows(found: Bounces, as_of_us: int | None) -> list[FigureRow]:
    span = "1 day" if found.horizon_h == 24 else "1 week"
    within = None
    if found.lo is not None and found.hi is not None:
        within = Interval(lo=found.lo, hi=found.hi, level=found.level, method="Clopper-Pearson")
    share = Figure(
        name=f"bounce share within {span}",
        value=found.share,
        unit="ratio",
        kind=FigureKind.MEASURED,
        interval=within,
        n=found.repairs,
        source="ends of faults in the ledger",
        as_of_us=as_of_us,
    )
    chance = Figure(
        name=f"bounce share by chance within {span}",
        value=found.baseline,
        unit="ratio",
        kind=FigureKind.MODELLED,
        assumptions=("each node faults at the fleet's mean rate, independently of repairs",),
        source="1 - exp(-rate x horizon)",
        as_of_us=as_of_us,
    )
    return [
        FigureRow(
            label=f"Faulted again within {span}",
            figure=share,
            note=f"{found.bounces} of {found.repairs} repairs",
        ),
        FigureRow(label=f"By chance within {span}", figure=chance),
    ]


def _bounced_nodes(studies: FleetStudies, found: Bounces) -> Table:
    pairs = list(zip(found.nodes.tolist(), found.bounces_of_node.tolist(), strict=True))
    rows = tuple((studies.node_names[n], _counted("bounces", count)) for n, count in pairs[:ROWS_MAX])  # fmt: skip
    return Table(
        name="bounced",
        title="Nodes whose repairs did not hold",
        columns=(Column(title="Node", is_number=False), Column(title="Bounces within 1 day")),
        rows=rows,
        note=f"{min(len(pairs), ROWS_MAX)} of {len(pairs)} nodes with a repair that did not hold for a day.",
    )


def nodes_section(studies: FleetStudies) -> Section:
    """Which nodes to pull: those that keep failing, if there are any, and how the others stand."""
    study = studies.all.lemons
    begin_us = studies.records.begin_us
    marks = [
        ((studies.instant_us(burst.begin_h) - begin_us) / US_PER_H, str(i))
        for i, burst in enumerate(_top_bursts(studies), start=1)
    ]
    raster = raster_chart(studies.records, marks)
    charts = [raster] if raster else []
    lead = (
        "A node is named only when four things agree: nodes differ more than chance, the order of the first half of the "
        "window repeats in the second, the node is above three times the fleet's rate with a probability of 0.9 after "
        "shrinkage, and its count survives false-discovery control."
    )
    if study is None:
        text = "The number of nodes at risk is not known, or it is too small, so that nodes cannot be compared; give --nodes or node events."  # fmt: skip
        if studies.all.is_too_few:
            text = too_few_words(studies)
        return Section(
            name="nodes",
            title="Which nodes to pull",
            lead=lead,
            charts=tuple(charts),
            notes=(Note(level="missing", text=text),),
        )
    ranks = node_rank_chart(study, studies.node_names, unit_h=24.0 * PER_DAYS)
    words = (
        Words(title="Verdict", sentences=(study.sentence, study.limit)),
        Words(
            title="Do nodes differ?",
            sentences=(
                study.unequal.sentence,
                f"A plain list would name {study.naive} nodes; {study.controlled} after false-discovery control.",
                study.unequal.limit,
            ),
        ),
        Words(
            title="Does it last?", sentences=(study.persistence.sentence, study.persistence.limit)
        ),
    )
    return Section(
        name="nodes",
        title="Which nodes to pull",
        lead=lead,
        charts=tuple([ranks, *charts] if ranks else charts),
        words=words,
        tables=(_node_table(studies),) if study.top else (),
    )


def _node_table(studies: FleetStudies) -> Table:
    study = studies.all.lemons
    assert study is not None
    rows = tuple(
        (
            studies.node_names[node.node],
            _counted("incidents", node.count),
            f"{node.first_half} + {node.second_half}",
            _rate(node.shrunken_rate, "shrunken", study.events),
            f"{node.p_lemon:.2f}",
            "PULL" if node.is_flagged else "no",
        )
        for node in study.top[:ROWS_MAX]
    )
    columns = (
        Column(title="Node", is_number=False),
        Column(title="Count"),
        Column(title="Halves"),
        Column(title="Shrunken rate", unit="per 1,000 d"),
        Column(title="P(lemon)"),
        Column(title="Flagged", is_number=False),
    )
    return Table(
        name="nodes",
        title="Nodes with the highest shrunken rates",
        columns=columns,
        rows=rows,
        note=" ".join(
            text
            for text in (
                f"Of {study.nodes:,} nodes at risk. P(lemon): probability of more than three times the fleet's rate.",
                recent_words(studies),
            )
            if text
        ),
    )


def _rate(per_h: float, name: str, n: int) -> Figure:
    return Figure(
        name=name,
        value=per_h * 24.0 * PER_DAYS,
        unit="per 1,000 d",
        kind=FigureKind.MODELLED,
        n=n,
        source="gamma-Poisson fit over the nodes",
        assumptions=("rates of nodes drawn from one gamma law",),
    )


# --- bursts ------------------------------------------------------------------------------------------------


def bursts_section(studies: FleetStudies) -> Section | None:
    """What failed together, and which shared domain could be behind it."""
    found = studies.all.bursts
    if found is None:
        return None
    records = studies.records
    rows = tuple(
        (
            str(i),
            _instant(studies, burst.begin_h),
            _counted("nodes", len(burst.nodes)),
            _counted("incidents", burst.count),
            f"{burst.label} ({burst.label_count} of {burst.count})" if burst.label else None,
        )
        for i, burst in enumerate(found.top[:ROWS_MAX], start=1)
    )
    columns = (
        Column(title="No", is_number=False),
        Column(title="Begin, UTC", is_number=False),
        Column(title="Nodes"),
        Column(title="Incidents"),
        Column(title="Most of them", is_number=False),
    )
    shared = [
        f"{_instant(studies, c.begin_h)}: {c.members} of {c.of} nodes in {c.kind} "
        f"{studies.domain_names[c.kind][c.domain]} ({format_p(c.p_adjusted)} after Holm)"
        for c in found.candidates
    ]
    words = [Words(title="Bursts", sentences=(found.finding.sentence, found.finding.limit))]
    if shared:
        words.append(Words(title="Shared domain, candidates", sentences=tuple(shared)))
    table = Table(
        name="bursts",
        title="The largest bursts",
        columns=columns,
        rows=rows,
        note=f"Starts within {found.gap_h * 60:g} min of the one before; {found.count} bursts in all. "
        f"Numbers stand on the picture of the nodes. By the rule {records.rule}.",
    )
    return Section(
        name="bursts",
        title="What failed together",
        words=tuple(words),
        tables=(table,) if rows else (),
    )


def _top_bursts(studies: FleetStudies) -> list:
    return [] if studies.all.bursts is None else list(studies.all.bursts.top[:MARKS_MAX])


def _instant(studies: FleetStudies, hours: float) -> str:
    return instant_text(studies.instant_us(hours))[:16]


# --- durations ---------------------------------------------------------------------------------------------


def durations_section(studies: FleetStudies) -> Section | None:
    """Percentiles of detection, diagnosis, recovery and the whole, with open incidents counted as open."""
    if not studies.all.durations:
        return None
    rows = tuple(_duration_row(d) for d in studies.all.durations)
    columns = (
        Column(title="Duration", is_number=False),
        Column(title="n"),
        Column(title="Open"),
        Column(title="p50", unit="h"),
        Column(title="p90", unit="h"),
        Column(title="p99", unit="h"),
        Column(title="p90, 95 %", is_number=False),
    )
    first = studies.all.durations[0]
    table = Table(
        name="durations",
        title="Percentiles (Kaplan-Meier)",
        columns=columns,
        rows=rows,
        note=f"{first.limit} Assumes: {first.assumes}. Source: {first.source}.",
    )
    sentences = tuple(d.sentence for d in studies.all.durations)
    return Section(
        name="durations",
        title="How long it took",
        lead="Open incidents are censored: they count as longer than so far, neither as short nor as missing.",
        words=(Words(title="In words", sentences=sentences),),
        tables=(table,),
    )


def _duration_row(found: Durations) -> tuple[Cell, ...]:
    from lastgood.budget.survival import format_hours

    p90 = found.at(0.9)
    return (
        found.name,
        _counted("incidents", found.n),
        _counted("open", found.open),
        *(_percentile(found, p) for p in found.percentiles),
        f"{format_hours(p90.lo_h)} to {'no bound' if p90.hi_h is None else format_hours(p90.hi_h)}",
    )


def _percentile(found: Durations, p: Percentile) -> Figure:
    within = None
    if p.lo_h is not None and p.hi_h is not None and p.value_h is not None:
        within = Interval(
            lo=p.lo_h * US_PER_H, hi=p.hi_h * US_PER_H, level=found.level, method="log(-log)"
        )
    return Figure(
        name=f"{found.name} {p.name}",
        value=None if p.value_h is None else round(p.value_h * US_PER_H),
        unit="us",
        kind=FigureKind.MODELLED,
        interval=within,
        n=found.n,
        source=found.source,
        assumptions=(found.assumes,),
    )


def _counted(name: str, value: int) -> Figure:
    return Figure(
        name=name, value=value, unit="", kind=FigureKind.MEASURED, source="incidents of the ledger"
    )
