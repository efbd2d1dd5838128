"""Charts as files of their own, for a paper or a slide: SVG or PDF, black ink, nothing fetched.

On the page the ink is `currentColor`, which follows the reader's scheme. A file has no page around it, so here the ink
is black; all else is the same drawing of the same data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lastgood.base.errors import BadInput, MissingExtra
from lastgood.evidence.charts import WIDE_PX, chart_spec
from lastgood.evidence.output_file import Output, check_output, write_output
from lastgood.evidence.report import Chart, Report, Section

FORMATS: Final = ("svg", "pdf")
INK: Final = "#000000"


def write_charts(report: Report, folder: Path, *, format_name: str = "svg") -> list[Path]:
    """Write every chart of a report that has data into the folder; returns the files in reading order.

    Raises:
        BadInput: the folder cannot be made or written, or a file in it is no such chart.
    """
    kind = Output.PDF if format_name == "pdf" else Output.SVG
    drawn = {
        folder / f"{chart.name}.{format_name}": chart
        for chart in charts_in(report)
        if chart.data.rows
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "the charts cannot be written", where=str(folder), found=error.strerror or str(error)
        ) from error
    for path in drawn:
        check_output(path, kind)
    for path, chart in drawn.items():
        write_output(path, chart_bytes(chart, format_name=format_name), kind)
    return list(drawn)


def chart_bytes(chart: Chart, *, format_name: str, width_px: int = WIDE_PX) -> bytes:
    """One chart as the bytes of an SVG or PDF file."""
    assert format_name in FORMATS
    try:
        import vl_convert
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            module="vl_convert", extra="report", where=f"chart {chart.name}"
        ) from missing
    spec = _inked(chart_spec(chart, width_px=width_px))
    if format_name == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(spec))
    return vl_convert.vegalite_to_svg(spec).encode()


def charts_in(report: Report) -> list[Chart]:
    """Every chart of a report, in reading order."""
    found: list[Chart] = []

    def collect(section: Section) -> None:
        found.extend(section.charts)
        for part in section.parts:
            collect(part)

    for section in report.sections:
        collect(section)
    return found


def _inked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _inked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_inked(item) for item in value]
    return INK if value == "currentColor" else value
