"""What a turn records is written behind it, and the metrics hear of steps and events in the order in which they came."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.training.recorder import Recorder


@pytest.fixture
def scene():
    told = []

    class Writer:
        def submit(self, event):
            told.append(event.kind)

    class Metrics:
        def hear(self, event):
            told.append(f"heard {event.kind}")

        def steps_begin(self, first):
            told.append(f"begins {first}")

        def step_done(self, step, *, took_us):
            told.append(f"done {step} in {took_us}")

    clock = ManualClock(1_000_000_000)
    made = Recorder(
        Writer(), clock=clock, run_id="r1", versions={}, topology="t", metrics=Metrics()
    )
    return made, clock, told


def test_a_step_counts_behind_the_section_that_ended_before_it(scene):
    """The section's time is taken off the step that follows it."""
    recorder, clock, told = scene
    with recorder.held():
        recorder.begin_steps(first=1)
        recorder.record("section.end", body={"name": "eval", "state": "planned"})
        clock.sleep_us(100)
        recorder.step_done(1, done_wall_us=clock.wall_us())
        clock.sleep_us(100)
        assert told == []
    assert told == ["begins 1", "section.end", "heard section.end", "done 1 in 100"]


def test_what_is_held_can_be_written_before_the_turn_is_over(scene):
    recorder, _, told = scene
    with recorder.held():
        recorder.record("escalate")
        recorder.write_held()
        assert told == ["escalate", "heard escalate"]
        recorder.record("annotation")
        assert "annotation" not in told
    assert told == ["escalate", "heard escalate", "annotation", "heard annotation"]
    recorder.write_held()
    recorder.record("annotation")
    assert len(told) == 6
