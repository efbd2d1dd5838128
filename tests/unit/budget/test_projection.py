"""Projections: the number never goes without its condition, and four things are never a rate."""

import msgspec
import pytest

from lastgood.base.errors import BadInput, EvidenceError, Refused
from lastgood.base.figures import FigureKind, check_renderable, render
from lastgood.budget.projection import (
    CONDITION,
    back_test,
    extrapolation_factor,
    project_mean_time,
    source_of_count,
)
from lastgood.budget.published.chapter import read_chapter
from lastgood.budget.published.clusters import cluster_source, read_clusters

MIN, H, D = 60e6, 3600e6, 86_400e6


def llama(**other):
    return source_of_count(
        events=419, window_us=54 * D, devices=16_384, kind=FigureKind.REPORTED, source="x", **other
    )


def test_the_published_rate_at_a_hundred_thousand_devices_is_half_an_hour_under_its_condition():
    figure = project_mean_time(llama(), devices=100_000).mean_time
    assert figure.value == pytest.approx(30.406201 * MIN, rel=1e-6)
    assert figure.kind is FigureKind.PROJECTED
    assert figure.condition == CONDITION
    assert figure.extrapolation == pytest.approx(6.1035, abs=1e-4)
    assert "54 d on 16,384 devices" in figure.source_window
    assert figure.interval.lo == pytest.approx(27.6 * MIN, rel=0.01)
    for words in ("if every interrupting hazard scales linearly", "observed", "extrapolated"):
        assert words in render(figure)


def test_a_projection_without_its_condition_cannot_be_shown():
    figure = project_mean_time(llama(), devices=100_000).mean_time
    for part in ("condition", "source_window", "extrapolation"):
        with pytest.raises(EvidenceError):
            check_renderable(msgspec.structs.replace(figure, **{part: None}))


@pytest.mark.parametrize(
    ("devices", "is_refused"), [(163_840, False), (163_841, True), (1_638, True), (1_639, False)]
)
def test_beyond_ten_times_it_is_refused_unless_accepted(devices, is_refused):
    if not is_refused:
        project_mean_time(llama(), devices=devices)
        return
    with pytest.raises(Refused, match="too far behind") as caught:
        project_mean_time(llama(), devices=devices)
    assert "--accept extrapolation" in str(caught.value)
    accepted = project_mean_time(llama(), devices=devices, accepted=["extrapolation"])
    assert accepted.mean_time.extrapolation > 10


def test_a_count_without_exposure_gives_no_law_per_device():
    with pytest.raises(Refused, match="without exposure"):
        source_of_count(events=419, window_us=54 * D, devices=None)
    with pytest.raises(BadInput):
        source_of_count(events=0, window_us=54 * D, devices=3)


@pytest.mark.parametrize("is_injected", [True, False])
def test_injected_faults_and_simulated_figures_are_no_rate(is_injected):
    import dataclasses

    source = llama()
    if is_injected:
        source = dataclasses.replace(source, is_injected=True)
    else:
        simulated = msgspec.structs.replace(
            source.mean_time, kind=FigureKind.SIMULATED, kinds=(FigureKind.SIMULATED,)
        )
        source = dataclasses.replace(source, mean_time=simulated)
    with pytest.raises(Refused, match="injected" if is_injected else "simulated"):
        project_mean_time(source, devices=20_000, accepted=["extrapolation"])


def test_the_back_test_of_the_research_cluster_shows_its_gap():
    """6.50 per 1,000 node-days on 128 nodes: 28.8 h; measured at 1,024 devices: 7.9 h; a gap of 3.7."""
    source, tests = cluster_source("rsc-1")
    projection = project_mean_time(source, devices=1_024, back_tests=tests)
    assert projection.mean_time.value == pytest.approx(1000 / 6.5 / 128 * 24 * H)
    assert projection.mean_time.value / H == pytest.approx(28.8, abs=0.05)
    (test,) = projection.back_tests
    assert test.measured.value == 7.9 * H
    assert test.ratio.value == pytest.approx(3.65, abs=0.01)
    assert "too hopeful by a factor of 3.7" in test.sentence
    assert test.ratio.kind is FigureKind.PROJECTED
    assert not projection.no_back_test


@pytest.mark.parametrize(("devices", "hours"), [(16_384, 1.803), (131_072, 0.2254)])
def test_the_research_cluster_gives_its_own_arithmetic(devices, hours):
    source, _ = cluster_source("rsc-1")
    assert project_mean_time(source, devices=devices).mean_time.value / H == pytest.approx(
        hours, abs=6e-4
    )
    assert cluster_source("rsc-2")[1] == ()
    assert read_clusters().gpus_per_node == 8


def test_a_smaller_size_inside_the_source_is_no_extrapolation():
    source, _ = cluster_source("rsc-1")
    assert extrapolation_factor(1_024, source) == 1.0
    assert extrapolation_factor(4, source) == 2.0
    assert extrapolation_factor(160_000, source) == 10.0


def test_a_back_test_can_be_too_gloomy():
    measured = llama().mean_time
    test = back_test(llama(), devices=32_768, measured=measured)
    assert test.ratio.value == pytest.approx(0.5)
    assert "too gloomy by a factor of 2" in test.sentence


def test_the_source_chapter_is_recomputed_from_its_own_inputs():
    chapter = read_chapter()
    assert chapter.plan.useful.value == pytest.approx(0.890118, abs=1e-6)
    assert chapter.plan.scenario.figure("mtti").value / H == pytest.approx(3.093079, abs=1e-6)
    assert chapter.projection.mean_time.value / MIN == pytest.approx(30.406201, abs=1e-6)
    assert chapter.plan.useful.kind is FigureKind.ASSUMED  # the costs are illustrative
