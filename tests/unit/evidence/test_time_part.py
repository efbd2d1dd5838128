"""Wall time drawn for runs of any length: nothing short is hidden, nothing long is unreadable."""

from __future__ import annotations

import dataclasses

import pytest

from lastgood.evidence import time_part
from lastgood.evidence.charts import chart_spec
from lastgood.ledger.ettr import measure_run
from tests.unit.evidence import sample_run


def times_of(events):
    return measure_run(events, run=events[0].run, as_of_us=events[-1].t_observed_us)


@pytest.fixture(scope="module")
def many():
    """A hundred faults in a run of more than an hour, none of them longer than a second."""
    record = sample_run.Recorder(is_injected=False)
    record.begin()
    following = 1
    for number in range(1, 101):
        fault = dataclasses.replace(sample_run.FAULTS[0], at_step=following + 300)
        record.steps(following, fault.at_step)
        following = record.incident(fault, number) + 1
    record.end()
    return times_of(record.events)


def test_a_short_outage_of_a_long_run_is_still_drawn(many):
    chart = time_part.strip_chart(many)
    drawn = {row[0] for row in chart.data.rows}
    assert drawn == {str(span.state) for span in many.wall.spans}
    assert "slices" in chart.caption


def test_slices_are_not_laid_over_each_other_in_one_lane(many):
    assert "run" not in lanes_of(many)
    assert "run" in lanes_of(times_of(sample_run.five_faults()))


def lanes_of(times):
    spec = chart_spec(time_part.strip_chart(times))
    return spec["layer"][0]["encoding"]["y"]["scale"]["domain"]


def test_the_slices_cover_every_stretch_of_their_state(many):
    rows = time_part.strip_chart(many).data.rows
    unit_us = time_part.time_unit(many.wall.window_us).us
    for span in many.wall.spans[::7]:
        begin, end = ((t - many.wall.start_us) / unit_us for t in (span.start_us, span.end_us))
        assert any(
            row[0] == span.state and row[1] <= begin + 1e-6 and end - 1e-6 <= row[2] for row in rows
        )


def test_too_many_incidents_are_counted_and_not_numbered(many):
    chart = time_part.strip_chart(many)
    assert chart.marks == ()
    assert "100 incidents are too many to number" in chart.caption


def test_a_short_run_is_drawn_exactly():
    times = times_of(sample_run.five_faults())
    chart = time_part.strip_chart(times)
    assert len(chart.data.rows) == len(times.wall.spans)
    assert "slices" not in chart.caption


def test_the_waterfall_ends_with_the_whole_of_what_was_not_productive():
    wall = times_of(sample_run.five_faults()).wall
    rows = time_part.waterfall_chart(wall).data.rows
    assert rows[-1][0] == "not productive"
    assert rows[-1][1] == pytest.approx(sum(row[1] for row in rows[:-1]))
    assert rows[-1][1] == pytest.approx((wall.window_us - wall.productive_us) / 1e6)


@pytest.mark.parametrize(
    ("window_s", "unit"), [(1, "s"), (600, "s"), (601, "min"), (36_000, "min"), (36_001, "h")]
)
def test_the_unit_of_time_fits_the_run(window_s, unit):
    assert time_part.time_unit(window_s * 1_000_000).name == unit


@pytest.mark.parametrize(
    ("window_s", "width_s"),
    [(29, None), (30, 10), (180, 60), (10_799, 600), (10_800, 3600), (10**7, 3600)],
)
def test_the_sliding_window_fits_three_times(window_s, width_s):
    width_us = time_part.sliding_width_us(window_s * 1_000_000)
    assert width_us == (None if width_s is None else width_s * 1_000_000)


def test_thinning_keeps_both_ends():
    kept = time_part.thinned(range(1000), 10)
    assert (len(kept), kept[0], kept[-1]) == (10, 0, 999)
    assert time_part.thinned([1, 2], 10) == [1, 2]
