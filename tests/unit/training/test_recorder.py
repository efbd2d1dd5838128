"""Accepted steps become chunks whose times add up, written before the event that ends them."""

from itertools import pairwise

import pytest

from lastgood.base.clock import ManualClock
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
