"""A study as a whole: figures and their kinds, what is left out and said, verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from lastgood.base.errors import BadInput
from lastgood.base.figures import FigureKind, render
from lastgood.base.rng import numpy_stream
from lastgood.budget.family import judge_together
from lastgood.budget.operational import constant, from_steps
from lastgood.budget.rate_interval import IntervalMethod
from lastgood.budget.rates import study
from lastgood.budget.sample import Sample

WINDOW_H = 2000.0
HOUR_US = 3_600_000_000


def random(*names):
    return numpy_stream(3, "rates", *names)


def sample(n=120, **changes):
    begin = np.sort(random("begin", n).uniform(0, WINDOW_H, n))
    whole = Sample(
        name="all",
        begin_h=begin,
        window_h=WINDOW_H,
        end_h=begin + 1,
        node=random("node", n).integers(0, 64, n),
        nodes_at_risk=64,
        domains={"rack": np.arange(64) // 8},
        closed_h={"recovery": random("recovery", n).exponential(2, n)},
        unknown_causes=n // 4,
        rule="links",
        source="ledger",
    )
    return replace(whole, **changes)


EXPOSURE = constant(512, window_h=WINDOW_H, source="join and leave records")


class TestWithExposure:
    def test_rate_and_means_are_one_number_in_three_units(self):
        found = study(sample(), exposure=EXPOSURE)
        assert found.rate.value == pytest.approx(120 / (512 * WINDOW_H) * 1000)
        assert found.mean_time.value == pytest.approx(512 * WINDOW_H / 120 * HOUR_US)
        assert found.fleet_mean_time.value == pytest.approx(WINDOW_H / 120 * HOUR_US)
        assert found.rate.unit == "per 1000 device-h"

    def test_the_interval_of_the_rate_is_the_headlines(self):
        found = study(sample(), exposure=EXPOSURE)
        assert found.rate.interval.lo == pytest.approx(found.headline.interval.lo * 1000)
        assert found.rate.interval.method == found.headline.interval.words
        assert found.mean_time.interval.lo == pytest.approx(HOUR_US / found.headline.interval.hi)

    def test_measured_exposure_makes_a_measured_rate_and_a_typed_one_an_assumed(self):
        typed = constant(512, window_h=WINDOW_H, source="--devices 512", is_assumed=True)
        assert study(sample(), exposure=EXPOSURE).rate.kind is FigureKind.MEASURED
        assert study(sample(), exposure=typed).rate.kind is FigureKind.ASSUMED
        assert study(sample(), exposure=typed).count.kind is FigureKind.MEASURED

    def test_run_hours_are_named_as_such(self):
        runs = constant(1, window_h=1296.0, unit="run-h")
        found = study(
            Sample(name="x", begin_h=np.linspace(1, 1295, 419), window_h=1296.0), exposure=runs
        )
        assert found.rate.unit == "per run-h"
        assert render(found.mean_time).startswith("3.09 h measured")

    def test_a_published_table_stays_reported(self):
        found = study(sample(kind=FigureKind.REPORTED), exposure=EXPOSURE)
        assert found.rate.kind is found.count.kind is FigureKind.REPORTED

    def test_every_figure_can_be_shown(self):
        found = study(sample(), exposure=EXPOSURE)
        for figure in (
            found.count,
            found.exposure_figure,
            found.rate,
            found.mean_time,
            found.unknown_share,
        ):
            assert "n = 120" in render(figure)

    def test_one_window_for_both(self):
        with pytest.raises(BadInput, match="one window"):
            study(sample(), exposure=constant(5, window_h=10.0))

    def test_a_fixed_method_is_passed_on(self):
        found = study(sample(), exposure=EXPOSURE, method=IntervalMethod.QUASI_POISSON)
        assert found.headline.is_fixed


class TestWithoutExposure:
    def test_there_are_counts_and_no_rate(self):
        found = study(sample(), exposure=None)
        assert (found.rate, found.mean_time, found.fleet_mean_time, found.headline) == (
            None,
            None,
            None,
            None,
        )
        assert found.count.value == 120
        assert "exposure unknown; give --devices or node events" in render(found.count)

    def test_tests_run_on_the_calendar_and_say_so(self):
        found = study(sample(), exposure=None)
        assert found.trend.headline.p is not None
        assert any("as if the device count had not changed" in note for note in found.notes)


class TestAGrowingFleet:
    """The fleet doubles half way and events double with it: nothing gets worse."""

    def grown(self):
        devices = np.array([256, 512])
        steps = np.array([0, int(WINDOW_H / 2)]) * HOUR_US
        return from_steps(steps, devices, begin_us=0, end_us=int(WINDOW_H) * HOUR_US)

    def events(self):
        return np.sort(np.concatenate((np.linspace(1, 999, 100), np.linspace(1001, 1999, 200))))

    def test_on_the_calendar_it_looks_worse_and_in_operational_time_it_does_not(self):
        one = sample(begin_h=self.events(), node=None, end_h=None, closed_h={})
        assert study(one, exposure=None).trend.direction == 1
        found = study(one, exposure=self.grown())
        assert found.trend.direction == 0
        assert found.is_operational
        assert found.trend.is_operational

    def test_the_chosen_interval_does_not_pay_for_the_growth(self):
        one = sample(begin_h=self.events(), node=None, end_h=None, closed_h={})
        assert study(one, exposure=self.grown()).headline.interval.method is IntervalMethod.EXACT

    def test_cuts_found_in_operational_time_are_told_on_the_calendar(self):
        """Twelve weeks: the rate per device triples when the fleet has run half of its device-hours, at 1,500 h."""
        early, late = np.linspace(1, 1499, 60), np.linspace(1501, 1999, 180)
        one = sample(begin_h=np.concatenate((early, late)), node=None, end_h=None, closed_h={})
        steps = np.array([0, 1000]) * HOUR_US
        exposure = from_steps(
            steps, np.array([100, 100]), begin_us=0, end_us=int(WINDOW_H) * HOUR_US
        )
        calendar = study(one, exposure=replace(exposure, devices=np.array([100.0, 100.0])))
        moved = study(one, exposure=replace(exposure, devices=np.array([50.0, 150.0])))
        assert calendar.changes.segments[1].begin_h == pytest.approx(1512.0)
        assert moved.changes.segments[1].begin_h == pytest.approx(1500.0, abs=168.0)
        assert "equal exposure" in moved.changes.sentence


class TestWhatIsMissing:
    def test_below_ten_events_only_count_exposure_and_interval(self):
        found = study(sample(n=6), exposure=EXPOSURE)
        assert found.is_too_few
        assert "too few to test" in found.verdicts[0]
        assert found.headline.interval.method is IntervalMethod.EXACT
        assert (found.dispersion, found.power_law, found.mcf, found.lemons, found.bursts) == (
            None,
        ) * 5

    def test_no_event_has_a_bound_and_no_mean(self):
        found = study(sample(n=0, closed_h={}), exposure=EXPOSURE)
        assert found.rate.value == 0.0
        assert found.rate.interval.hi == pytest.approx(-np.log(0.05) / (512 * WINDOW_H) * 1000)
        assert found.mean_time.value is None
        assert found.unknown_share is None

    def test_without_nodes_nothing_is_said_about_nodes(self):
        found = study(sample(node=None), exposure=EXPOSURE)
        assert (found.mcf, found.bursts, found.bounce_day, found.lemons) == (None,) * 4
        assert any("No node is recorded" in note for note in found.notes)

    def test_incidents_without_a_node_are_counted(self):
        node = np.where(np.arange(120) < 12, -1, np.arange(120) % 64)
        found = study(sample(node=node), exposure=EXPOSURE)
        assert found.mcf.events == 108
        assert any("12 of 120 incidents name no node" in note for note in found.notes)

    def test_an_unknown_number_of_nodes_compares_no_nodes(self):
        found = study(sample(nodes_at_risk=None), exposure=EXPOSURE)
        assert (found.mcf, found.lemons) == (None, None)
        assert found.bounce_day is not None

    def test_fewer_nodes_at_risk_than_failed_are_refused(self):
        with pytest.raises(BadInput, match="more nodes failed than are said to be at risk"):
            study(sample(nodes_at_risk=10), exposure=EXPOSURE)

    @pytest.mark.parametrize("at", [-1.0, WINDOW_H + 1, np.nan])
    def test_an_incident_outside_the_window_is_refused_also_in_operational_time(self, at):
        begin = np.append(np.linspace(1, 1999, 20), at)
        steps = from_steps(
            np.array([0, HOUR_US]), np.array([5, 9]), begin_us=0, end_us=int(WINDOW_H) * HOUR_US
        )
        with pytest.raises(BadInput, match="outside the window"):
            study(Sample(name="x", begin_h=begin, window_h=WINDOW_H), exposure=steps)

    def test_an_exposure_of_zero_is_no_exposure(self):
        nothing = from_steps(
            np.array([0]), np.array([0]), begin_us=0, end_us=int(WINDOW_H) * HOUR_US
        )
        assert study(sample(), exposure=nothing).rate is None

    def test_without_ends_nothing_is_said_about_repairs(self):
        found = study(sample(end_h=None), exposure=EXPOSURE)
        assert found.bounce_day is None
        assert any("repairs that did not hold" in note for note in found.notes)


def test_every_finding_says_what_was_tested_and_what_it_does_not_show():
    findings = study(sample(), exposure=EXPOSURE).findings
    assert len(findings) >= 10
    for finding in findings:
        assert all((finding.null, finding.sentence, finding.limit, finding.source, finding.assumes))


def test_many_groups_are_judged_together():
    rising = [sample(name="x", begin_h=np.sort(WINDOW_H * random("up").uniform(size=150) ** 0.5))]
    flat = [
        sample(name=str(i), begin_h=np.sort(random("f", i).uniform(0, WINDOW_H, 120)))
        for i in range(19)
    ]
    few = [sample(n=5, name="few")]
    family = judge_together(
        [study(replace(s, node=None), exposure=EXPOSURE) for s in rising + flat + few]
    )
    assert family.tests == 20
    assert [row.name for row in family.rows if row.is_rejected] == ["x"]
    assert family.rows[0].p_holm == pytest.approx(20 * family.rows[0].p)
    assert (
        family.sentence == "20 groups tested for a trend; after Holm's adjustment it holds for: x."
    )
