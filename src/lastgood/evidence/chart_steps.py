"""Counts that hold until they change, as stairs: how many workers stood in each state over time."""

from __future__ import annotations

from typing import Any, Final

from lastgood.evidence.charts import SERIES_COLOURS, draw_marks
from lastgood.evidence.report import Chart

DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
"""One way of drawing a line per series, so that colour is never the only signal."""
HEIGHT_PX: Final = 120
MARGIN_PX: Final = 70


def draw_steps(chart: Chart, width_px: int) -> Any:
    """Stairs over time. Columns: time, count, series; a row holds from its time to the next one of its series."""
    import altair as alt

    columns = chart.data.columns
    values = [{"x": x, "y": y, "series": series} for x, y, series in chart.data.rows]
    series = list(dict.fromkeys(row["series"] for row in values))
    last = max((row["x"] for row in values), default=1.0)
    highest = max((row["y"] for row in values), default=1)
    legend = alt.Legend(title=None, orient="top", labelFontSize=11, symbolType="stroke", symbolSize=260)  # fmt: skip
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("x:Q", title=f"{columns[0].title}, {columns[0].unit}", scale=alt.Scale(domain=[0, last], nice=False)),
        y=alt.Y("y:Q", title=columns[1].title, scale=alt.Scale(domain=[0, highest + 0.3], nice=False),
                axis=alt.Axis(minExtent=20, maxExtent=60, values=_ticks(highest), format="d")),
        color=alt.Color("series:N", legend=legend, scale=alt.Scale(domain=series, range=list(SERIES_COLOURS)[: len(series)])),
        strokeDash=alt.StrokeDash("series:N", legend=legend, scale=alt.Scale(domain=series, range=list(DASHES)[: len(series)])),
    )  # fmt: skip
    layers = [base.mark_line(interpolate="step-after", strokeWidth=1.8)]
    if chart.marks:
        layers.extend(draw_marks(chart))
    return alt.layer(*layers).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX)


def _ticks(highest: float) -> list[int]:
    """Whole numbers only, and not more than fit."""
    step = max(1, round(highest / 5))
    return list(range(0, int(highest) + 1, step))
