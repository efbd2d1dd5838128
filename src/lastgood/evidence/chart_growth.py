"""Counts that grow with exposure: the pooled count with its Poisson band, and the mean per node with its bounds.

Both are step functions, and both have the same use: a straight line is a constant rate, a curve that bends upwards is
getting worse. What the reader compares with is drawn as well, as a dashed line or a band, never left to the eye.
"""

from __future__ import annotations

from typing import Any, Final

from lastgood.evidence.charts import BLUE, GREY, SERIES_COLOURS
from lastgood.evidence.report import Chart, Column

HEIGHT_PX: Final = 230
MARGIN_PX: Final = 70
"""What axis labels and padding take from the width."""
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""One per series, so that a curve is told from its neighbour without colour."""


def draw_cumulative(chart: Chart, width_px: int) -> Any:
    """The count over exposure, over the line and the band of a constant rate. Columns: x, count, line, lo, hi."""
    import altair as alt

    names = ("x", "count", "expected", "lo", "hi")
    values = [dict(zip(names, row, strict=False)) for row in chart.data.rows]
    base = alt.Chart(alt.Data(values=values)).encode(x=x_axis(chart.data.columns[0]))
    band = base.mark_area(color=GREY, opacity=0.28, interpolate="linear").encode(
        y=y_axis(chart.data.columns[1], "lo:Q"), y2="hi:Q"
    )
    line = base.mark_line(color="currentColor", strokeDash=[4, 3], strokeWidth=1).encode(
        y=y_axis(chart.data.columns[1], "expected:Q")
    )
    counted = base.mark_line(color=BLUE, strokeWidth=1.8, interpolate="step-after").encode(
        y=y_axis(chart.data.columns[1], "count:Q")
    )
    return alt.layer(band, line, counted).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX)


def draw_mean_cumulative(chart: Chart, width_px: int) -> Any:
    """Mean count per node over exposure with bounds. Columns: x, mean, lo, hi, series."""
    import altair as alt

    names = ("x", "mean", "lo", "hi", "series")
    values = [dict(zip(names, row, strict=False)) for row in chart.data.rows]
    series = list(dict.fromkeys(row["series"] for row in values))
    legend = (
        alt.Legend(
            title=None,
            orient="top",
            symbolType="stroke",
            symbolSize=500,
            symbolOpacity=1,
            symbolStrokeWidth=2,
            labelLimit=240,
        )
        if len(series) > 1
        else None
    )
    colours = [SERIES_COLOURS[i % len(SERIES_COLOURS)] for i in range(len(series))]
    dashes = [DASHES[i % len(DASHES)] for i in range(len(series))]
    key: dict[str, Any] = {"legend": legend}
    colour = alt.Color("series:N", scale=alt.Scale(domain=series, range=colours), **key)
    dash = alt.StrokeDash("series:N", scale=alt.Scale(domain=series, range=dashes), **key)
    base = alt.Chart(alt.Data(values=values)).encode(x=x_axis(chart.data.columns[0]), color=colour)
    band = base.mark_area(opacity=0.16, interpolate="step-after").encode(
        y=y_axis(chart.data.columns[1], "lo:Q"), y2="hi:Q"
    )
    curve = base.mark_line(strokeWidth=1.7, interpolate="step-after").encode(
        y=y_axis(chart.data.columns[1], "mean:Q"), strokeDash=dash
    )
    return alt.layer(band, curve).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX)


def x_axis(column: Column) -> Any:
    """The axis of exposure or time, with its unit, from the first to the last value."""
    import altair as alt

    return alt.X("x:Q", title=titled(column), scale=alt.Scale(nice=False, zero=False))


def y_axis(column: Column, shorthand: str) -> Any:
    """A count's axis: from zero, with room for its labels and no more."""
    import altair as alt

    return alt.Y(
        shorthand,
        title=titled(column),
        scale=alt.Scale(zero=True),
        axis=alt.Axis(minExtent=20, maxExtent=60, tickCount=5),
    )


def titled(column: Column) -> str:
    """A column's title with its unit."""
    return f"{column.title}, {column.unit}" if column.unit else column.title
