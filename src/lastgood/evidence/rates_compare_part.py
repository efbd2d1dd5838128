"""Two fleets, or one fleet in two windows: the ratio of their rates and the differences of their times.

*Not shown* is an answer, and so is its interval: it says how large a difference may hide. What was picked because it
looked bad will look better afterwards by chance alone, and the section says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from lastgood.base.figures import Figure, FigureKind, Interval, weakest
from lastgood.base.units import US_PER_H
from lastgood.budget.compare import (
    UNKNOWN_EXPOSURE,
    Comparison,
    MedianDifference,
    RateRatio,
    compare,
    rate_ratio,
)
from lastgood.budget.finding import ALPHA, format_p
from lastgood.budget.intervals import garwood
from lastgood.budget.multiplicity import holm
from lastgood.budget.rates import RateStudy
from lastgood.evidence.rates_part import shown_name, shown_p, shown_rate, window_words
from lastgood.evidence.rates_study import FleetStudies, exposure_words
from lastgood.evidence.report import Cell, Column, Headline, Note, Section, Table, Words

GROUPS_MAX: Final = 20
AFTER_HOLM: Final = ", not after Holm"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one group of both sides, as plain values."""

    group: str
    shown: str
    """The group's name below its branch."""
    count_a: int
    count_b: int
    ratio: float | None
    """Rate of B over rate of A; None without exposure or without an event on side A."""
    lo: float | None
    hi: float | None
    p: float | None
    p_holm: float | None
    """Adjusted for how many groups are compared; None for the whole, which is one question of its own."""
    verdict: str = ""
    """`higher`, `lower`, `not shown` or `too few`; a difference that is gone after Holm says so itself."""
    method: str | None
    sentence: str


def compare_fleets(a: FleetStudies, b: FleetStudies) -> tuple[Comparison, list[Compared]]:
    """The whole, and every group that a side has in the tables of the same name; one that is gone counts zero."""
    whole = compare(a.all, b.all)
    rows = [_compared(("all", "all"), whole.rate, a.all.sample.count, b.all.sample.count)]
    left, right = a.primary, b.primary
    if left is not None and right is not None and left.grouping.by == right.grouping.by:
        others = {row.group.name: row for row in right.rows}
        for row in left.rows[:GROUPS_MAX]:
            other = others.pop(row.group.name, None)
            names = (row.group.name, shown_name(row.group, left))
            if other is not None:
                made = compare(*_named(row.study, other.study)).rate
                rows.append(_compared(names, made, row.group.count, other.group.count))
            else:
                made = _against_none(row.study, b.all, is_first=True)
                rows.append(_compared(names, made, row.group.count, 0))
        known = {row.group.name for row in left.rows}
        for row in [r for r in right.rows if r.group.name not in known][:GROUPS_MAX]:
            made = _against_none(row.study, a.all, is_first=False)
            names = (row.group.name, shown_name(row.group, right))
            rows.append(_compared(names, made, 0, row.group.count))
    return whole, _adjusted(rows)


def _against_none(found: RateStudy, other: RateStudy, *, is_first: bool) -> RateRatio | None:
    """The ratio for a group that the other side has no incident of: its exposure was there all the same."""
    if found.headline is None or other.exposure is None or other.headline is None:
        return None
    none = garwood(0, other.exposure.total)
    own, names = found.headline.interval, (f"{found.name} in A", f"{found.name} in B")
    return rate_ratio(own, none, names=names) if is_first else rate_ratio(none, own, names=names)


def _named(a: RateStudy, b: RateStudy) -> tuple[RateStudy, RateStudy]:
    """One group of both sides under two names: a sentence has to say which of them it speaks about."""
    return replace(a, name=f"{a.name} in A"), replace(b, name=f"{b.name} in B")


def _adjusted(rows: list[Compared]) -> list[Compared]:
    """The rows of groups with Holm's p value: of thirteen ratios one looks different by chance."""
    tested = [i for i, row in enumerate(rows) if i and row.p is not None]
    adjusted = dict(zip(tested, holm([rows[i].p or 0.0 for i in tested]).tolist(), strict=True))
    return [_judged(row, adjusted.get(i), len(tested)) for i, row in enumerate(rows)]


def _judged(row: Compared, p_holm: float | None, of: int) -> Compared:
    """The row with its verdict; a group's sentence never leaves its p value without the adjusted one."""
    verdict, sentence = _verdict(row, p_holm), row.sentence
    if p_holm is not None:
        gone = "; not a difference any more" if verdict.endswith(AFTER_HOLM) else ""
        sentence = f"{sentence} After Holm's adjustment for {of} groups: {format_p(p_holm)}{gone}."
    return msgspec.structs.replace(row, p_holm=p_holm, verdict=verdict, sentence=sentence)


def _verdict(row: Compared, p_holm: float | None) -> str:
    if row.ratio is None and row.lo is None:
        return "no rate"
    if row.p is None:
        return "too few"
    if row.p >= ALPHA:
        return "not shown"
    way = "lower" if row.ratio is not None and row.ratio < 1 else "higher"
    return way if p_holm is None or p_holm < ALPHA else f"{way}{AFTER_HOLM}"


def _compared(
    names: tuple[str, str], rate: RateRatio | None, count_a: int, count_b: int
) -> Compared:
    return Compared(
        group=names[0],
        shown=names[1],
        count_a=count_a,
        count_b=count_b,
        ratio=rate.ratio if rate else None,
        lo=rate.lo if rate else None,
        hi=rate.hi if rate else None,
        p=rate.finding.p if rate else None,
        p_holm=None,
        method=rate.method if rate else None,
        sentence=rate.finding.sentence if rate else UNKNOWN_EXPOSURE,
    )


def compare_section(a: FleetStudies, b: FleetStudies, *, names: tuple[str, str]) -> Section:
    """The section: both sides with window and exposure, ratios by group, differences of medians."""
    whole, rows = compare_fleets(a, b)
    words = [
        Words(
            title=f"{side} = {name}",
            sentences=(
                f"{studies.all.sample.count:,} incidents, {window_words(studies)}.",
                f"At risk: {exposure_words(studies.records.exposure)}.",
                f"Rule: {studies.records.rule}.",
            ),
        )
        for side, name, studies in zip("AB", names, (a, b), strict=True)
    ]
    if whole.rate is not None:
        words.append(Words(title="Rate", sentences=(whole.sentences[0], whole.rate.finding.limit)))
    words += [
        Words(title=f"{d.name[:1].upper()}{d.name[1:]}", sentences=(d.sentence,))
        for d in whole.durations
    ]
    tables = [_rates_table(a, b, rows)]
    if whole.durations:
        tables.append(_durations_table(whole.durations))
    missing = [n for n in ("detection", "recovery") if n not in {d.name for d in whole.durations}]
    notes = [Note(text=whole.limit)]
    if missing:
        notes.append(
            Note(
                level="missing",
                text=f"Not recorded on both sides: time of {' and of '.join(missing)}.",
            )
        )
    return Section(
        name="comparison",
        title="Comparison",
        headline=Headline(state="nothing", sentence=whole.sentences[0]),
        words=tuple(words),
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _rates_table(a: FleetStudies, b: FleetStudies, rows: list[Compared]) -> Table:
    kinds = [s.all.rate.kind for s in (a, b) if s.all.rate]
    kind = weakest([*kinds, FigureKind.MODELLED])

    def number(name: str, value: float | None, row: Compared) -> Cell:
        if value is None:
            return None
        within = None
        if name == "ratio" and row.lo is not None and row.hi is not None:
            within = Interval(lo=row.lo, hi=row.hi, level=0.95, method=row.method or "")
        return Figure(
            name=f"{row.group}: {name}",
            value=value,
            unit="",
            kind=kind,
            interval=within,
            n=row.count_a + row.count_b,
            source=row.method or "",
            assumptions=("independent groups",),
        )

    cells = tuple(
        (
            row.shown,
            _count(row.count_a),
            _count(row.count_b),
            number("ratio", row.ratio, row),
            number("low", row.lo, row),
            number("high", row.hi, row),
            shown_p(row.p),
            shown_p(row.p_holm),
            row.verdict,
        )
        for row in rows
    )
    columns = (
        Column(title="Group", is_number=False),
        Column(title="Count A"),
        Column(title="Count B"),
        Column(title="B / A"),
        Column(title="95 % from"),
        Column(title="95 % to"),
        Column(title="p"),
        Column(title="p, Holm"),
        Column(title="B is", is_number=False),
    )
    return Table(
        name="ratios",
        title="Rate of B over rate of A",
        columns=columns,
        rows=cells,
        note="p, Holm: adjusted for how many groups are compared; it decides for a group. All is one question of its own. "
        "A side with fewer than ten incidents is given the dispersion of the other; with fewer on both, nothing is tested.",
    )


def _count(value: int) -> Figure:
    return Figure(
        name="count",
        value=value,
        unit="",
        kind=FigureKind.MEASURED,
        source="incidents of the ledger",
    )


def _durations_table(found: tuple[MedianDifference, ...]) -> Table:
    def hours(d: MedianDifference, name: str, value: float | None) -> Figure:
        return Figure(
            name=f"{d.name}: {name}",
            value=None if value is None else round(value * US_PER_H),
            unit="us",
            kind=FigureKind.MODELLED,
            n=d.n_a + d.n_b,
            source=d.method,
            assumptions=("open incidents go on like those that lasted as long",),
        )

    rows = tuple(
        (
            d.name,
            hours(d, "median A", d.median_a_h),
            hours(d, "median B", d.median_b_h),
            hours(d, "difference", d.difference_h),
            hours(d, "low", d.lo_h),
            hours(d, "high", d.hi_h),
        )
        for d in found
    )
    columns = (
        Column(title="Duration", is_number=False),
        Column(title="Median A", unit="h"),
        Column(title="Median B", unit="h"),
        Column(title="B - A", unit="h"),
        Column(title="95 % from", unit="h"),
        Column(title="95 % to", unit="h"),
    )
    return Table(name="medians", title="Medians (Kaplan-Meier)", columns=columns, rows=rows)


def comparison_plain(a: FleetStudies, b: FleetStudies, *, names: tuple[str, str]) -> dict[str, Any]:
    """The comparison as JSON-like data."""
    whole, rows = compare_fleets(a, b)
    sides = {
        side: {
            "name": name,
            "count": studies.all.sample.count,
            "window_us": [studies.records.begin_us, studies.records.end_us],
            "exposure": exposure_words(studies.records.exposure),
            "rate": None
            if studies.all.rate is None
            else msgspec.to_builtins(shown_rate(studies.all.rate)),
        }
        for side, name, studies in zip("ab", names, (a, b), strict=True)
    }
    return {
        "schema": "lastgood.comparison/1",
        **sides,
        "ratios": msgspec.to_builtins(rows),
        "durations": [
            {name: getattr(d, name) for name in MedianDifference.__slots__} for d in whole.durations
        ],
        "sentences": list(whole.sentences),
        "limit": whole.limit,
    }
