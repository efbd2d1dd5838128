"""The rates of a fleet as flat rows: for JSON, a spreadsheet or a paper. One row per group, floats as they are.

A cell without a value is empty or null, which is not zero: no exposure, too few to test, no event.
"""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from lastgood.base.units import format_number
from lastgood.budget.family import Adjusted
from lastgood.budget.finding import format_p
from lastgood.budget.rates import RateStudy
from lastgood.evidence.rates_part import shown_rate, trend_word
from lastgood.evidence.rates_study import FleetStudies, exposure_words

COLUMNS: Final = (
    "by", "group", "depth", "layer", "rule", "count", "exposure", "exposure_unit", "exposure_source", "rate", "rate_lo",
    "rate_hi", "rate_unit", "kind", "level", "method", "choice", "exact_lo", "exact_hi", "mean_time_h",
    "mean_time_lo_h", "mean_time_hi_h", "unknown_causes", "dispersion", "lag1", "gap_cv", "weibull_shape", "trend",
    "trend_test", "trend_p", "trend_p_holm", "laplace_z", "laplace_p", "lewis_robinson_z", "lewis_robinson_p",
    "mil_hdbk_p", "power_law_shape",
)  # fmt: skip
US_PER_H: Final = 3.6e9


def rate_rows(studies: FleetStudies) -> list[dict[str, Any]]:
    """The whole fleet first, then every group of every table."""
    rows = [_row("all", "all", 0, studies.all, None)]
    for grouped in studies.grouped:
        adjusted = {a.name: a for a in grouped.family.rows}
        rows += [
            _row(
                grouped.grouping.by,
                row.group.name,
                row.group.depth,
                row.study,
                adjusted.get(row.group.name),
            )
            for row in grouped.rows
        ]
    return rows


def _row(by: str, name: str, depth: int, study: RateStudy, own: Adjusted | None) -> dict[str, Any]:
    trend, spread = study.trend, study.dispersion
    return {
        "by": by,
        "group": name,
        "depth": depth,
        "layer": study.sample.layer,
        "rule": study.sample.rule,
        "count": study.sample.count,
        **_rate(study),
        "unknown_causes": study.sample.unknown_causes,
        "dispersion": spread.index if spread else None,
        "lag1": spread.lag1 if spread else None,
        "gap_cv": study.gaps.cv if spread else None,
        "weibull_shape": study.gaps.shape,
        "trend": trend_word(trend, own),
        "trend_test": trend.headline.test,
        "trend_p": trend.headline.p,
        "trend_p_holm": own.p_holm if own else None,
        "laplace_z": trend.laplace.statistic,
        "laplace_p": trend.laplace.p,
        "lewis_robinson_z": trend.lewis_robinson.statistic,
        "lewis_robinson_p": trend.lewis_robinson.p,
        "mil_hdbk_p": trend.mil_hdbk.p,
        "power_law_shape": study.power_law.shape if study.power_law else None,
    }


def _rate(study: RateStudy) -> dict[str, Any]:
    names = COLUMNS[COLUMNS.index("exposure") : COLUMNS.index("unknown_causes")]
    found: dict[str, Any] = dict.fromkeys(names)
    if study.exposure is None or study.headline is None or study.rate is None:
        return found
    rate, exact = shown_rate(study.rate), study.headline.all[0]
    within = rate.interval
    # All ends are in the unit of the rate figure, which is per some number of hours.
    scale = (within.hi / study.headline.interval.hi) if within else 0.0
    found |= {
        "exposure": study.exposure.total,
        "exposure_unit": study.exposure.unit,
        "exposure_source": study.exposure.source,
        "rate": rate.value,
        "rate_lo": within.lo if within else None,
        "rate_hi": within.hi if within else None,
        "rate_unit": rate.unit,
        "kind": str(rate.kind),
        "level": within.level if within else None,
        "method": str(study.headline.interval.method),
        "choice": study.headline.choice,
        "exact_lo": exact.lo * scale,
        "exact_hi": exact.hi * scale,
    }
    mean = study.fleet_mean_time
    if mean is not None and mean.value is not None and mean.interval is not None:
        found["mean_time_h"] = mean.value / US_PER_H
        found["mean_time_lo_h"] = mean.interval.lo / US_PER_H
        found["mean_time_hi_h"] = mean.interval.hi / US_PER_H
    return found


def rates_csv(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def rates_latex(rows: list[dict[str, Any]], studies: FleetStudies) -> str:
    """The rows as a LaTeX table (package booktabs) with what a caption has to say."""
    has_rate = studies.records.exposure is not None
    heads = ["Group", "Incidents"]
    unit = shown_rate(studies.all.rate).unit if studies.all.rate else ""
    heads += [f"Rate, {unit}", r"95\,\% from", r"95\,\% to"] if has_rate else []
    heads += ["$p$", "$p$, Holm", "Trend"]
    lines = [
        r"\begin{table}",
        rf"\begin{{tabular}}{{l{'r' * (len(heads) - 2)}l}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [r"\quad " * row["depth"] + _escaped(row["group"]), f"{row['count']:,}"]
        if has_rate:
            cells += [_shown(row[name]) for name in ("rate", "rate_lo", "rate_hi")]
        cells += [_shown_p(row["trend_p"]), _shown_p(row["trend_p_holm"]), row["trend"]]
        lines.append(" & ".join(cells) + r" \\")
    caption = (
        f"Incidents by the rule {studies.records.rule}. At risk: {exposure_words(studies.records.exposure)}. "
        "Intervals chosen by test unless fixed in advance; trend: the test that keeps its level on clustered failures, "
        "p as of one test and adjusted for all groups (Holm), which decides for a group."
    )
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_escaped(caption)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | None) -> str:
    return "--" if value is None else format_number(value)


def _shown_p(p: float | None) -> str:
    """A p value for a cell under a head that says so; `<` is no letter in LaTeX's text."""
    if p is None:
        return "--"
    return format_p(p).removeprefix("p = ").replace("p < ", "$<$ ")


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
