"""The chart forms of a fleet: they obey the schema, hold their data, and need no colour and no script to be read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from lastgood.evidence.chart_files import chart_bytes, charts_in, write_charts
from lastgood.evidence.charts import chart_spec, chart_svg
from lastgood.evidence.report import Report, Reproduction, Section
from tests.unit.evidence import made_fleet_charts as made

CHARTS = pytest.mark.parametrize("make", made.ALL.values(), ids=made.ALL)


def layers_of(chart):
    return chart_spec(chart)["layer"]


def values_of(layer) -> list[dict]:
    return layer["data"]["values"]


def report_of(*charts) -> Report:
    part = Section(name="part", title="Part", charts=charts[1:])
    section = Section(name="fleet", title="Fleet", charts=charts[:1], parts=(part,))
    block = Reproduction(ledger="l", root="0" * 64, size=1, origin="o", version="v", command="c")
    return Report(title="t", subject="s", as_of_us=0, sections=(section,), reproduction=block)


@CHARTS
def test_a_spec_obeys_the_schema_of_vega_lite(make):
    assert chart_spec(make(), validate=True) == chart_spec(make())


@CHARTS
def test_a_drawing_has_words_no_script_and_no_place_that_is_no_number(make):
    svg = chart_svg(make())
    assert ET.fromstring(svg).get("aria-label") == make().alt
    assert not re.search(r"<script|https?://|<image|NaN|Infinity", svg)


@CHARTS
def test_a_drawing_fits_a_phone(make):
    box = re.search(r'viewBox="0 0 (\d+)', chart_svg(make(), width_px=330))
    assert box
    assert int(box.group(1)) <= 345


def test_the_count_is_drawn_over_the_band_and_not_below_it():
    marks = [layer["mark"]["type"] for layer in layers_of(made.cumulative())]
    assert marks == ["area", "line", "line"]
    assert layers_of(made.cumulative())[2]["mark"]["interpolate"] == "step-after"


def test_curves_of_nodes_differ_in_their_dashes_and_not_only_in_colour():
    curve = layers_of(made.mean_cumulative())[1]
    assert len({tuple(dash) for dash in curve["encoding"]["strokeDash"]["scale"]["range"]}) == 3


def test_a_level_reaches_over_every_week_of_its_stretch():
    level = chart_spec(made.weekly())["layer"][1]
    points = [(v["x"], v["level"]) for v in values_of(level)]
    assert points[:2] == [(0.0, 3.4), (7.0, 3.4)]
    assert points[-1] == (84.0, 3.2)


def test_both_axes_of_the_gap_chart_share_one_scale_so_the_diagonal_means_agreement():
    layer = layers_of(made.quantiles())[1]["encoding"]
    assert layer["x"]["scale"] == layer["y"]["scale"]


def test_a_gap_of_zero_has_no_logarithm_and_is_left_out():
    chart = made.quantiles()
    zero = msgspec.structs.replace(
        chart, data=msgspec.structs.replace(chart.data, rows=((0.0, 0.0, "exponential"), *chart.data.rows)),
    )  # fmt: skip
    assert len(values_of(layers_of(zero)[1])) == len(chart.data.rows)


def test_nodes_keep_the_order_of_the_data():
    lanes = layers_of(made.node_ranks())[-1]["encoding"]["y"]["scale"]["domain"]
    assert lanes == [row[0] for row in made.node_ranks().data.rows]


def test_the_mean_of_the_fleet_is_a_line_through_all_ranks():
    rule = layers_of(made.node_ranks())[0]
    assert (rule["mark"]["type"], values_of(rule)) == ("rule", [{"at": 2.6}])


def test_a_chart_file_is_black_on_nothing_and_a_pdf_is_one(tmp_path):
    svg = chart_bytes(made.weekly(), format_name="svg").decode()
    assert "currentColor" not in svg
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert chart_bytes(made.weekly(), format_name="pdf").startswith(b"%PDF")


def test_every_chart_with_data_becomes_a_file_in_reading_order(tmp_path):
    empty = msgspec.structs.replace(
        made.raster(), data=msgspec.structs.replace(made.raster().data, rows=())
    )
    report = report_of(made.cumulative(), empty, made.node_ranks())
    assert [chart.name for chart in charts_in(report)] == ["cumulative", "raster", "node-ranks"]
    files = write_charts(report, tmp_path / "new" / "charts")
    assert [path.name for path in files] == ["cumulative.svg", "node-ranks.svg"]
    assert all(path.stat().st_size > 1000 for path in files)


@pytest.mark.parametrize("odd", ["\x1b[31m", "\x00", "\ufffe", "\ud83d", "\x08"])
def test_a_name_that_no_svg_can_hold_is_spelled_out_and_drawn(odd):
    """The drawing library aborts the whole process on such a character: a log must not be able to do that."""
    chart = made.node_ranks()
    rows = ((f"gpu{odd}", *chart.data.rows[0][1:]), *chart.data.rows[1:])
    hostile = msgspec.structs.replace(
        chart, data=msgspec.structs.replace(chart.data, rows=rows), alt=f"words{odd}"
    )
    svg = chart_svg(hostile)
    assert ET.fromstring(svg).get("role") == "img"
    assert odd not in svg
    assert f"\\x{ord(odd[0]):02x}" in svg
