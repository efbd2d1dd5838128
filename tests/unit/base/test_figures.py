"""Figures: what they print, and what they refuse to be or to print."""

import math

import msgspec
import pytest

from lastgood.base.errors import EvidenceError
from lastgood.base.figures import (
    DEVICE_TIME,
    Figure,
    FigureKind,
    FigureRole,
    Interval,
    assumed,
    check_renderable,
    combine,
    format_interval,
    format_value,
    is_work_rate,
    measured,
    project,
    render,
)

CORRECTNESS = measured("accepted share", 0.99, "ratio", source="test", role=FigureRole.CORRECTNESS)
LATENCY = measured("step time p99", 250_000, "us", source="test", role=FigureRole.LATENCY)


def interruptions() -> Figure:
    # 54 days and 419 interruptions: the published arithmetic of the source chapter.
    return Figure(
        name="mean time to interruption",
        value=54 * 86_400 * 1_000_000 / 419,
        unit="us",
        kind=FigureKind.REPORTED,
        interval=Interval(lo=1.01e10, hi=1.23e10, level=0.95, method="exact Poisson"),
        n=419,
        exposure="16384 devices over 54 d",
        source="published",
    )


def test_the_kind_and_what_a_reader_needs_are_always_printed():
    assert render(interruptions()) == (
        "3.09 h reported (2.81 h to 3.42 h, 95 %, exact Poisson; n = 419; "
        "exposure 16384 devices over 54 d)"
    )


def test_a_plain_measured_number_prints_without_brackets():
    assert render(measured("spares", 2, "", source="inventory")) == "2 measured"


@pytest.mark.parametrize("kind", list(FigureKind))
def test_every_kind_is_visible_in_the_text(kind):
    figure = Figure(
        name="x", value=1, unit="", kind=kind, condition="c", source_window="w", extrapolation=2.0
    )
    assert kind.value in render(figure)


def test_not_observed_is_not_zero():
    assert format_value(measured("x", None, "us", source="s")) == "not observed"
    assert render(measured("x", 0, "us", source="s")) == "0 us measured"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.97, "ratio", "0.9700"),
        (2**30, "bytes", "1 GiB"),
        (3, "ranks", "3 ranks"),
        (2.5, "", "2.5"),
    ],
)
def test_units_decide_how_a_value_prints(value, unit, text):
    assert format_value(measured("x", value, unit, source="s")) == text


def test_an_interval_prints_in_the_unit_of_its_figure():
    figure = measured(
        "x", 0.5, "ratio", source="s", interval=Interval(lo=0, hi=1, level=0.9, method="m")
    )
    assert format_interval(figure) == "0.0000 to 1.0000, 90 %, m"
    assert format_interval(measured("x", 1, "", source="s")) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_refused(value):
    with pytest.raises(EvidenceError, match="not observed"):
        measured("x", value, "", source="s")


@pytest.mark.parametrize(
    ("lo", "hi", "level"), [(2, 1, 0.9), (0, 1, 0.0), (0, 1, 1.0), (math.nan, 1, 0.9)]
)
def test_an_interval_that_is_none_is_refused(lo, hi, level):
    with pytest.raises(EvidenceError):
        Interval(lo=lo, hi=hi, level=level, method="m")


@pytest.mark.parametrize("kind", [FigureKind.MEASURED, FigureKind.REPORTED])
def test_nothing_that_rests_on_an_assumption_is_measured_or_reported(kind):
    with pytest.raises(EvidenceError, match="modelled or weaker"):
        Figure(name="x", value=1, unit="", kind=kind, assumptions=("independent faults",))


def test_a_figure_cannot_claim_more_than_its_weakest_part():
    with pytest.raises(EvidenceError, match="simulated or weaker"):
        Figure(name="x", value=1, unit="", kind=FigureKind.MEASURED, kinds=(FigureKind.SIMULATED,))


def test_a_number_that_a_person_typed_is_assumed():
    assert render(assumed("state", 10, "bytes")) == "10 B assumed"


def test_a_formula_keeps_what_its_parts_bring_along():
    typed = assumed("devices", 2, "")
    result = combine(
        [interruptions(), typed],
        lambda mean, devices: mean / devices,
        name="scaled",
        unit="us",
        source="mean over devices",
        assumptions=["failures are independent"],
    )
    assert result.kind is FigureKind.ASSUMED
    assert result.kinds == (FigureKind.REPORTED, FigureKind.MODELLED, FigureKind.ASSUMED)
    assert render(result) == (
        "1.55 h assumed (from reported, modelled, assumed; assuming failures are independent)"
    )


def test_what_was_not_observed_stays_not_observed():
    parts = [measured("a", None, "us", source="s"), measured("b", 2, "us", source="s")]
    assert combine(parts, lambda a, b: a / b, name="c", unit="ratio", source="a / b").value is None


def test_the_oldest_reading_dates_a_combination():
    parts = [
        measured("a", 1, "", source="s", as_of_us=20),
        measured("b", 1, "", source="s", as_of_us=10),
    ]
    assert combine(parts, lambda a, b: a + b, name="c", unit="", source="a + b").as_of_us == 10


def at_scale(**changes) -> Figure:
    arguments = {
        "name": "at 100,000 devices",
        "unit": "us",
        "condition": "failures stay independent and the rate per device stays as observed",
        "source_window": "54 d on 16384 devices",
        "extrapolation": 100_000 / 16_384,
        "source": "rate scaled by devices",
    }
    return project(interruptions(), lambda mean: mean * 16_384 / 100_000, **(arguments | changes))


def test_a_projection_prints_condition_window_and_factor():
    # 3.09 h at 16,384 devices is 30.4 minutes at 100,000, under the condition.
    assert render(at_scale()) == (
        "30.4 min projected (from reported, projected; "
        "if failures stay independent and the rate per device stays as observed; "
        "observed 54 d on 16384 devices; extrapolated 6.1 times)"
    )


@pytest.mark.parametrize("field", ["condition", "source_window", "extrapolation"])
def test_a_projection_without_its_condition_is_not_shown(field):
    figure = msgspec.structs.replace(at_scale(), **{field: None})
    with pytest.raises(EvidenceError, match=f"no {field}"):
        render(figure)


def test_a_result_that_rests_on_a_projection_is_one():
    result = combine([at_scale()], lambda x: 2 * x, name="twice", unit="us", source="2x")
    assert result.kind is FigureKind.PROJECTED
    assert "if failures stay independent" in render(result)
    assert result.extrapolation == pytest.approx(100_000 / 16_384)


def test_projecting_a_projection_multiplies_the_factors():
    again = project(
        at_scale(),
        lambda x: x / 2,
        name="y",
        unit="us",
        condition="and twice as many",
        source_window="54 d on 16384 devices",
        extrapolation=2.0,
        source="half",
    )
    assert again.extrapolation == pytest.approx(2 * 100_000 / 16_384)
    assert again.condition == f"{at_scale().condition}; and twice as many"
    assert again.source_window == "54 d on 16384 devices"


@pytest.mark.parametrize(
    ("companions", "missing"),
    [
        ((), "no correctness and no latency"),
        ((CORRECTNESS,), "no latency"),
        ((LATENCY,), "no correctness"),
    ],
)
@pytest.mark.parametrize(
    ("unit", "role"), [("tokens/s", FigureRole.PLAIN), ("ratio", FigureRole.THROUGHPUT)]
)
def test_useful_work_is_not_shown_without_its_companions(companions, missing, unit, role):
    figure = Figure(
        name="goodput",
        value=1.0,
        unit=unit,
        kind=FigureKind.MEASURED,
        role=role,
        companions=companions,
    )
    with pytest.raises(EvidenceError, match=missing):
        render(figure)


def test_useful_work_prints_beside_its_companions():
    figure = Figure(
        name="goodput",
        value=1200,
        unit="tokens/s",
        kind=FigureKind.MEASURED,
        companions=(CORRECTNESS, LATENCY),
    )
    assert render(figure) == (
        "1200 tokens/s measured (accepted share 0.9900 measured; step time p99 250 ms measured)"
    )


def test_a_companion_is_held_to_the_same_rules():
    bad = Figure(
        name="share",
        value=1.0,
        unit="ratio",
        kind=FigureKind.PROJECTED,
        role=FigureRole.CORRECTNESS,
    )
    figure = Figure(
        name="g", value=1, unit="tokens/s", kind=FigureKind.MEASURED, companions=(bad, LATENCY)
    )
    with pytest.raises(EvidenceError, match="projection"):
        check_renderable(figure)


@pytest.mark.parametrize(
    ("unit", "answer"),
    [
        ("tokens/s", True),
        ("samples/h", True),
        ("accepted outputs/min", True),
        ("steps/s", True),
        ("queries/s", True),
        ("bytes/s", False),
        ("faults/h", False),
        ("us", False),
    ],
)
def test_a_rate_of_useful_work_is_known_by_its_unit(unit, answer):
    assert is_work_rate(measured("x", 1, unit, source="s")) is answer


def test_a_figure_survives_the_way_to_json_and_back():
    figure = at_scale()
    assert msgspec.json.decode(msgspec.json.encode(figure), type=Figure) == figure


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "ranks", "1 rank"),
        (2, "ranks", "2 ranks"),
        (1, "events", "1 event"),
        (1, "device-s", "1 device-s"),
        (1_940_000, DEVICE_TIME, "1.94 device-s"),
        (0, DEVICE_TIME, "0 device-s"),
    ],
)
def test_one_of_a_thing_is_singular_and_device_time_says_so(value, unit, text):
    assert render(measured("x", value, unit, source="s")) == f"{text} measured"
