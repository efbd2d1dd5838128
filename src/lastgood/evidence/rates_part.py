"""How many of what, and is it getting worse: counts, rates with their intervals, and the trend of each group.

Every table says what it counts and by which rule. A rate stands only where there is exposure; an interval carries the
method that made it, and the exact Poisson one stands beside it, so that a reader sees what bursts cost in certainty.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lastgood.base.figures import Figure, FigureKind, Interval, combine
from lastgood.base.units import US_PER_DAY, format_duration
from lastgood.budget.family import Adjusted
from lastgood.budget.finding import Finding, format_p
from lastgood.budget.intervals import IntervalMethod, RateInterval
from lastgood.budget.rates import RateStudy
from lastgood.budget.trend import Trend
from lastgood.evidence.rates_groups import Group
from lastgood.evidence.rates_study import (
    FleetStudies,
    GroupedStudies,
    GroupStudy,
    exposure_words,
)
from lastgood.evidence.report import Cell, Column, FigureRow, Note, Section, Table, Words

PER_THOUSAND: Final = "per 1000 "
VERDICTS: Final = {1: "rising", -1: "falling", 0: "not shown"}


def counts_section(studies: FleetStudies) -> Section:
    """Counts and rates of the whole fleet and of each group."""
    records, whole = studies.records, studies.all
    tables = [rates_table(studies, grouped) for grouped in studies.grouped]
    details = [_details_table(studies, grouped) for grouped in (studies.primary,) if grouped]
    return Section(
        name="counts",
        title="How many of what",
        lead=f"Counted: incidents, by the rule {records.rule}. Window: {window_words(studies)}. "
        f"At risk: {exposure_words(records.exposure)}.",
        figures=_figures(whole),
        words=_interval_words(whole),
        tables=(*tables, *(table for table in details if table.rows)),
        notes=_count_notes(studies),
    )


def window_words(studies: FleetStudies) -> str:
    """The window of observation with how it is known."""
    from lastgood.evidence.wording import instant_text

    records = studies.records
    begin, end = (instant_text(t)[:16] for t in (records.begin_us, records.end_us))
    holes = len(records.windows) - 1
    gaps = (
        f", {holes} gap{'s' if holes > 1 else ''} of {(records.end_us - records.begin_us - records.observed_us) / 8.64e10:,.1f} d left out"
        if holes
        else ""
    )
    return f"{begin} to {end} UTC ({_length(records.end_us - records.begin_us)}{gaps}), {records.window_source}"


def _length(length_us: int) -> str:
    return (
        f"{length_us / US_PER_DAY:,.1f} d"
        if length_us >= 2 * US_PER_DAY
        else format_duration(length_us)
    )


def _figures(whole: RateStudy) -> tuple[FigureRow, ...]:
    rows = [FigureRow(label="Incidents", figure=whole.count)]
    if whole.rate and whole.headline:
        rows.append(FigureRow(label="Rate", figure=shown_rate(whole.rate), is_key=True))
        rows += [
            FigureRow(
                label=f"Rate, interval {made.method}",
                figure=_with_interval(shown_rate(whole.rate), made),
                note=""
                if made.method is not IntervalMethod.EXACT
                else "as if the incidents were independent",
            )
            for made in whole.headline.all
        ]
    if whole.fleet_mean_time and whole.fleet_mean_time.value is not None:
        rows.append(
            FigureRow(label="One incident every", figure=whole.fleet_mean_time, is_key=True)
        )
    if whole.unknown_share:
        rows.append(
            FigureRow(
                label="Without a known cause",
                figure=whole.unknown_share,
                is_key=True,
                note=f"{whole.sample.unknown_causes} of {whole.sample.count} incidents",
            )
        )
    return tuple(rows)


def _interval_words(whole: RateStudy) -> tuple[Words, ...]:
    """Which interval stands first, and why."""
    if whole.headline is None:
        return ()
    choice = whole.headline.choice
    sentences = (
        f"{choice[:1].upper()}{choice[1:]}.",
        "It says how far the rate of this window may be from the one behind it, not what comes next.",
    )
    return (Words(title="Headline interval", sentences=sentences),)


def _count_notes(studies: FleetStudies) -> tuple[Note, ...]:
    notes = [
        Note(text=text, level="missing" if "unknown" in text else "info")
        for text in studies.all.notes
    ]
    records = studies.records
    if records.injected_count:
        notes.append(
            Note(
                level="warning",
                text=f"{records.injected_count} incident{'s' if records.injected_count > 1 else ''} in this ledger "
                f"{'were' if records.injected_count > 1 else 'was'} caused on purpose. They are in no count and no rate here: a campaign says nothing about a field.",
            )
        )
    return tuple(notes)


# --- tables ------------------------------------------------------------------------------------------------


def rates_table(studies: FleetStudies, grouped: GroupedStudies) -> Table:
    """Count, rate with its headline interval, and mean time between, for each group; counts alone without exposure."""
    has_rate = studies.records.exposure is not None
    total = studies.all.sample.count
    rows = []
    for row in _with_all(studies, grouped):
        cells: list[Cell] = [shown_name(row.group, grouped), row.study.count]
        if has_rate and row.study.rate is not None and row.study.rate.interval is not None:
            rate = shown_rate(row.study.rate)
            within = rate.interval
            assert within
            mean = row.study.fleet_mean_time
            cells += [
                rate,
                _end(rate, "low", within.lo, within.method),
                _end(rate, "high", within.hi, within.method),
                mean if mean is not None and mean.value is not None else None,
            ]
        elif has_rate:
            cells += [None] * 4
        else:
            cells += [_share(row.study.count, total), row.study.unknown_share]
        rows.append(tuple(cells))
    unit = shown_rate(studies.all.rate).unit if studies.all.rate else ""
    rate_columns = (
        Column(title="Rate", unit=unit),
        Column(title="95 % from", unit=unit),
        Column(title="95 % to", unit=unit),
        Column(title="One every", unit="h"),
    )
    count_columns = (Column(title="Share"), Column(title="Cause unknown"))
    columns = (
        Column(title=grouped.grouping.noun, is_number=False),
        Column(title="Count", unit="incidents"),
        *(rate_columns if has_rate else count_columns),
    )
    return Table(
        name=f"by-{grouped.grouping.by}",
        title=f"{'Rates' if has_rate else 'Counts'} {grouped.grouping.title.lower()}",
        columns=columns,
        rows=tuple(rows),
        note=_table_note(studies, grouped),
    )


def _with_all(studies: FleetStudies, grouped: GroupedStudies) -> list[GroupStudy]:
    import numpy as np

    whole = Group("all", np.arange(0))
    return [GroupStudy(group=whole, study=studies.all), *grouped.rows]


def shown_name(group: Group, grouped: GroupedStudies) -> str:
    """A leaf below its branch: only what the branch has not said."""
    if not group.depth:
        return group.name
    leaf = group.name.partition("/")[2] if grouped.grouping.by == "label" else group.name
    return f"·\N{NO-BREAK SPACE}{leaf or group.name}"


def _table_note(studies: FleetStudies, grouped: GroupedStudies) -> str:
    if studies.records.exposure is None:
        text = "Exposure unknown; give --devices or node events: counts only, no rate."
    else:
        text = (
            f"Headline intervals, 95 %, chosen by test for each group unless fixed by --interval; at risk: "
            f"{exposure_words(studies.records.exposure)}. One every: of the whole fleet."
        )
    if grouped.grouping.left_out:
        text += f" {grouped.grouping.left_out} smaller groups are left out."
    return text


def _details_table(studies: FleetStudies, grouped: GroupedStudies) -> Table:
    """What the intervals rest on, for groups that are large enough to test."""
    rows = []
    for row in _with_all(studies, grouped):
        spread = row.study.dispersion
        if spread is None:
            continue
        gaps = row.study.gaps
        cells: list[Cell] = [
            shown_name(row.group, grouped),
            _number(row.study, "dispersion", spread.index),
            _number(row.study, "lag-1 correlation", spread.lag1),
            _number(row.study, "gap CV", gaps.cv),
            _number(row.study, "Weibull shape", gaps.shape, within=_shape_interval(row.study)),
        ]
        if row.study.headline is not None:
            cells.append(str(row.study.headline.interval.method))
        rows.append(tuple(cells))
    columns = (
        Column(title=grouped.grouping.noun, is_number=False),
        Column(title="Dispersion"),
        Column(title="Lag-1"),
        Column(title="Gap CV"),
        Column(title="Weibull shape"),
    )
    if studies.records.exposure is not None:
        columns = (*columns, Column(title="Interval", is_number=False))
    return Table(
        name=f"spread-{grouped.grouping.by}",
        title=f"How incidents are scattered, {grouped.grouping.title.lower()}",
        columns=columns,
        rows=tuple(rows),
        is_folded=True,
        note="1 in every column but lag-1 (0) is what independent incidents at a constant rate give. A Weibull shape "
        "below 1: failures follow failures. Interval: the method of the headline. Groups of at least ten incidents.",
    )


def _shape_interval(study: RateStudy) -> Interval | None:
    gaps = study.gaps
    if gaps.shape_lo is None or gaps.shape_hi is None:
        return None
    return Interval(
        lo=gaps.shape_lo, hi=gaps.shape_hi, level=gaps.level, method="Weibull likelihood"
    )


# --- trend -------------------------------------------------------------------------------------------------


def trend_section(studies: FleetStudies) -> Section:
    """Is it getting worse: the tests of the whole fleet in words, and those of each group in tables."""
    plain = "the calendar" if len(studies.records.windows) == 1 else "observed time"
    clock = "cumulative exposure" if studies.all.is_operational else plain
    lead = (
        f"Tested on {clock}, from the window's begin to its end (time-truncated). The verdict is that of the test which "
        "keeps its promise on clustered failures; Laplace's test stands beside it because it is what others print."
    )
    words = [_finding_words(f) for f in dict.fromkeys(studies.all.trend.findings)]
    if studies.all.power_law:
        words.append(
            Words(
                title="Power law (Crow-AMSAA)",
                sentences=(
                    studies.all.power_law.sentence,
                    "It does not show that a power law is the right shape, nor what comes next.",
                ),
            )
        )
    if studies.all.changes:
        changes = studies.all.changes
        words.append(Words(title="Change points", sentences=(changes.sentence, changes.limit)))
    return Section(
        name="trend",
        title="Is it getting worse?",
        lead=lead,
        words=tuple(words),
        tables=tuple(trend_table(studies, grouped) for grouped in studies.grouped),
    )


def _finding_words(finding: Finding) -> Words:
    """One test: what was tested, the verdict, and what that does not show."""
    return Words(
        title=f"{finding.test[:1].upper()}{finding.test[1:]}",
        sentences=(f"{finding.sentence} Tested: {finding.null}.", finding.limit),
    )


def trend_table(studies: FleetStudies, grouped: GroupedStudies) -> Table:
    """The verdict of each group, with the p value adjusted for how many groups were looked at."""
    adjusted = {a.name: a for a in grouped.family.rows}
    rows, few = [], 0
    for row in _with_all(studies, grouped):
        trend = row.study.trend
        if (
            trend.headline.is_rejected is None
            and not trend.is_untold
            and row.study is not studies.all
        ):
            few += 1
            continue
        own = adjusted.get(row.group.name) if row.group.name != "all" else None
        decides = trend.headline
        rows.append(
            (
                shown_name(row.group, grouped),
                trend_word(trend, own),
                shown_p(decides.p),
                shown_p(own.p_holm) if own else None,
                _number(row.study, "Laplace z", trend.laplace.statistic),
                _number(row.study, "Lewis-Robinson z", trend.lewis_robinson.statistic),
                shown_p(trend.mil_hdbk.p),
            )
        )
    columns = (
        Column(title=grouped.grouping.noun, is_number=False),
        Column(title="Trend", is_number=False),
        Column(title="p"),
        Column(title="p, Holm"),
        Column(title="Laplace z"),
        Column(title="Lewis-R. z"),
        Column(title="MIL p"),
    )
    return Table(
        name=f"trend-{grouped.grouping.by}",
        title=f"Trend {grouped.grouping.title.lower()}",
        columns=columns,
        rows=tuple(rows),
        note=f"{grouped.family.sentence}{_few_words(few)} Not shown is not the same as absent. Laplace's z beyond 2 on failures that "
        "come in bursts is no trend yet; MIL-HDBK-189C also rejects a rate that falls and rises again.",
    )


def trend_word(trend: Trend, own: Adjusted | None) -> str:
    """The verdict as one word for a cell; a group's trend that is gone after Holm's adjustment says so itself.

    `own` is None for the whole fleet, which is one question of its own.
    """
    if trend.is_untold:
        return "could not tell"
    if trend.headline.is_rejected is None:
        return "too few"
    word = VERDICTS[trend.direction]
    return f"{word}, not after Holm" if trend.direction and own and not own.is_rejected else word


def _few_words(few: int) -> str:
    if not few:
        return ""
    have = "group has" if few == 1 else "groups have"
    return f" {few} {have} fewer than ten incidents: too few to test, and left out."


# --- cells -------------------------------------------------------------------------------------------------


def shown_rate(rate: Figure) -> Figure:
    """A device rate per million hours, which gives numbers that people can read; a run rate as it is."""
    if not rate.unit.startswith(PER_THOUSAND):
        return rate
    scale = 1000.0

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    within = rate.interval
    if within is not None:
        within = msgspec.structs.replace(within, lo=within.lo * scale, hi=within.hi * scale)
    unit = f"per million {rate.unit.removeprefix(PER_THOUSAND)}"
    return msgspec.structs.replace(rate, value=scaled(rate.value), unit=unit, interval=within)


def _with_interval(rate: Figure, made: RateInterval) -> Figure:
    """The same rate with another interval beside it."""
    scale = (rate.value or 0.0) / made.rate if made.rate else 0.0
    within = Interval(lo=made.lo * scale, hi=made.hi * scale, level=made.level, method=made.words)
    return msgspec.structs.replace(
        rate, name=f"{rate.name}, {made.method}", interval=within, exposure=None, source=""
    )


def _number(
    study: RateStudy, name: str, value: float | None, *, within: Interval | None = None
) -> Cell:
    """A statistic of a group: modelled, because it means something only under its model."""
    if value is None:
        return None
    return Figure(
        name=f"{study.name}: {name}",
        value=float(value),
        unit="",
        kind=FigureKind.MODELLED,
        interval=within,
        n=study.sample.count,
        source=f"ledger: {study.sample.layer}",
    )


def shown_p(p: float | None) -> str | None:
    """A p value for a cell whose head says that it is one."""
    return None if p is None else format_p(p).removeprefix("p = ").removeprefix("p ")


def _end(figure: Figure, name: str, value: float, method: str) -> Figure:
    """One end of an interval as a figure: it rests on what the method assumes."""
    return combine(
        [figure],
        lambda _: value,
        name=f"{figure.name}, {name}",
        unit=figure.unit,
        source=method,
        assumptions=[method],
        n=figure.n,
        exposure=figure.exposure,
    )


def _share(count: Figure, total: int) -> Cell:
    if not total:
        return None
    return combine(
        [count],
        lambda n: n / total,
        name=f"{count.name}, share",
        unit="ratio",
        source=f"of {total} incidents",
        n=total,
    )
