"""One self-contained HTML file: no script, no network, readable on a phone, on paper and without a mouse.

The page holds nothing that the report does not hold, and nothing of the moment of drawing, so that the
same report gives the same bytes (charts aside: their text widths depend on the machine's fonts).
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from lastgood.base.errors import MissingExtra
from lastgood.base.utf8_text import utf8_text
from lastgood.evidence import wording
from lastgood.evidence.charts import NARROW_PX, WIDE_PX, chart_svg
from lastgood.evidence.report import Chart, Report

_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)


def render_html(report: Report) -> str:
    """The whole page as text.

    Raises:
        EvidenceError: a figure that may not be shown, such as a projection without its condition.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ModuleNotFoundError as missing:
        raise MissingExtra(module="jinja2", extra="report", where="HTML report") from missing

    def svg(chart: Chart, width_px: int) -> Markup:
        return Markup(chart_svg(chart, width_px=width_px))  # noqa: S704 - our own drawing, its text is escaped there

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("report.html.j2").render(
        report=report,
        css=Markup(_template("report.css")),  # noqa: S704 - a file of this package
        svg=svg,
        wide_px=WIDE_PX,
        narrow_px=NARROW_PX,
        states=wording.STATES,
        signs=wording.SIGNS,
        nothing=wording.NOTHING,
        verdict_of=verdict_of,
        value_text=wording.value_text,
        kind_text=wording.kind_text,
        detail_text=wording.detail_text,
        interval_text=wording.interval_text,
        column_kind=wording.column_kind,
        table_texts=wording.table_texts,
        instant_text=wording.instant_text,
        since_text=wording.since_text,
        data_value_text=wording.data_value_text,
    )
    return utf8_text(page)


def without_charts(page: str) -> str:
    """The page with every drawing cut out: what must be equal on every machine (the data tables stay)."""
    return _SVG.sub("<svg></svg>", page)


def verdict_of(result: str) -> str:
    """Whether a verification's result holds; a result that nobody knows is unknown, never held."""
    return {"equal": "held", "within_tolerance": "held", "different": "not_held"}.get(
        result, "unknown"
    )


def _template(name: str) -> str:
    return Path(str(resources.files("lastgood.evidence") / "templates" / name)).read_text(
        encoding="utf-8"
    )
