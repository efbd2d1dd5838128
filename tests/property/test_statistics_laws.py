"""Laws that hold for every record: units, order, nesting, conservation, and agreement with the plain definition."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lastgood.budget.bursts import bursts
from lastgood.budget.change_points import change_points
from lastgood.budget.dispersion import count_in_bins, dispersion
from lastgood.budget.intervals import garwood, headline, scaled_garwood
from lastgood.budget.lemons import lemons
from lastgood.budget.mcf import mean_cumulative
from lastgood.budget.multiplicity import benjamini_hochberg, holm
from lastgood.budget.operational import constant, from_steps
from lastgood.budget.rates import study
from lastgood.budget.renewal import gap_shape
from lastgood.budget.repair import bounces
from lastgood.budget.sample import Sample
from lastgood.budget.survival import durations
from lastgood.budget.trend import trend

WINDOW_H = 1000.0
HOURS = st.integers(0, 100_000).map(lambda ticks: ticks / 100)
"""A grid of 36 s, so that equal times happen."""
RECORDS = st.lists(HOURS, max_size=80).map(lambda times: np.array(sorted(times), dtype=float))


@st.composite
def fault_records(draw, nodes=6):
    rows = draw(
        st.lists(
            st.tuples(HOURS, st.integers(0, 5000), st.integers(0, nodes - 1), st.booleans()),
            max_size=60,
        )
    )
    begin = np.array([row[0] for row in rows], dtype=float)
    end = np.array(
        [math.nan if is_open else b + ticks / 100 for b, ticks, _, is_open in rows], dtype=float
    )
    end[end > WINDOW_H] = math.nan
    return begin, end, np.array([row[2] for row in rows], dtype=np.int64)


@given(st.integers(0, 10_000), st.floats(1e-3, 1e9), st.floats(0.5, 0.999))
def test_an_exact_interval_holds_its_rate_and_grows_with_the_level(count, exposure, level):
    inner, outer = (
        garwood(count, exposure, level=level),
        garwood(count, exposure, level=(1 + level) / 2),
    )
    assert inner.lo <= inner.rate <= inner.hi
    assert outer.lo <= inner.lo
    assert inner.hi <= outer.hi


@given(st.integers(1, 10_000), st.floats(0.1, 50), st.floats(3, 1000))
def test_a_scaled_interval_holds_the_exact_one(count, index, degrees):
    exact, scaled = garwood(count, 10.0), scaled_garwood(count, 10.0, index=index, degrees=degrees)
    assert scaled.lo <= exact.lo * (1 + 1e-9)
    assert exact.hi <= scaled.hi * (1 + 1e-9)


@given(RECORDS, st.floats(0.01, 100))
def test_the_unit_of_time_changes_no_verdict(times, factor):
    plain, scaled = headline(times, WINDOW_H), headline(times * factor, WINDOW_H * factor)
    # An event that lies on the edge of a bin may fall to either side of it when the unit is another.
    edges = np.arange(26) * (WINDOW_H / 25)
    assume(not np.isin(times, edges).any())
    assume(
        len(times) == 0
        or np.abs(times[:, None] / WINDOW_H * np.arange(5, 26)[None, :] % 1).min() > 1e-9
    )
    assert scaled.interval.method == plain.interval.method
    assert scaled.interval.hi * factor == pytest.approx(plain.interval.hi)
    assert trend(times * factor, WINDOW_H * factor).direction == trend(times, WINDOW_H).direction


@given(RECORDS)
def test_the_record_read_backwards_has_the_opposite_laplace_statistic(times):
    forwards, backwards = (
        trend(times, WINDOW_H).laplace,
        trend(np.sort(WINDOW_H - times), WINDOW_H).laplace,
    )
    if forwards.statistic is not None:
        assert backwards.statistic == pytest.approx(-forwards.statistic, abs=1e-9)
        assert backwards.p == pytest.approx(forwards.p, abs=1e-9)


@given(RECORDS, st.integers(1, 50))
def test_bins_keep_every_event(times, bins):
    counts = count_in_bins(times, WINDOW_H, bins)
    assert counts.sum() == len(times)
    assert len(counts) == bins


@given(RECORDS)
def test_every_p_value_is_a_probability_and_every_number_finite(times):
    found = trend(times, WINDOW_H)
    findings = [*found.findings, gap_shape(times, WINDOW_H).finding]
    if len(times):
        spread = dispersion(times, WINDOW_H)
        findings += [spread.spread, spread.memory]
    for finding in findings:
        assert finding.p is None or 0 <= finding.p <= 1
        assert finding.statistic is None or math.isfinite(finding.statistic)
        assert finding.is_rejected == (None if finding.p is None else finding.p < 0.05)


@given(RECORDS)
def test_segments_tile_the_bins_and_keep_the_counts(times):
    found = change_points(times, WINDOW_H)
    if found is not None:
        assert found.segments[0].first == 0
        assert found.segments[-1].end == len(found.counts)
        assert all(
            a.end == b.first for a, b in zip(found.segments, found.segments[1:], strict=False)
        )
        assert sum(s.count for s in found.segments) == found.counts.sum()
        assert found.changes <= found.naive_changes


def plain_bounces(begin, end, node, horizon_h):
    """The definition, by every pair of faults, in whole microseconds."""
    us = lambda h: round(h * 3.6e9)
    faults = [
        (us(b), None if math.isnan(e) else us(e), n)
        for b, e, n in zip(begin, end, node, strict=True)
    ]
    repairs = [(e, n) for _, e, n in faults if e is not None and e <= us(WINDOW_H - horizon_h)]
    held = [any(m == n and e < b <= e + us(horizon_h) for b, _, m in faults) for e, n in repairs]
    return len(repairs), sum(held)


@given(fault_records(), st.sampled_from([1.0, 24.0, 168.0]))
def test_bounces_are_those_of_the_definition(record, horizon_h):
    begin, end, node = record
    (found,) = bounces(begin, end, node, nodes=6, window_h=WINDOW_H, horizons_h=(horizon_h,))
    assert (found.repairs, found.bounces) == plain_bounces(begin, end, node, horizon_h)


@given(fault_records())
def test_the_mean_cumulative_function_never_falls_and_ends_at_events_per_node(record):
    times, _, node = record
    found = mean_cumulative(times, node, nodes=6, window_h=WINDOW_H)
    assert found.end == pytest.approx(len(times) / 6)
    assert (np.diff(found.value) >= 0).all()
    seen = np.isfinite(found.lo)
    assert (found.lo[seen] <= found.value[seen]).all()
    assert (found.value[seen] <= found.hi[seen]).all()


@given(fault_records(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(record, order):
    begin, end, node = record
    rows = list(range(len(begin)))
    order.shuffle(rows)
    sample = Sample(
        name="x", begin_h=begin, end_h=end, node=node, nodes_at_risk=6, window_h=WINDOW_H
    )
    mixed = Sample(
        name="x",
        begin_h=begin[rows],
        end_h=end[rows],
        node=node[rows],
        nodes_at_risk=6,
        window_h=WINDOW_H,
    )
    exposure = constant(48, window_h=WINDOW_H)
    one, other = study(sample, exposure=exposure), study(mixed, exposure=exposure)
    assert one.headline == other.headline
    assert one.findings == other.findings
    assert (one.rate, one.verdicts) == (other.rate, other.verdicts)


@given(st.lists(HOURS, max_size=40), st.lists(HOURS, max_size=40))
def test_percentiles_are_in_order_inside_their_bounds_and_open_ones_only_lengthen(closed, still):
    found = durations("x", np.array(closed, dtype=float), np.array(still, dtype=float))
    alone = durations("x", np.array(closed, dtype=float))
    values = [math.inf if p.value_h is None else p.value_h for p in found.percentiles]
    assert values == sorted(values)
    for p, without in zip(found.percentiles, alone.percentiles, strict=True):
        lo, value, hi = (math.inf if v is None else v for v in (p.lo_h, p.value_h, p.hi_h))
        assert lo <= value <= hi
        assert value >= (math.inf if without.value_h is None else without.value_h)


@given(st.lists(st.floats(0, 1), max_size=30))
def test_adjusted_p_values_only_grow_and_keep_their_order(p):
    order = np.argsort(p, kind="stable")
    for adjusted in (holm(p), benjamini_hochberg(p)):
        assert (adjusted >= np.array(p) * (1 - 1e-12)).all()
        assert (np.diff(adjusted[order]) >= 0).all()
        assert (adjusted <= 1).all()
    assert (holm(p) >= benjamini_hochberg(p) - 1e-12).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 3_600_000_000_000), st.integers(0, 100)), min_size=1, max_size=10
    )
)
def test_exposure_grows_to_the_whole_and_never_falls(steps):
    steps = sorted(dict(steps).items())
    t_us, devices = (np.array(column) for column in zip(*steps, strict=True))
    whole = from_steps(t_us, devices, begin_us=0, end_us=3_600_000_000_000)
    along = whole.until([0.0, 123.4, 700.0, 1000.0])
    assert along[0] == 0
    assert (np.diff(along) >= 0).all()
    assert whole.until(WINDOW_H) == pytest.approx(whole.total)


@given(fault_records(nodes=12))
def test_lemons_and_bursts_never_invent_events(record):
    times, _, node = record
    found = lemons(times, node, nodes=12, window_h=WINDOW_H)
    assert all(row.first_half + row.second_half == row.count for row in found.top)
    assert set(found.flagged) <= set(found.top)
    together = bursts(times, node, window_h=WINDOW_H)
    assert together.starts_in_bursts <= len(times)
    assert all(len(burst.nodes) >= 2 and burst.count >= len(burst.nodes) for burst in together.top)
