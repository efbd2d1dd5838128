"""Events and steps of a run folded into numbers: each expected value is worked out by hand."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import new_event
from lastgood.training.metrics import telemetry as module
from lastgood.training.metrics.telemetry import (
    INCIDENT_BOUNDS_S,
    IncidentKey,
    Telemetry,
    empty_buckets,
)

STEP_US = 100_000


class Scene:
    def __init__(self, mode="run"):
        self.clock = ManualClock(1_000_000_000)
        self.telemetry = Telemetry()
        self.hear("run.start", body={"mode": mode})

    def hear(self, kind, **fields):
        event = new_event(kind, clock=self.clock, run="r1", attempt=1, **fields)
        self.telemetry.hear(event, now_us=self.clock.monotonic_us())

    def steps(self, first, last, *, took_us=STEP_US):
        for step in range(first, last + 1):
            self.clock.sleep_us(took_us)
            self.telemetry.step_done(step, took_us=took_us, now_us=self.clock.monotonic_us())

    def close(self, **fields):
        given = {"class_": "fail_stop", "body": {"outcome": "recovered"}, **fields}
        self.hear("incident.close", **given)

    @property
    def reading(self):
        return self.telemetry.reading()


@pytest.fixture
def scene():
    return Scene()


def test_accepted_steps_are_counted_and_their_times_summed(scene):
    scene.telemetry.steps_begin(1)
    scene.steps(1, 3)
    found = scene.reading
    assert (found.accepted_steps, found.step_count, found.lost_step_count) == (3, 3, 0)
    assert (found.productive_us, found.step_last_us) == (3 * STEP_US, STEP_US)
    assert (sum(found.steps.counts), found.steps.sum_us) == (3, 3 * STEP_US)
    assert found.accepted_at_us == scene.clock.monotonic_us()


def test_steps_that_a_recovery_goes_back_behind_are_lost_with_their_own_time(scene):
    scene.telemetry.steps_begin(1)
    scene.steps(1, 4)
    scene.steps(5, 6, took_us=7 * STEP_US)
    scene.telemetry.steps_begin(5)
    assert (scene.reading.accepted_steps, scene.reading.lost_step_count) == (4, 2)
    assert scene.reading.productive_us == 4 * STEP_US
    scene.steps(5, 6)
    found = scene.reading
    assert (found.accepted_steps, found.step_count, found.lost_step_count) == (6, 8, 2)
    assert found.productive_us == 6 * STEP_US


def test_a_recovery_that_loses_nothing_takes_nothing_back(scene):
    scene.telemetry.steps_begin(1)
    scene.steps(1, 4)
    scene.telemetry.steps_begin(5)
    assert (scene.reading.accepted_steps, scene.reading.lost_step_count) == (4, 0)


def test_a_resumed_run_lost_none_of_the_steps_before_it(scene):
    scene.telemetry.steps_begin(901)
    scene.steps(901, 902)
    scene.telemetry.steps_begin(850)
    found = scene.reading
    assert (found.accepted_steps, found.lost_step_count, found.productive_us) == (0, 2, 0)


def test_a_loss_beyond_what_is_remembered_takes_the_mean_time(scene, monkeypatch):
    monkeypatch.setattr(module, "STEP_COUNT_KEPT", 3)
    short = Telemetry()
    for step in range(1, 9):
        short.step_done(step, took_us=STEP_US, now_us=0)
    short.steps_begin(3)
    assert (short.reading().accepted_steps, short.reading().productive_us) == (2, 2 * STEP_US)


def test_declared_time_that_is_no_progress_is_taken_off_the_step_around_it(scene):
    scene.telemetry.steps_begin(1)
    for rank in (0, 1):
        scene.hear("section.begin", ranks=(rank,), t_occurred_us=scene.clock.wall_us(), body={"name": "save", "state": "checkpoint.blocking"})  # fmt: skip
    for rank in (0, 1):
        scene.hear("section.end", ranks=(rank,), t_occurred_us=scene.clock.wall_us() + 3 * STEP_US, body={"name": "save", "state": "checkpoint.blocking"})  # fmt: skip
    scene.steps(1, 1, took_us=4 * STEP_US)
    assert scene.reading.productive_us == STEP_US


def test_an_evaluation_counts_as_progress(scene):
    scene.telemetry.steps_begin(1)
    at_us = scene.clock.wall_us()
    scene.hear("section.begin", t_occurred_us=at_us, body={"name": "eval", "state": "productive"})
    scene.hear("section.end", t_occurred_us=at_us + STEP_US, body={"name": "eval", "state": "productive"})  # fmt: skip
    scene.steps(1, 1, took_us=2 * STEP_US)
    assert scene.reading.productive_us == 2 * STEP_US


def test_every_class_and_outcome_starts_at_zero_so_that_its_first_incident_is_an_increase(scene):
    assert {key[:2]: n for key, n in scene.reading.incidents.items()} == {
        (class_, outcome): 0
        for class_ in ("fail_stop", "fail_slow", "sdc")
        for outcome in ("recovered", "escalated")
    }


def test_a_recovered_incident_is_counted_with_its_detection_and_its_recovery(scene):
    scene.hear("incident.open", class_="fail_stop", links={"incident": "i1"})
    assert scene.reading.open_count == 1
    scene.close(
        links={"incident": "i1"}, detect_us=20_000, diagnose_us=1, isolate_us=2, recover_us=600_000, verify_us=4
    )  # fmt: skip
    found = scene.reading
    assert found.open_count == 0
    assert found.incidents[IncidentKey("fail_stop", "recovered", "not_declared")] == 1
    none = empty_buckets(INCIDENT_BOUNDS_S)
    assert found.detection == {
        "fail_stop": none.with_value(20_000), "fail_slow": none, "sdc": none,
    }  # fmt: skip
    assert found.recovery["fail_stop"].sum_us == 600_007


def test_an_escalated_incident_has_no_time_of_recovery(scene):
    scene.close(body={"outcome": "escalated"}, detect_us=20_000, diagnose_us=10)
    found = scene.reading
    assert found.incidents[IncidentKey("fail_stop", "escalated", "not_declared")] == 1
    assert sum(found.recovery["fail_stop"].counts) == 0
    assert sum(found.detection["fail_stop"].counts) == 1


def test_an_incident_of_a_drill_is_declared_as_injected():
    scene = Scene(mode="drill")
    scene.close()
    assert scene.reading.incidents[IncidentKey("fail_stop", "recovered", "true")] == 1


def test_a_checkpoint_is_known_by_its_step_and_its_failures_are_counted(scene):
    scene.hear("checkpoint.commit", body={"step": 40, "path": "p", "bytes": 1})
    scene.hear("checkpoint.fail", body={"step": 50, "reason": "disk full"})
    found = scene.reading
    assert (found.checkpoint_step, found.checkpoint_failure_count) == (40, 1)
    assert found.checkpoint_at_us == scene.clock.monotonic_us()


@pytest.mark.parametrize(("value_us", "at"), [(0, 0), (10_000, 0), (10_001, 1), (10**12, -1)])
def test_a_value_counts_under_the_first_bound_that_it_does_not_exceed(value_us, at):
    found = empty_buckets(INCIDENT_BOUNDS_S).with_value(value_us)
    assert found.counts[at] == 1
    assert sum(found.counts) == 1


def test_a_reading_does_not_change_when_the_run_goes_on(scene):
    before = scene.reading
    scene.steps(1, 1)
    scene.close(detect_us=1)
    assert sum(before.incidents.values()) == before.accepted_steps == 0
    assert sum(before.detection["fail_stop"].counts) == 0


def test_steps_before_a_restart_that_only_counts_are_not_called_accepted(scene):
    scene.telemetry.steps_begin(1)
    scene.steps(1, 23)
    scene.hear("annotation", body={"numbered_by": "count"})
    scene.telemetry.steps_begin(24)
    scene.steps(24, 83)
    found = scene.reading
    assert (found.accepted_steps, found.step_count, found.lost_step_count) == (60, 83, 0)
    assert found.productive_us == 60 * STEP_US
