from __future__ import annotations

import pytest

from lastgood.base.errors import BadInput
from lastgood.base.figures import FigureKind, render
from lastgood.ledger.ettr import (
    HOUR_US,
    mean_time_to_interruption,
    measure_run,
    poisson_interval_us,
    progress_efficiency,
    sliding_ettr,
)
from lastgood.ledger.walltime import partition
from tests.unit.ledger.story import Story, us

DAY_US = 24 * HOUR_US


def broken_run() -> Story:
    """Four devices; 50 steps of 10 s, an outage of 100 s that goes back to state 45, then steps 46 to 100."""
    story = Story().start()
    story.tell("exposure.join", 0, devices=4, body={"worker": "all"})
    story.steps(1, 50, 0)
    story.incident("i1", onset=500, detect=540, diagnose=550, isolate=560, begin=570, restore=580, verify=600, close=600, target=45)  # fmt: skip
    story.new_attempt(600).steps(46, 100, 600)
    story.tell("exposure.leave", 1150, devices=4, body={"worker": "all"})
    return story.end(1150)


def measured_run(story: Story, *, as_of: float = 5000):
    return measure_run(story.events, run="r1", as_of_us=us(as_of))


def test_ettr_is_productive_time_over_wall_time():
    times = measured_run(broken_run())
    assert times.ettr.value == 1000 / 1150
    assert (times.ettr.unit, times.ettr.kind, times.ettr.n) == ("ratio", FigureKind.MEASURED, 100)
    assert times.ettr.as_of_us == us(5000)
    assert "r1" in times.ettr.source


def test_lost_time_and_lost_work_are_multiplied_by_the_devices_at_risk():
    times = measured_run(broken_run())
    assert times.lost_work.value == 4 * 50
    assert times.lost_work.n == times.lost_steps.value == 5
    assert times.lost_device_time.value == 4 * 150
    assert (
        times.longest_unproductive.value == 150_000_000
    )  # lost steps 46-50 and the outage behind them


def test_planned_time_is_nobodys_loss():
    story = Story().start()
    story.tell("exposure.join", 0, devices=2, body={"worker": "w"})
    story.steps(1, 10, 0)
    story.tell("planned.begin", 100)
    story.tell("planned.end", 200)
    times = measured_run(story.end(200))
    assert (times.ettr.value, times.ettr_counted.value) == (0.5, 1.0)
    assert times.lost_device_time.value == 0
    assert times.mean_time_to_interruption.n == 0


def test_without_exposure_records_lost_device_time_is_not_observed():
    times = measured_run(Story().start().steps(1, 10, 0).end(120))
    assert times.lost_device_time.value is None
    assert "not observed" in render(times.lost_device_time)


def test_progress_efficiency_is_accepted_steps_at_their_normal_pace():
    times = measured_run(broken_run())
    assert times.progress_efficiency.value == pytest.approx(100 * 10 / 1150)
    wall = times.wall
    assert progress_efficiency(wall, step_us_reference=5_000_000).value == pytest.approx(500 / 1150)


def test_every_figure_renders_with_its_kind():
    for figure in measured_run(broken_run()).figures:
        assert "measured" in render(figure)


# --- sliding ------------------------------------------------------------------------------------------


def test_sliding_ettr_finds_the_worst_hour_exactly():
    """Steps to 3600 s, half an hour down, steps again: the worst hour holds the whole outage."""
    story = Story().start().steps(1, 360, 0).new_attempt(5400).steps(361, 720, 5400).end(9000)
    wall = partition(story.events, run="r1", as_of_us=us(9999))
    points = sliding_ettr(wall, width_us=HOUR_US)
    assert min(point.ratio for point in points) == 0.5
    assert [(p.end_us - us(0)) / 1e6 for p in points if p.ratio == 0.5] == [5400, 7200]
    assert (points[0].ratio, points[-1].ratio) == (1.0, 1.0)
    assert measured_run(story, as_of=9999).ettr_sliding_min.value == 0.5


def test_sliding_ettr_agrees_with_counting_every_second():
    story = broken_run()
    wall = partition(story.events, run="r1", as_of_us=us(9999))
    productive = [
        any(s.state == "productive" and s.start_us <= us(t) < s.end_us for s in wall.spans)
        for t in range(1150)
    ]
    brute = {end: sum(productive[end - 200 : end]) / 200 for end in range(200, 1151)}
    points = sliding_ettr(wall, width_us=200_000_000)
    for point in points:
        assert point.ratio == pytest.approx(brute[round((point.end_us - us(0)) / 1e6)])
    assert min(p.ratio for p in points) == pytest.approx(min(brute.values()))


def test_a_run_shorter_than_the_window_has_no_sliding_value():
    times = measured_run(broken_run())
    assert times.ettr_sliding_min.value is None


def test_a_window_without_width_is_refused():
    wall = partition(broken_run().events, run="r1", as_of_us=us(9999))
    with pytest.raises(BadInput):
        sliding_ettr(wall, width_us=0)


# --- mean time to interruption ------------------------------------------------------------------------


def hours(value_us: float) -> float:
    return round(value_us / HOUR_US, 3)


def test_the_published_arithmetic_of_54_days_and_419_interruptions():
    """Reported: 419 unexpected interruptions in 54 days (Grattafiori and others 2024). 1296 h / 419 = 3.09 h."""
    figure = mean_time_to_interruption(
        419, 54 * DAY_US, kind=FigureKind.REPORTED, exposure="54 d of one job",
        source="Grattafiori and others 2024, table 5: counts as printed",
    )  # fmt: skip
    assert hours(figure.value) == 3.093
    assert render(figure).count("3.09 h") == 1
    assert "reported" in render(figure)
    assert (round(hours(figure.interval.lo), 2), round(hours(figure.interval.hi), 2)) == (
        2.81,
        3.41,
    )


@pytest.mark.parametrize(
    ("count", "mean_h", "lo_h", "hi_h"),
    [(466, 2.78, 2.54, 3.05), (268, 4.84, 4.29, 5.47), (6, 216, 99, 589)],
)
def test_the_exact_interval_gives_the_computed_values_of_other_rows(count, mean_h, lo_h, hi_h):
    figure = mean_time_to_interruption(
        count, 54 * DAY_US, exposure="54 d", source="counts as printed"
    )
    digits = 2 if count > 6 else 0
    found = (figure.value, figure.interval.lo, figure.interval.hi)
    assert tuple(round(value / HOUR_US, digits) for value in found) == (mean_h, lo_h, hi_h)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_interval_is_the_one_whose_tails_hold_the_error(count):
    """Oracle: the Poisson tail itself. At the bounds, seeing this many or more (fewer) has probability 2.5 %."""
    from scipy.stats import poisson

    lo_us, hi_us = poisson_interval_us(count, DAY_US, level=0.95)
    assert poisson.cdf(count, DAY_US / lo_us) == pytest.approx(0.025)
    assert poisson.sf(count - 1, DAY_US / hi_us) == pytest.approx(0.025)


def test_no_interruption_gives_a_bound_and_no_mean():
    """Rule of three: with 95 % confidence more than T / 2.996."""
    figure = mean_time_to_interruption(0, 3 * DAY_US, exposure="3 d", source="none")
    assert (figure.value, figure.interval, figure.n) == (None, None, 0)
    assert "none seen, so with 95% confidence more than" in figure.source
    assert poisson_interval_us(0, 2_995_732, level=0.95) == (pytest.approx(1e6, rel=1e-6), None)


def test_nothing_at_risk_says_nothing():
    figure = mean_time_to_interruption(0, 0, exposure="nothing", source="none")
    assert (figure.value, figure.interval, figure.source) == (None, None, "none")


@pytest.mark.parametrize(
    ("count", "exposure_us", "level"), [(-1, 5, 0.95), (1, -5, 0.95), (1, 5, 1.0)]
)
def test_impossible_counts_are_refused(count, exposure_us, level):
    with pytest.raises(BadInput):
        mean_time_to_interruption(count, exposure_us, exposure="", source="", level=level)


def test_a_log_without_any_record_of_work_gives_no_ratio_and_no_loss():
    source = {"importer": "slurm", "version": "1"}
    story = Story()
    story.tell("run.start", 0, source=source)
    story.tell("exposure.join", 0, devices=8, source=source)
    story.tell("exposure.leave", 7200, devices=8, source=source)
    story.tell("run.end", 7200, source=source)
    times = measure_run(story.events, run="r1", as_of_us=us(9000))
    unknown = (times.ettr, times.ettr_counted, times.ettr_sliding_min, times.longest_unproductive,
               times.lost_device_time, times.lost_work, times.lost_steps, times.progress_efficiency)  # fmt: skip
    assert [figure.value for figure in unknown] == [None] * 8
    assert "no record tells work from waiting" in times.ettr.source
    assert times.exposure.device_us == 8 * 7200 * 1_000_000


def test_figures_that_rest_on_steps_of_unknown_fate_are_not_observed():
    story = Story().start()
    story.tell("exposure.join", 0, devices=2, body={"worker": "w"})
    story.steps(1, 5, 0).new_attempt(50).steps(6, 10, 50)
    story.tell("restore", 60, body={"step": None, "tier": "script", "numbered_by": "count"})
    times = measure_run(story.end(100).events, run="r1", as_of_us=us(100))
    unknown = (times.ettr, times.ettr_counted, times.lost_work, times.lost_steps, times.progress_efficiency, times.longest_unproductive)  # fmt: skip
    assert [figure.value for figure in unknown] == [None] * 6
    assert "5 steps before a restart" in times.lost_work.source
