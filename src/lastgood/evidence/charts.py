"""Charts as static SVG: data in, Vega-Lite spec by altair, drawing by vl-convert. No script reaches the page.

Colour is never the only signal: a state has its own labelled lane, a bar its label and its number, a series
its own shape. The colours are those of Okabe and Ito, which stay apart for all common kinds of colour blindness, and a
violet that stays apart from them (theirs looks like the grey to many); each means one thing everywhere: green is accepted
work, light blue is preparing and saving, orange is down with a fault, violet is a stall without anybody at work on one,
blue is putting back, red is work thrown away, grey is planned or outside the count, hollow is unknown.
Ink is `currentColor`, so that one picture serves the light page, the dark page and the printer.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable
from typing import Any, Final

from lastgood.base.errors import MissingExtra
from lastgood.base.units import format_number
from lastgood.evidence.report import Chart

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for: control characters, lone surrogates, two non-characters."""
WIDE_PX: Final = 800
NARROW_PX: Final = 330
"""Widths of the two drawings of each chart: the style sheet shows the one that stays readable."""
LINE_POINTS_MAX: Final = 30
"""A curve through more points than this is drawn without them."""
MANY_PX2, FEW_PX2 = 14, 40
"""Area of a point where there are many, and where each of a few has to be found."""
LANE_PX: Final = 19
LANE_LABEL_PX: Final = 118
"""Room for the longest state name; fixed, so that charts under each other share their left edge."""

GREEN, ORANGE, BLUE, RED, GREY, SKY, VIOLET = (
    "#009E73",
    "#E69F00",
    "#0072B2",
    "#D55E00",
    "#8C8C8C",
    "#56B4E9",
    "#8A2BE2",
)

STATE_COLOURS: Final[dict[str, str]] = {
    "productive": GREEN,
    "warmup": SKY,
    "checkpoint.blocking": SKY,
    "down.schedule": ORANGE,
    "down.detect": ORANGE,
    "down.diagnose": ORANGE,
    "down.isolate": ORANGE,
    "down.restart": ORANGE,
    "restore": BLUE,
    "down.verify": BLUE,
    "stall": VIOLET,
    "degraded.excess": RED,
    "lost": RED,
    "planned": GREY,
    "excluded": GREY,
    "unknown": "transparent",
}
"""State of wall time -> fill, in the order of the lanes from top to bottom."""

LANES: Final = tuple(STATE_COLOURS)
FORMS: Final[dict[str, str]] = {
    "strip": "lastgood.evidence.charts:draw_strip",
    "waterfall": "lastgood.evidence.charts:draw_waterfall",
    "line": "lastgood.evidence.charts:draw_line",
    "steps": "lastgood.evidence.chart_steps:draw_steps",
    "cumulative": "lastgood.evidence.chart_growth:draw_cumulative",
    "mean_cumulative": "lastgood.evidence.chart_growth:draw_mean_cumulative",
    "weekly": "lastgood.evidence.chart_counts:draw_weekly",
    "quantiles": "lastgood.evidence.chart_counts:draw_quantiles",
    "raster": "lastgood.evidence.chart_nodes:draw_raster",
    "node_ranks": "lastgood.evidence.chart_nodes:draw_node_ranks",
    "useful_curve": "lastgood.evidence.plan_charts:draw_useful_curve",
    "tornado": "lastgood.evidence.plan_charts:draw_tornado",
    "wall_time": "lastgood.evidence.plan_charts:draw_wall_time",
    "risk": "lastgood.evidence.plan_charts:draw_risk",
}
"""Form of a chart -> `module:function(chart, width_px)` that gives its altair chart. A new form is one row here."""
SERIES_COLOURS: Final = (BLUE, RED, GREEN, ORANGE)
SERIES_SHAPES: Final = ("circle", "cross", "square", "triangle-up")


@functools.lru_cache(maxsize=64)
def chart_svg(chart: Chart, *, width_px: int = WIDE_PX) -> str:
    """One chart as an SVG element that scales with its container and carries its words for screen readers."""
    try:
        import vl_convert
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            module="vl_convert", extra="report", where=f"chart {chart.name}"
        ) from missing
    svg = vl_convert.vegalite_to_svg(chart_spec(chart, width_px=width_px))
    return _embeddable(svg, alt=chart.alt)


def chart_spec(chart: Chart, *, width_px: int = WIDE_PX, validate: bool = False) -> dict[str, Any]:
    """The Vega-Lite spec of a chart, with its data inside.

    Checking it against the schema takes longer than drawing it, so the tests do that and a report does not: neither
    the whole, nor each part of it as it is made.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(validate):
        drawing = _drawing_of(chart.form)(chart, width_px).configure(**_config(width_px))
        spec = drawing.to_dict(validate=validate)
    spec.pop("$schema", None)  # an address that no reader of the file needs
    return _drawable(spec)


def _drawable(value: Any) -> Any:
    """The spec with every character spelled out that an SVG cannot hold: the drawing library aborts the process on one."""
    if isinstance(value, str):
        return _NOT_XML.sub(lambda found: f"\\x{ord(found.group()):02x}", value)
    if isinstance(value, dict):
        return {_drawable(key): _drawable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_drawable(item) for item in value]
    return value


def _drawing_of(form: str) -> Callable[[Chart, int], Any]:
    """The function that draws a form: its file is imported when the first chart of it is drawn."""
    module, _, name = FORMS[form].partition(":")
    return getattr(importlib.import_module(module), name)


def draw_strip(chart: Chart, width_px: int) -> Any:
    """Wall time as lanes: the run as a whole on top, then one lane per state that occurs."""
    import altair as alt

    unit = chart.data.columns[1].unit
    rows = [{"state": s, "begin": b, "end": e} for s, b, e in (row[:3] for row in chart.data.rows)]
    seen = {row["state"] for row in rows}
    lanes = [state for state in LANES if state in seen]
    values = [{**row, "lane": row["state"]} for row in rows]
    if _is_partition(rows):
        lanes.insert(0, "run")
        values = [{**row, "lane": "run"} for row in rows] + values
    last = max((row["end"] for row in rows), default=1.0)
    x = alt.X(
        "begin:Q",
        title=f"time since start, {unit}",
        scale=alt.Scale(domain=[0, last], nice=False, zero=True),
    )
    y = alt.Y("lane:N", sort=lanes, title=None, scale=alt.Scale(domain=lanes, padding=0.22))
    fills = alt.Scale(domain=list(LANES), range=list(STATE_COLOURS.values()))
    colour = alt.Color("state:N", legend=None, scale=fills)
    edge = alt.Stroke("state:N", legend=None, scale=fills)
    base = alt.Chart(alt.Data(values=values)).encode(x=x, x2="end:Q", y=y)
    bars = base.mark_bar(cornerRadius=0).encode(
        color=colour, stroke=edge, strokeWidth=alt.value(0.8)
    )
    layers = [bars]
    if "unknown" in seen:
        hollow = base.transform_filter("datum.state === 'unknown'")
        layers.append(
            hollow.mark_bar(filled=False, stroke="currentColor", strokeDash=[2, 2], strokeWidth=1)
        )
    if chart.marks:
        layers.extend(draw_marks(chart))
    height = LANE_PX * len(lanes)
    return alt.layer(*layers).properties(width=_plot_px(width_px), height=height)


def _is_partition(rows: list[dict[str, Any]]) -> bool:
    """True when no two stretches overlap, so that one lane can show them all without hiding any."""
    ordered = sorted(rows, key=lambda row: row["begin"])
    return all(a["end"] <= b["begin"] for a, b in itertools.pairwise(ordered))


def draw_marks(chart: Chart) -> list[Any]:
    """Numbered instants above the first lane, each with a thin rule through all lanes."""
    import altair as alt

    marks = alt.Chart(
        alt.Data(values=[{"at": m.at, "label": m.label} for m in chart.marks])
    ).encode(x="at:Q")
    rules = marks.mark_rule(color="currentColor", opacity=0.45, strokeWidth=0.8, strokeDash=[3, 2])
    labels = marks.mark_text(
        color="currentColor", fontSize=11, fontWeight="bold", baseline="bottom", dy=-3, clip=False
    ).encode(y=alt.value(0), text="label:N")
    return [rules, labels]


def draw_waterfall(chart: Chart, width_px: int) -> Any:
    """Bars that each begin where the last one ended; the row of role `total` begins at zero again."""
    import altair as alt

    unit = chart.data.columns[1].unit
    steps = _cumulated(chart)
    order = [step["label"] for step in steps]
    last = max((step["end"] for step in steps), default=1.0) or 1.0
    x = alt.X(
        "begin:Q",
        title=f"{chart.data.columns[1].title}, {unit}",
        scale=alt.Scale(domain=[0, last * 1.16], nice=False),
    )
    y = alt.Y("label:N", sort=order, title=None, scale=alt.Scale(domain=order, padding=0.22))
    base = alt.Chart(alt.Data(values=steps)).encode(y=y)
    bars = base.mark_bar(stroke="currentColor", strokeWidth=0.5, strokeOpacity=0.55).encode(
        x=x, x2="end:Q", color=alt.Color("colour:N", scale=None, legend=None)
    )
    words = base.mark_text(
        align="left", baseline="middle", dx=5, fontSize=11, color="currentColor"
    ).encode(x="end:Q", text="words:N")
    return alt.layer(bars, words).properties(
        width=_plot_px(width_px), height=LANE_PX * max(1, len(steps))
    )


def _cumulated(chart: Chart) -> list[dict[str, Any]]:
    steps, reached = [], 0.0
    for label, amount, role in (row[:3] for row in chart.data.rows):
        begin = 0.0 if role == "total" else reached
        end = begin + float(amount)
        reached = end
        colour = GREY if role == "total" else STATE_COLOURS.get(label, GREY)
        steps.append(
            {
                "label": label,
                "begin": begin,
                "end": end,
                "colour": colour,
                "words": format_number(amount),
            }
        )
    return steps


def draw_line(chart: Chart, width_px: int) -> Any:
    """Points and lines over x, one colour and one shape per series; a third column names the series."""
    import altair as alt

    columns = chart.data.columns
    has_series = len(columns) > 2
    values = [{"x": r[0], "y": r[1], "series": r[2] if has_series else ""} for r in chart.data.rows]
    series = list(dict.fromkeys(row["series"] for row in values))
    titles = [f"{c.title}, {c.unit}" if c.unit else c.title for c in columns]
    legend = alt.Legend(title=None, orient="top", labelFontSize=11) if len(series) > 1 else None
    key = {"legend": legend}
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "x:Q",
            title=titles[0],
            scale=alt.Scale(zero=False, nice=False),
            axis=alt.Axis(tickMinStep=1),
        ),
        y=alt.Y(
            "y:Q",
            title=titles[1],
            scale=alt.Scale(zero=True),
            axis=alt.Axis(minExtent=20, maxExtent=60, tickCount=4),
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=series, range=list(SERIES_COLOURS)[: len(series)]),
            **key,
        ),
        shape=alt.Shape(
            "series:N",
            scale=alt.Scale(domain=series, range=list(SERIES_SHAPES)[: len(series)]),
            **key,
        ),
    )
    size = FEW_PX2 if len(values) <= LINE_POINTS_MAX else MANY_PX2
    points = base.mark_point(filled=True, opacity=0.9, size=size)
    if (
        len(series) > 1
    ):  # the first series is the many, the others are the few that a reader looks for
        sizes = alt.Scale(domain=series, range=[size, *[60] * (len(series) - 1)])
        points = points.encode(size=alt.Size("series:N", legend=None, scale=sizes))
    curve = base.mark_line(strokeWidth=1.5)
    layers = (
        [points] if has_series else [curve] if len(values) > LINE_POINTS_MAX else [curve, points]
    )
    if chart.marks:
        layers.extend(draw_marks(chart))
    return alt.layer(*layers).properties(width=width_px - 70, height=130)


def _plot_px(width_px: int) -> int:
    return width_px - LANE_LABEL_PX - 14


def _config(width_px: int) -> dict[str, Any]:
    ink = "currentColor"
    axis = {
        "labelColor": ink,
        "titleColor": ink,
        "domainColor": ink,
        "tickColor": ink,
        "gridColor": ink,
        "gridOpacity": 0.14,
        "domainOpacity": 0.35,
        "tickOpacity": 0.35,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": LANE_LABEL_PX,
        "titlePadding": 7,
        "labelPadding": 6,
    }
    return {
        "background": "transparent",
        "font": "sans-serif",
        "padding": {"left": 2, "right": 12, "top": 4, "bottom": 2},
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {
            "minExtent": LANE_LABEL_PX - 6,
            "maxExtent": LANE_LABEL_PX - 6,
            "domain": False,
            "ticks": False,
        },
        "axisX": {"tickCount": 8 if width_px > NARROW_PX else 4, "labelOverlap": True},
        "legend": {"labelColor": ink, "titleColor": ink},
    }


def _embeddable(svg: str, *, alt: str) -> str:
    """The SVG without fixed size, with a role and an accessible name."""
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box, "vl-convert always gives a viewBox"
    view = box.group(1)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(
        r' role="[^"]*"| aria-roledescription="[^"]*"| aria-label="[^"]*"| aria-hidden="[^"]*"',
        "",
        body,
    )
    return f'<svg viewBox="{view}" role="img" aria-label="{_attribute(alt)}" width="{view.split()[2]}">{body}'


def _attribute(text: str) -> str:
    return (
        _drawable(text)
        .replace("&", "&amp;")
        .replace('"', "&quot;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )
