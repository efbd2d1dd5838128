"""A hole in the records without records in it changes nothing but the span of the calendar: one test per number.

Each compares a ledger whose files leave time uncovered with the ledger in which the same files follow each other.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from lastgood.base.rng import numpy_stream
from lastgood.base.units import US_PER_DAY, US_PER_H
from lastgood.evidence.rates_answers import fleet_headline
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part, read_records
from lastgood.evidence.rates_rows import rate_rows
from lastgood.evidence.rates_study import FleetStudies, study_fleet
from tests.unit.evidence import made_fleet as made

HALF, HOLE, NODES = 60, 400, 40
KINDS = ("nodes typed", "devices typed", "joins", "unknown")


def days_of_faults() -> list[tuple[float, int]]:
    """About 150 faults in bursts on one node and on many; none in the last week before the hole."""
    random = numpy_stream(3, "holes")
    found = []
    for day in np.sort(random.uniform(0, 2 * HALF, 60)):
        if HALF - 8.5 < day < HALF + 0.5:
            continue
        node = int(random.integers(0, NODES))
        found += [(day + 0.2 * i, node) for i in range(int(random.geometric(0.45)))]
    found += [(90 + 0.0001 * i, i) for i in range(9)]
    return [(day, node) for day, node in found if day < 2 * HALF]


def fleet(hole: float, kind: str) -> made.Fleet:
    one = made.Fleet()
    one.covers(0, HALF)
    one.covers(HALF + hole, 2 * HALF + hole)
    for day, node in days_of_faults():
        at = day + (hole if day > HALF else 0)
        one.fault(at, made.host(node), "gpu.memory", label=f"Part/{node % 2}", hours=2)
    one.fault(2 * HALF + hole - 0.5, made.host(1), "gpu.memory", label="Part/1", hours=None)
    for i in range(NODES) if kind == "joins" else ():
        one.joins(0, made.host(i), 8)
        if i >= NODES // 2:
            one.joins(HALF + hole + 10, made.host(i), 8)
    return one


@cache
def studies(hole: float, kind: str) -> FleetStudies:
    typed = {"nodes typed": {"nodes": NODES}, "devices typed": {"devices": 320}}.get(kind, {})
    with TemporaryDirectory() as folder:
        path = fleet(hole, kind).write(Path(folder) / "ledger.db")
        return study_fleet(read_records(path, RatesQuestion(**typed)))


@pytest.fixture(params=KINDS)
def both(request) -> tuple[FleetStudies, FleetStudies]:
    return studies(HOLE, request.param), studies(0, request.param)


def test_every_cell_of_the_flat_rows_is_the_same(both):
    """Rates, their intervals, mean times, dispersions and trends of all groups, as CSV and JSON have them."""
    holed, whole = (rate_rows(s) for s in both)
    for a, b in zip(holed, whole, strict=True):
        for name, value in b.items():
            same = value if not isinstance(value, float) else pytest.approx(value, rel=1e-6)
            assert a[name] == same, (a["group"], name)


def test_one_incident_every_is_the_same(both):
    a, b = (s.all.fleet_mean_time for s in both)
    assert (a is None) == (b is None)
    if a is not None:
        assert a.value == pytest.approx(b.value)
        assert (a.interval.lo, a.interval.hi) == pytest.approx((b.interval.lo, b.interval.hi))
        assert a.exposure == b.exposure


def test_weeks_and_bins_are_the_same(both):
    a, b = (s.all for s in both)
    assert a.weekly.counts.tolist() == b.weekly.counts.tolist()
    assert a.dispersion.counts.tolist() == b.dispersion.counts.tolist()
    assert a.dispersion.spread.sentence == b.dispersion.spread.sentence


def test_repairs_and_their_chance_are_the_same(both):
    for horizon in ("bounce_day", "bounce_week"):
        a, b = (getattr(s.all, horizon) for s in both)
        assert (a.repairs, a.bounces) == (b.repairs, b.bounces)
        assert a.baseline == pytest.approx(b.baseline)


def test_bursts_are_the_same(both):
    a, b = (s.all.bursts for s in both)
    assert (a.count, a.starts_in_bursts, a.finding.sentence) == (b.count, b.starts_in_bursts, b.finding.sentence)  # fmt: skip


def test_the_trend_is_the_same(both):
    a, b = (s.all.trend for s in both)
    assert [f.sentence for f in a.findings] == [f.sentence for f in b.findings]


def test_change_points_are_the_same(both):
    a, b = (s.all.changes for s in both)
    assert a.counts.tolist() == b.counts.tolist()
    assert a.sentence == b.sentence


def test_gaps_are_the_same(both):
    a, b = (s.all.gaps for s in both)
    assert (a.shape, a.cv) == pytest.approx((b.shape, b.cv), rel=1e-6)


def test_incidents_per_node_are_the_same(both):
    a, b = (s.all.mcf for s in both)
    assert (a is None) == (b is None)
    if a is not None:
        assert a.end == pytest.approx(b.end)
        assert (a.lo[-1], a.hi[-1]) == pytest.approx((b.lo[-1], b.hi[-1]))
        assert a.times_h[-1] == pytest.approx(b.times_h[-1])


def test_the_halves_of_a_node_are_the_same(both):
    a, b = (s.all.lemons for s in both)
    assert (a is None) == (b is None)
    if a is not None:
        assert [(n.node, n.first_half, n.second_half) for n in a.top] == [
            (n.node, n.first_half, n.second_half) for n in b.top
        ]
        assert a.persistence.sentence == b.persistence.sentence
        assert a.top[0].shrunken_rate == pytest.approx(b.top[0].shrunken_rate)


def test_how_long_it_took_is_the_same(both):
    a, b = ([d.sentence for d in s.all.durations] for s in both)
    assert a == b


def test_the_headline_says_observed_days_and_the_span_beside_them(both):
    holed, whole = (fleet_headline(s).sentence for s in both)
    assert " in 120 days observed (of 520 days);" in holed
    assert holed.replace(" observed (of 520 days)", "") == whole


def test_two_logs_of_ten_days_a_year_apart_are_twenty_days(tmp_path):
    one = made.Fleet()
    one.covers(0, 10)
    one.covers(365, 375)
    for i in range(40):
        one.fault(0.25 + i / 2 + (355 if i >= 20 else 0), made.host(i), "gpu.memory")
    records = read_records(one.write(tmp_path / "l.db"), RatesQuestion(nodes=100))
    found = study_fleet(records).all
    assert found.fleet_mean_time.value == pytest.approx(12 * US_PER_H)
    assert found.exposure.words == "48,000 node-h (100 nodes over 480.0 h)"


@pytest.mark.parametrize(("hole", "axis"), [(HOLE, "Observed time"), (0, "Time")])
def test_the_axis_of_a_picture_says_which_time_it_is(tmp_path, hole, axis):
    path = fleet(hole, "nodes typed").write(tmp_path / "l.db")
    section = fleet_part(path, RatesQuestion(nodes=NODES)).section
    charts = {c.name: c for p in section.parts for c in p.charts}
    for name in ("weekly", "mean-cumulative"):
        assert charts[name].data.columns[0].title == axis


def with_hole(tmp_path, *faults) -> FleetStudies:
    """Ten days, a year that nobody saw, ten days; faults are (day, node, hours or None)."""
    one = made.Fleet()
    one.covers(0, 10)
    one.covers(375, 385)
    for i in range(12):
        one.fault(1 + i / 2, made.host(i + 10), "gpu.memory", hours=2)
    for day, node, hours in faults:
        one.fault(day, made.host(node), "gpu.memory", hours=hours)
    return study_fleet(read_records(one.write(tmp_path / "l.db"), RatesQuestion(nodes=100)))


def test_a_repair_whose_day_lies_in_the_hole_neither_held_nor_bounced(tmp_path):
    """Ended five hours before the hole; the node's next fault comes three hours after it, a year later."""
    found = with_hole(tmp_path, (9.7, 1, 2.2), (375.125, 1, 1)).all.bounce_day
    assert (found.repairs, found.bounces) == (13, 0)


def test_no_burst_reaches_over_a_hole(tmp_path):
    found = with_hole(tmp_path, (9.9995, 1, 0.001), (375.0005, 2, 1)).all.bursts
    assert found.count == 0


def test_what_is_open_before_a_hole_was_open_until_the_hole(tmp_path):
    found = with_hole(tmp_path, (9, 1, None)).all
    assert found.durations[-1].open == 1
    assert found.sample.open_h["begin to end"].tolist() == pytest.approx([24.0])


def test_a_fault_that_lasts_through_a_hole_lasted_as_long_as_the_calendar_says(tmp_path):
    sample = with_hole(tmp_path, (9, 1, 24 * 368)).all.sample
    assert sample.closed_h["begin to end"].max() == pytest.approx(24 * 368)


def test_an_hour_of_the_studies_is_told_on_the_calendar(tmp_path):
    found = with_hole(tmp_path, (375.0, 1, 1), (380.0, 2, 1))
    late = found.all.sample.begin_h[-2:]
    days = [(found.instant_us(h) - made.BEGIN_US) / US_PER_DAY for h in late]
    assert days == pytest.approx([375.0, 380.0])
