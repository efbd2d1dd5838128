"""Counts per week with their change points, and gaps against the gaps that two models would give."""

from __future__ import annotations

import math
from typing import Any, Final

from lastgood.evidence.chart_growth import HEIGHT_PX, MARGIN_PX, titled, y_axis
from lastgood.evidence.charts import BLUE, RED, SKY, draw_marks
from lastgood.evidence.report import Chart

SHAPES: Final = ("circle", "triangle-up")


def draw_weekly(chart: Chart, width_px: int) -> Any:
    """Bars of counts and the level between change points. Columns: begin, end, count, level."""
    import altair as alt

    names = ("x", "end", "count", "level")
    values = [dict(zip(names, row, strict=False)) for row in chart.data.rows]
    # A level is a line from the first begin of its stretch to the last end, so it needs both edges of each bar.
    edges = [{"x": at, "level": v["level"]} for v in values for at in (v["x"], v["end"])]
    x = alt.X("x:Q", title=titled(chart.data.columns[0]), scale=alt.Scale(nice=False, zero=False))
    y, height_px = chart.data.columns[2], HEIGHT_PX - 50
    bars = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(color=SKY, stroke="currentColor", strokeWidth=0.4, strokeOpacity=0.5)
        .encode(x=x, x2="end:Q", y=y_axis(y, "count:Q"), y2=alt.value(height_px))
    )
    level = (
        alt.Chart(alt.Data(values=edges))
        .mark_line(color=RED, strokeWidth=2)
        .encode(x=x, y=y_axis(y, "level:Q"))
    )
    layers = [bars, level, *(draw_marks(chart) if chart.marks else [])]
    return alt.layer(*layers).properties(width=width_px - MARGIN_PX, height=height_px)


def draw_quantiles(chart: Chart, width_px: int) -> Any:
    """Observed gaps over the gaps of a model at the same rank, on logarithmic axes. Columns: model, observed, series.

    Points on the diagonal mean that the model gives the gaps that were seen.
    """
    import altair as alt

    values = [
        {"x": model, "y": seen, "series": series}
        for model, seen, series in chart.data.rows
        if model > 0 and seen > 0
    ]
    series = list(dict.fromkeys(row["series"] for row in values))
    low = min((min(v["x"], v["y"]) for v in values), default=0.1)
    high = max((max(v["x"], v["y"]) for v in values), default=1.0)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    # A logarithmic axis draws nine lines a decade when nobody stops it.
    ticks = [10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    axis = alt.Axis(minExtent=20, maxExtent=60, values=ticks, format="~g")
    key: dict[str, Any] = {"legend": alt.Legend(title=None, orient="top", labelLimit=240)}
    columns = chart.data.columns
    x = alt.X(
        "x:Q", title=titled(columns[0]), scale=scale, axis=alt.Axis(values=ticks, format="~g")
    )
    y = alt.Y("y:Q", title=titled(columns[1]), scale=scale, axis=axis)
    points = (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, opacity=0.8, size=22)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "series:N", scale=alt.Scale(domain=series, range=[RED, BLUE][: len(series)]), **key
            ),
            shape=alt.Shape(
                "series:N", scale=alt.Scale(domain=series, range=SHAPES[: len(series)]), **key
            ),
        )
    )
    ends = [{"x": low, "y": low}, {"x": high, "y": high}]
    diagonal = (
        alt.Chart(alt.Data(values=ends))
        .mark_line(color="currentColor", strokeDash=[4, 3], strokeWidth=1)
        .encode(x=x, y=y)
    )
    return alt.layer(diagonal, points).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX)
