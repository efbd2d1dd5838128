"""The clock of cumulative exposure."""

import numpy as np
import pytest

from lastgood.base.errors import BadInput
from lastgood.budget.operational import constant, from_steps

HOUR_US = 3_600_000_000


def doubled():
    """100 devices for 10 h, then 200 for 10 h."""
    return from_steps(
        np.array([0, 10]) * HOUR_US, np.array([100, 200]), begin_us=0, end_us=20 * HOUR_US
    )


def test_exposure_is_devices_times_hours():
    assert doubled().total == 3000.0
    assert not doubled().is_constant


def test_the_clock_runs_as_fast_as_devices_are_at_risk():
    assert doubled().until([0, 10, 15, 20]).tolist() == [0, 1000, 2000, 3000]


def test_a_constant_count_is_calendar_time():
    found = constant(400, window_h=50.0)
    assert found.is_constant
    assert found.until(12.5) == 5000.0
    assert found.words == "20,000 device-h (400 devices over 50.0 h)"


def test_before_the_first_step_nothing_is_at_risk():
    found = from_steps(np.array([5 * HOUR_US]), np.array([8]), begin_us=0, end_us=10 * HOUR_US)
    assert found.total == 40.0


def test_a_step_before_the_window_holds_when_it_begins():
    found = from_steps(
        np.array([-5, 4]) * HOUR_US, np.array([8, 2]), begin_us=0, end_us=10 * HOUR_US
    )
    assert found.total == 8 * 4 + 2 * 6


@pytest.mark.parametrize(("devices", "window_h"), [(0, 10.0), (5, 0.0)])
def test_no_devices_or_no_window_is_no_exposure(devices, window_h):
    with pytest.raises(BadInput, match="devices and a window"):
        constant(devices, window_h=window_h)
