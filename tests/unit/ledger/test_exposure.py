from __future__ import annotations

from lastgood.ledger.exposure import measure_exposure
from tests.unit.ledger.story import Story, us


def device_s(story: Story, *, as_of: float = 1000, window=None) -> tuple[float, float, int]:
    """Device-seconds, the inferred part, and the most devices at once."""
    if window:
        window = (us(window[0]), us(window[1]))
    found = measure_exposure(story.events, as_of_us=us(as_of), window=window)
    return found.device_us / 1e6, found.inferred_device_us / 1e6, found.devices_max


def join(story: Story, at: float, worker: str, devices: int = 1) -> None:
    story.tell("exposure.join", at, devices=devices, body={"worker": worker})


def leave(story: Story, at: float, worker: str, devices: int = 1) -> None:
    story.tell("exposure.leave", at, devices=devices, body={"worker": worker})


def test_exposure_is_devices_times_time():
    story = Story().start()
    join(story, 0, "w0", 8)
    join(story, 10, "w1", 4)
    leave(story, 100, "w0", 8)
    leave(story, 100, "w1", 4)
    assert device_s(story) == (8 * 100 + 4 * 90, 0, 12)


def test_a_device_that_is_handed_over_is_one_device():
    story = Story().start()
    join(story, 0, "w0")
    leave(story, 50, "w0")
    join(story, 50, "w4")
    leave(story, 100, "w4")
    assert device_s(story) == (100, 0, 1)


def test_an_open_run_counts_up_to_now_and_an_ended_run_up_to_its_end():
    story = Story().start()
    join(story, 0, "w0")
    assert device_s(story, as_of=70) == (70, 0, 1)
    story.end(90)
    assert device_s(story, as_of=200) == (90, 90, 1)  # the leave is missing: closed by rule


def test_a_second_join_of_one_worker_closes_the_first():
    story = Story().start()
    join(story, 0, "w0", 2)
    join(story, 40, "w0", 3)
    leave(story, 100, "w0", 3)
    assert device_s(story) == (2 * 40 + 3 * 60, 80, 3)


def test_a_leave_without_a_join_was_at_risk_since_its_run_began():
    story = Story().start(20)
    leave(story, 100, "w0", 2)
    assert device_s(story) == (160, 160, 2)


def test_only_the_window_counts():
    story = Story().start()
    join(story, 0, "w0", 2)
    leave(story, 100, "w0", 2)
    assert device_s(story, window=(90, 500)) == (20, 0, 2)
    assert device_s(story, window=(100, 500)) == (0, 0, 0)


def test_the_figure_says_device_hours_and_what_was_closed_by_rule():
    story = Story().start()
    join(story, 0, "w0", 2)
    story.end(3600)
    figure = measure_exposure(story.events, as_of_us=us(9999), run="r1").figure()
    assert (figure.value, figure.unit, figure.kind) == (2.0, "device-h", "measured")
    assert "closed by rule" in figure.source
    assert figure.as_of_us == us(9999)
