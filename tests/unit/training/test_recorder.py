"""Accepted steps become chunks whose times add up, written before the event that ends them."""

from itertools import pairwise

import msgspec
import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.walltime import WallState, partition
from lastgood.training import recorder as module
from lastgood.training.recorder import STEPS_PER_CHUNK, Recorder


class Writer:
    def __init__(self):
        self.events = []

    def submit(self, event):
        self.events.append(event)


@pytest.fixture
def scene():
    clock, writer = ManualClock(1_000_000_000), Writer()
    heard = []
    made = Recorder(
        writer,
        clock=clock,
        run_id="r1",
        versions={"torch": "2"},
        topology="t",
        listener=heard.append,
    )
    return made, clock, writer, heard


def kinds(writer):
    return [event.kind for event in writer.events]


def chunks(writer):
    return [event.body for event in writer.events if event.kind == "step"]


def test_a_chunk_is_written_before_the_event_that_ends_it(scene):
    recorder, clock, writer, heard = scene
    recorder.begin_steps(first=1)
    for step in (1, 2, 3):
        clock.sleep_us(100)
        recorder.step_done(step, done_wall_us=clock.wall_us())
    assert kinds(writer) == []
    recorder.record("incident.open")
    assert kinds(writer) == ["step", "incident.open"]
    began = 1_000_000_000
    (chunk,) = chunks(writer)
    assert chunk == {
        "first": 1, "last": 3, "began_us": began, "ended_us": [began + 100, began + 200, began + 300],
    }  # fmt: skip
    assert writer.events[0].t_occurred_us == began
    assert heard == writer.events


def test_chunks_follow_each_other_without_a_gap_and_are_bounded(scene):
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=1)
    count = 2 * STEPS_PER_CHUNK + 5
    for step in range(1, count + 1):
        clock.sleep_us(7)
        recorder.step_done(step, done_wall_us=clock.wall_us())
    recorder.close_chunk()
    found = chunks(writer)
    assert [len(c["ended_us"]) for c in found] == [STEPS_PER_CHUNK, STEPS_PER_CHUNK, 5]
    assert [(c["first"], c["last"]) for c in found] == [(1, 64), (65, 128), (129, 133)]
    assert all(before["ended_us"][-1] == after["began_us"] for before, after in pairwise(found))
    spent = sum(c["ended_us"][-1] - c["began_us"] for c in found)
    assert spent == 7 * count


def test_a_slow_run_writes_a_short_chunk_so_that_a_reader_sees_it_move(scene):
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=1)
    clock.sleep_us(module._CHUNK_AGE_US + 1)
    recorder.step_done(1, done_wall_us=clock.wall_us())
    assert [c["last"] for c in chunks(writer)] == [1]


def test_after_a_recovery_steps_begin_anew_and_may_have_old_numbers(scene):
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=1)
    recorder.step_done(1, done_wall_us=clock.wall_us() + 5)
    recorder.record("incident.open")
    clock.sleep_us(500)
    recorder.attempt = 2
    recorder.begin_steps(first=1)
    clock.sleep_us(10)
    recorder.step_done(1, done_wall_us=clock.wall_us())
    recorder.close_chunk()
    _, second = chunks(writer)
    assert (second["first"], second["began_us"]) == (1, 1_000_000_500)
    assert [e.attempt for e in writer.events if e.kind == "step"] == [1, 2]


def test_a_step_never_ends_before_its_chunk_began(scene):
    """A rank stamps its own time; the chunk began when the supervisor said so."""
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=4)
    recorder.step_done(4, done_wall_us=clock.wall_us() - 50)
    recorder.close_chunk()
    (chunk,) = chunks(writer)
    assert chunk["ended_us"] == [chunk["began_us"]]


def test_without_steps_there_is_no_chunk(scene):
    recorder, _, writer, _ = scene
    recorder.begin_steps(first=1)
    recorder.record("detect")
    recorder.close_chunk()
    assert kinds(writer) == ["detect"]


def test_every_event_carries_run_attempt_versions_and_topology(scene):
    recorder, _, writer, _ = scene
    recorder.attempt = 3
    recorder.record("detect", ranks=(1,))
    (event,) = writer.events
    assert (event.run, event.attempt, event.versions, event.topology) == (
        "r1",
        3,
        {"torch": "2"},
        "t",
    )
    assert list(event.ranks) == [1]


def test_instants_of_the_loop_are_moved_to_wall_time_and_durations_are_not(scene):
    recorder, clock, writer, _ = scene
    monotonic = clock.monotonic_us()
    clock.sleep_us(1000)
    recorder.record_from_loop(
        "detect", {"t_occurred_us": monotonic + 400, "t_observed_us": None, "detect_us": 600}
    )
    (event,) = writer.events
    assert (event.t_occurred_us, event.detect_us) == (1_000_000_400, 600)
    assert recorder.wall_us(monotonic) == 1_000_000_000


def test_losses_are_kept_with_the_steps_unless_one_is_missing_or_no_number(scene):
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=1)
    for step, loss in ((1, 0.5), (2, 0.25)):
        recorder.step_done(step, done_wall_us=clock.wall_us(), loss=loss)
    recorder.close_chunk()
    recorder.step_done(3, done_wall_us=clock.wall_us(), loss=float("nan"))
    recorder.close_chunk()
    recorder.step_done(4, done_wall_us=clock.wall_us())
    recorder.close_chunk()
    bodies = chunks(writer)
    assert [float.fromhex(text) for text in bodies[0]["loss"]] == [0.5, 0.25]
    assert ["loss" in body for body in bodies] == [True, False, False]


# --- a wall clock that jumps ----------------------------------------------------------------------

HOUR_US = 3_600_000_000


@pytest.mark.parametrize("jump_us", [HOUR_US, -HOUR_US, 40 * 365 * 24 * HOUR_US])
def test_a_jump_of_the_wall_clock_changes_no_duration_and_is_recorded_once(scene, jump_us):
    recorder, clock, writer, _ = scene
    recorder.begin_steps(first=1)
    for step in range(1, 7):
        clock.sleep_us(1_000_000)
        if step == 4:
            clock.step_wall_us(jump_us)
        recorder.watch_clock()
        recorder.step_done(step, done_wall_us=recorder.wall_us(clock.monotonic_us()))
    recorder.record("run.end")
    steps = [e for e in writer.events if e.kind == "step"]
    ended = [us for e in steps for us in e.body["ended_us"]]
    assert [b - a for a, b in pairwise([steps[0].body["began_us"], *ended])] == [1_000_000] * 6
    jumps = [e.body for e in writer.events if e.body.get("what") == "clock.jump"]
    assert [(j["jump_us"], j["moved_us"]) for j in jumps] == [(jump_us, jump_us)]
    times = [e.t_occurred_us for e in writer.events]
    assert (min(times), max(times)) == (1_000_000_000, 1_006_000_000)


@pytest.mark.parametrize("jump_us", [HOUR_US, -HOUR_US])
def test_wall_time_still_sums_when_the_clock_jumps_in_the_middle_of_an_incident(scene, jump_us):
    recorder, clock, writer, _ = scene
    recorder.record("run.start", body={"world": 2})
    recorder.record("attempt.start", body={"world": 2, "workers": {"0": "w0", "1": "w1"}})
    recorder.begin_steps(first=1)
    for step in (1, 2):
        clock.sleep_us(1_000_000)
        recorder.step_done(step, done_wall_us=recorder.wall_us(clock.monotonic_us()))
    onset_us = clock.monotonic_us()
    clock.sleep_us(3_000_000)
    clock.step_wall_us(jump_us)
    recorder.watch_clock()
    common = {"incident": "r1/incident-1", "attempt": 1, "ranks": (1,)}
    found = {"t_occurred_us": onset_us, "t_observed_us": clock.monotonic_us()}
    recorder.record_from_loop("incident.open", {**common, **found, "symptom": "hang"})
    recorder.record_from_loop("detect", {**common, **found, "detect_us": 3_000_000})
    for kind in ("diagnose", "isolate", "restore.begin", "restore", "verify"):
        clock.sleep_us(500_000)
        at_us = clock.monotonic_us()
        recorder.record_from_loop(
            kind, {**common, "t_occurred_us": at_us, "t_observed_us": at_us, "body": {"step": 2}}
        )
    recorder.record_from_loop("incident.close", {**common, "body": {"outcome": "recovered"}})
    recorder.begin_steps(first=3)
    clock.sleep_us(1_000_000)
    recorder.step_done(3, done_wall_us=recorder.wall_us(clock.monotonic_us()))
    recorder.record("run.end", body={"exit_code": 0})
    events = [msgspec.structs.replace(e, seq=n) for n, e in enumerate(writer.events)]
    wall = partition(events, run="r1", as_of_us=recorder.wall_us(clock.monotonic_us()))
    assert sum(wall.totals_us.values()) == wall.window_us == 8_500_000
    assert min(wall.totals_us.values()) >= 0
    assert wall.totals_us[WallState.PRODUCTIVE] == 3_000_000
    assert wall.totals_us[WallState.DOWN_DETECT] == 3_000_000
    (incident,) = fold_incidents(events)
    assert incident.detected_us - incident.onset_us == 3_000_000
    assert incident.closed_us - incident.detected_us == 2_500_000


def test_a_clock_that_is_slewed_is_recorded_once_a_second_of_distance(scene):
    recorder, clock, writer, _ = scene
    for _ in range(30):
        clock.sleep_us(1_000_000)
        clock.step_wall_us(100_000)
        recorder.watch_clock()
    jumps = [e.body["moved_us"] for e in writer.events]
    assert jumps == [1_000_000, 2_000_000, 3_000_000]


def test_a_jump_that_is_taken_back_is_two_jumps(scene):
    recorder, clock, writer, _ = scene
    for jump_us in (HOUR_US, -HOUR_US):
        clock.sleep_us(2_000_000)
        clock.step_wall_us(jump_us)
        recorder.watch_clock()
    assert [e.body["jump_us"] for e in writer.events] == [HOUR_US, -HOUR_US]
    assert [e.body["moved_us"] for e in writer.events] == [HOUR_US, 0]


# --- what is written later --------------------------------------------------------------------------


def test_held_events_are_written_at_the_end_in_their_order_with_their_own_times(scene):
    recorder, clock, writer, heard = scene
    recorder.begin_steps(first=1)
    with recorder.held():
        recorder.step_done(1, done_wall_us=clock.wall_us())
        recorder.record("incident.open")
        clock.sleep_us(500)
        recorder.attempt = 2
        recorder.record("isolate")
        clock.sleep_us(500)
        assert writer.events == heard == []
    assert kinds(writer) == ["step", "incident.open", "isolate"]
    assert [event.t_observed_us - 1_000_000_000 for event in writer.events] == [0, 0, 500]
    assert [event.attempt for event in writer.events] == [1, 1, 2]


def test_what_was_held_is_written_when_the_turn_ends_with_an_error(scene):
    recorder, _, writer, _ = scene

    def take_turn():
        with recorder.held():
            recorder.record("incident.open")
            raise KeyError

    with pytest.raises(KeyError):
        take_turn()
    recorder.record("isolate")
    assert kinds(writer) == ["incident.open", "isolate"]
