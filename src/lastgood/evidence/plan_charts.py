"""The pictures of a plan: the useful fraction over τ, what moves it, the wall time of a job, the risk of late detection.

Each draws a band or both ends where the answer is not one number. A projection is drawn nowhere: it has no axis of
time, and it is one sentence with its condition.
"""

from __future__ import annotations

import math
from typing import Any, Final

from lastgood.evidence.chart_growth import HEIGHT_PX, MARGIN_PX, titled
from lastgood.evidence.charts import BLUE, GREY, LANE_PX, ORANGE, RED, SKY
from lastgood.evidence.report import Chart

TORNADO_ROW_PX: Final = 30
LABELS_PX: Final = 130


def draw_useful_curve(chart: Chart, width_px: int) -> Any:
    """E over τ on a logarithmic axis. Columns: work, useful, lo, hi, first_order, is_plateau.

    The plateau is shaded, the band of uncertain inputs lies around the curve, the first-order claim is dashed.
    """
    import altair as alt

    names = ("x", "useful", "lo", "hi", "first", "plateau")
    values = [dict(zip(names, row, strict=False)) for row in chart.data.rows]
    floor = max(0.0, min(v["useful"] for v in values) - 0.02) if values else 0.0
    inside = [v["x"] for v in values if v["plateau"] == "yes"]
    x = alt.X(
        "x:Q",
        title=titled(chart.data.columns[0]),
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=_ticks([v["x"] for v in values]), format="~g"),
    )
    highest = max((v["hi"] or v["useful"] for v in values), default=1.0)
    scale = alt.Scale(domain=[floor, min(1.0, highest + 0.01)], nice=False)
    axis = alt.Axis(minExtent=20, maxExtent=60, tickCount=5, format=".2f")
    y = lambda name: alt.Y(f"{name}:Q", title=titled(chart.data.columns[1]), scale=scale, axis=axis)  # noqa: E731
    base = alt.Chart(alt.Data(values=values)).encode(x=x)
    layers = []
    if inside:
        area = alt.Data(values=[{"from": min(inside), "to": max(inside)}])
        layers.append(
            alt.Chart(area)
            .mark_rect(color=SKY, opacity=0.28)
            .encode(
                x=alt.X(
                    "from:Q",
                    scale=alt.Scale(type="log", nice=False),
                    title=titled(chart.data.columns[0]),
                ),
                x2="to:Q",
            )
        )
    banded = [v for v in values if v["lo"] is not None]
    if banded:
        band = alt.Chart(alt.Data(values=banded)).encode(x=x)
        layers.append(
            band.mark_area(color=GREY, opacity=0.35, clip=True).encode(y=y("lo"), y2="hi:Q")
        )
    claim = base.transform_filter(alt.datum.first >= floor)
    layers.append(
        claim.mark_line(color=RED, strokeDash=[5, 3], strokeWidth=1.2, clip=True).encode(
            y=y("first")
        )
    )
    layers.append(base.mark_line(color=BLUE, strokeWidth=2, clip=True).encode(y=y("useful")))
    if chart.marks:
        layers.extend(_upright(chart))
    return alt.layer(*layers).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX)


def _upright(chart: Chart) -> list[Any]:
    """Each mark as a thin rule with its name above; neighbours in two rows, so that names stay apart."""
    import altair as alt

    values = [{"x": m.at, "label": m.label, "row": i % 2} for i, m in enumerate(chart.marks)]
    marks = alt.Chart(alt.Data(values=values)).encode(x="x:Q")
    rule = marks.mark_rule(color="currentColor", strokeWidth=1, opacity=0.7)
    names = [
        marks.transform_filter(alt.datum.row == row)
        .mark_text(color="currentColor", fontSize=11, baseline="bottom", dy=-3 - 15 * row)
        .encode(y=alt.value(0), text="label:N")
        for row in sorted({value["row"] for value in values})
    ]
    return [rule, *names]


def _ticks(values: list[float]) -> list[float]:
    """1, 2 and 5 of each decade that lies inside: a logarithmic axis labels too much or nothing by itself."""
    if not values:
        return []
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]


def draw_tornado(chart: Chart, width_px: int) -> Any:
    """Points of E won or lost when an input is halved or doubled. Columns: input, change, points."""
    import altair as alt

    values = [
        {"name": name, "change": change, "points": points}
        for name, change, points in chart.data.rows
    ]
    order = list(dict.fromkeys(v["name"] for v in values))
    for value in values:
        value["words"] = f"{value['change']}: {value['points']:+.2f}"
        value["align"] = "left" if value["points"] >= 0 else "right"
    reach = max((abs(v["points"]) for v in values), default=1.0) or 1.0
    room = 1.9 if width_px > 500 else 3.0
    scale = alt.Scale(domain=[-reach * room, reach * room], nice=False)
    x = alt.X("points:Q", title=titled(chart.data.columns[2]), scale=scale)
    y = alt.Y("name:N", sort=order, title=None, scale=alt.Scale(domain=order, padding=0.1))
    offset = alt.YOffset("change:N", sort=["halved", "doubled"])
    colour = alt.Color(
        "change:N", legend=None, scale=alt.Scale(domain=["halved", "doubled"], range=[BLUE, ORANGE])
    )
    base = alt.Chart(alt.Data(values=values)).encode(y=y, yOffset=offset)
    bars = base.mark_bar(stroke="currentColor", strokeWidth=0.4, strokeOpacity=0.5).encode(
        x=x, color=colour
    )
    layers = [bars]
    for align, dx in (("left", 4), ("right", -4)):
        part = base.transform_filter(f"datum.align === '{align}'")
        layers.append(
            part.mark_text(
                align=align, dx=dx, fontSize=10, baseline="middle", color="currentColor"
            ).encode(x="points:Q", text="words:N")
        )
    zero = (
        alt.Chart(alt.Data(values=[{"x": 0}]))
        .mark_rule(color="currentColor", opacity=0.5)
        .encode(x="x:Q")
    )
    return alt.layer(*layers, zero).properties(
        width=width_px - LABELS_PX, height=max(1, len(order)) * TORNADO_ROW_PX
    )


def draw_wall_time(chart: Chart, width_px: int) -> Any:
    """Share of jobs done by a wall time, with p50, p90 and p99 marked. Columns: wall, share."""
    import altair as alt

    values = [{"x": x, "share": share} for x, share in chart.data.rows]
    x = alt.X("x:Q", title=titled(chart.data.columns[0]), scale=alt.Scale(zero=False, nice=False))
    y = alt.Y(
        "share:Q",
        title=titled(chart.data.columns[1]),
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(minExtent=20, maxExtent=60, tickCount=5),
    )
    curve = (
        alt.Chart(alt.Data(values=values))
        .mark_line(color=BLUE, strokeWidth=2, interpolate="step-after")
        .encode(x=x, y=y)
    )
    layers = [curve, *(_upright(chart) if chart.marks else [])]
    return alt.layer(*layers).properties(width=width_px - MARGIN_PX, height=HEIGHT_PX - 40)


def draw_risk(chart: Chart, width_px: int) -> Any:
    """Risk per corruption over kept checkpoints, logarithmic. Columns: kept, risk, wanted."""
    import altair as alt

    values = [{"x": kept, "risk": risk, "wanted": wanted} for kept, risk, wanted in chart.data.rows]
    lowest = min((min(v["risk"], v["wanted"]) for v in values), default=1e-3)
    scale = alt.Scale(type="log", domain=[lowest / 1.5, 1.0], nice=False)
    decades = [10.0**d for d in range(math.ceil(math.log10(lowest / 1.5)), 1)]
    axis = alt.Axis(minExtent=20, maxExtent=60, values=decades, format="~g")
    x = alt.X(
        "x:Q",
        title=titled(chart.data.columns[0]),
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1, format="d"),
    )
    base = alt.Chart(alt.Data(values=values)).encode(x=x)
    y = alt.Y("risk:Q", title=titled(chart.data.columns[1]), scale=scale, axis=axis)
    line = base.mark_line(
        color=BLUE, strokeWidth=1.5, point=alt.OverlayMarkDef(size=28, color=BLUE)
    )
    wanted = base.mark_line(color=RED, strokeDash=[5, 3], strokeWidth=1.2)
    layers = [line.encode(y=y), wanted.encode(y=alt.Y("wanted:Q", scale=scale, axis=axis))]
    layers += _upright(chart) if chart.marks else []
    return alt.layer(*layers).properties(width=width_px - MARGIN_PX, height=8 * LANE_PX)
