"""Charts: the drawing holds its data, needs no colour to be read, and fits into a page with others."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from lastgood.evidence.charts import LANES, STATE_COLOURS, chart_spec, chart_svg
from tests.unit.evidence.made_reports import line, strip, waterfall

CHARTS = pytest.mark.parametrize("make", [strip, waterfall, line])


def words_of(svg: str) -> list[str]:
    return [
        "".join(node.itertext()) for node in ET.fromstring(svg).iter() if node.tag.endswith("text")
    ]


@CHARTS
def test_a_chart_is_well_formed_and_says_in_words_what_it_shows(make):
    svg = chart_svg(make())
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == make().alt


def one_series():
    chart = line()
    rows = tuple((step, y, "accepted") for step, y, _ in chart.data.rows)
    return msgspec.structs.replace(chart, data=msgspec.structs.replace(chart.data, rows=rows))


@pytest.mark.parametrize("make", [strip, waterfall, line, one_series])
def test_every_place_in_a_drawing_is_a_number(make):
    assert "NaN" not in chart_svg(make())


@CHARTS
def test_a_spec_obeys_the_schema_of_vega_lite(make):
    assert chart_spec(make(), validate=True) == chart_spec(make())


@CHARTS
def test_a_chart_needs_no_script_and_no_address(make):
    svg = chart_svg(make())
    assert not re.search(r"<script|https?://|<image|<foreignObject", svg)


def test_each_state_that_occurs_has_a_lane_with_its_name():
    lanes = [word for word in words_of(chart_svg(strip())) if word in LANES]
    assert lanes == ["productive", "warmup", "down.detect", "restore", "lost", "unknown"]


def test_incidents_are_numbered_on_the_strip():
    assert {"1", "2"} <= set(words_of(chart_svg(strip())))


def test_a_bar_of_the_waterfall_begins_where_the_last_one_ended():
    values = next(
        layer["data"]["values"] if "data" in layer else None
        for layer in [chart_spec(waterfall()), *chart_spec(waterfall())["layer"]]
        if "data" in layer
    )
    spans = [(round(v["begin"], 9), round(v["end"], 9)) for v in values]
    assert spans == [(0.0, 0.4), (0.4, 1.0), (1.0, 1.2), (0.0, 1.2)]


def test_each_bar_prints_its_amount():
    assert {"0.4", "0.6", "0.2", "1.2"} <= set(words_of(chart_svg(waterfall())))


def test_two_series_differ_in_shape_and_not_only_in_colour():
    shapes = {layer["encoding"]["shape"]["field"] for layer in chart_spec(line())["layer"]}
    assert shapes == {"series"}


def test_ink_follows_the_page_and_the_background_is_clear():
    svg = chart_svg(strip())
    fills = set(re.findall(r'<text[^>]* fill="([^"]+)"', svg))
    assert fills == {"currentColor"}
    assert 'fill="white"' not in svg


def test_every_state_of_wall_time_has_a_colour():
    # The sixteen states of design section 5.
    states = [
        "planned",
        "excluded",
        "down.schedule",
        "down.detect",
        "down.diagnose",
        "down.isolate",
        "down.restart",
        "restore",
        "down.verify",
        "warmup",
        "checkpoint.blocking",
        "stall",
        "degraded.excess",
        "lost",
        "productive",
        "unknown",
    ]
    assert set(STATE_COLOURS) == set(states)


def test_states_share_a_colour_only_where_they_mean_the_same():
    groups: dict[str, set[str]] = {}
    for state, colour in STATE_COLOURS.items():
        groups.setdefault(colour, set()).add(state)
    down = {f"down.{phase}" for phase in ("schedule", "detect", "diagnose", "isolate", "restart")}
    assert sorted(map(sorted, groups.values())) == sorted(
        map(
            sorted,
            [
                {"productive"},
                {"warmup", "checkpoint.blocking"},
                {"stall"},
                down,
                {"restore", "down.verify"},
                {"degraded.excess", "lost"},
                {"planned", "excluded"},
                {"unknown"},
            ],
        )
    )


def test_an_alternative_text_cannot_leave_its_attribute():
    evil = msgspec.structs.replace(strip(), alt='"><script>alert(1)</script>')
    svg = chart_svg(evil)
    assert "<script" not in svg
    assert ET.fromstring(svg).get("aria-label") == evil.alt


def test_a_state_name_from_a_ledger_cannot_become_markup():
    chart = waterfall()
    rows = (("<img src=x onerror=alert(1)>", 1.0, "loss"),)
    evil = msgspec.structs.replace(chart, data=msgspec.structs.replace(chart.data, rows=rows))
    assert "<img" not in chart_svg(evil)


@CHARTS
def test_a_drawing_has_no_ids_that_could_meet_those_of_another_on_the_page(make):
    assert not re.search(r"\bid=|url\(", chart_svg(make()))
