"""Nodes one below the other: when each of them failed, and how its rate stands among all."""

from __future__ import annotations

from typing import Any, Final

from lastgood.evidence.chart_growth import titled
from lastgood.evidence.charts import BLUE, GREY, LANE_LABEL_PX, RED, draw_marks
from lastgood.evidence.report import Chart

ROW_PX: Final = 14
LABEL_PX: Final = 92
"""A page may use a wider font than the one that the drawing was measured with."""


def draw_raster(chart: Chart, width_px: int) -> Any:
    """A lane per node with a mark where it failed. Columns: node, begin, end, count.

    Many failures of one node in one cell make the mark higher and darker; a burst over many nodes is a column, and the
    numbered rules name the largest.
    """
    import altair as alt

    nodes = list(dict.fromkeys(row[0] for row in chart.data.rows))
    values = [
        {"node": node, "begin": begin, "end": end, "count": count}
        for node, begin, end, count in chart.data.rows
    ]
    begin, end = chart.data.columns[1], max((v["end"] for v in values), default=1.0)
    x = alt.X("begin:Q", title=titled(begin), scale=alt.Scale(domain=[0, end], nice=False))
    y = _lanes("node", nodes)
    most = max((v["count"] for v in values), default=1)
    marks = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(color=BLUE)
        .encode(
            x=x,
            x2="end:Q",
            y=y,
            opacity=alt.Opacity(
                "count:Q", legend=None, scale=alt.Scale(domain=[0, max(2, most)], range=[0.45, 1.0])
            ),
        )
    )
    layers = [marks, *(draw_marks(chart) if chart.marks else [])]
    return alt.layer(*layers).properties(
        width=width_px - LANE_LABEL_PX - 14, height=ROW_PX * max(1, len(nodes))
    )


def draw_node_ranks(chart: Chart, width_px: int) -> Any:
    """Per node the rate as counted (hollow) and the shrunken one with its interval. Columns: node, raw, shrunken, lo, hi.

    A mark of the chart is the fleet's own mean.
    """
    import altair as alt

    names = ("node", "raw", "shrunken", "lo", "hi")
    values = [dict(zip(names, row, strict=False)) for row in chart.data.rows]
    y = _lanes("node", [v["node"] for v in values])
    base = alt.Chart(alt.Data(values=values)).encode(y=y)
    title = titled(chart.data.columns[2])
    spread = base.mark_rule(color=BLUE, strokeWidth=2.4, opacity=0.55).encode(
        x=alt.X("lo:Q", title=title, scale=alt.Scale(zero=True, nice=False)), x2="hi:Q"
    )
    shrunken = base.mark_point(color=BLUE, filled=True, size=42, opacity=1).encode(
        x=alt.X("shrunken:Q", title=title)
    )
    counted = base.mark_point(color=RED, shape="diamond", filled=False, size=42, opacity=1).encode(
        x=alt.X("raw:Q", title=title)
    )
    layers = [spread, counted, shrunken]
    if chart.marks:
        mean = alt.Chart(alt.Data(values=[{"at": mark.at} for mark in chart.marks]))
        layers.insert(
            0, mean.mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.2).encode(x="at:Q")
        )
    return alt.layer(*layers).properties(
        width=width_px - LANE_LABEL_PX - 14, height=ROW_PX * max(1, len(values))
    )


def _lanes(field: str, names: list[str]) -> Any:
    import altair as alt

    return alt.Y(
        f"{field}:N",
        sort=names,
        title=None,
        scale=alt.Scale(domain=names, padding=0.18),
        axis=alt.Axis(labelFontSize=10, labelLimit=LABEL_PX),
    )
