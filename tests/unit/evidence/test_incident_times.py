"""Durations of incidents: one definition for tables and objectives."""

from __future__ import annotations

import pytest

from lastgood.evidence.incident_times import Durations, durations
from lastgood.ledger.incident import Incident


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0.5, 50), (0.95, 95), (0.951, 96), (0.01, 1), (0.999, 100)]
)
def test_a_percentile_is_the_nearest_rank(ratio, expected):
    assert Durations(tuple(range(100, 0, -1)), 0, 0).percentile_us(ratio) == expected


def test_an_escalated_incident_stands_behind_every_recovered_one():
    made = [
        Incident(id="a", outcome="recovered", recover_us=7, detect_us=1),
        Incident(id="b", outcome="escalated", recover_us=0, detect_us=2),
        Incident(id="c", outcome=None),
    ]
    found = durations(made, "recovery_time")
    assert found == Durations((7,), 1, 1)
    assert (found.percentile_us(0.5), found.percentile_us(0.95)) == (7, None)
    assert durations(made, "detection_time") == Durations((1, 2), 0, 1)


def test_without_any_value_there_is_no_percentile():
    assert Durations((), 0, 3).percentile_us(0.5) is None
