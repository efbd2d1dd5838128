"""Ends of ranks behind the last step: which code the run ends with, and who is named for it."""

from types import SimpleNamespace

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import new_event
from lastgood.ledger.incident import fold_incidents
from lastgood.training.supervising.late_deaths import LateDeaths


@pytest.fixture
def scene():
    clock, events = ManualClock(1_000_000), []

    def record(kind, **fields):
        events.append(new_event(kind, clock=clock, run="job", attempt=1, **fields))

    supervisor = SimpleNamespace(
        recorder=SimpleNamespace(record=record), options=SimpleNamespace(run_id="job"),
        state=SimpleNamespace(case_count=2), watch=SimpleNamespace(next_step=41), serving=("w0", "w1", "w4"),
    )  # fmt: skip
    return LateDeaths(supervisor), events


def test_a_killed_rank_gives_its_code_as_a_shell_says_it_and_is_named(scene):
    deaths, events = scene
    deaths.take({})
    deaths.take({0: 0, 2: -9})
    deaths.take({0: 0, 1: 1, 2: -9})  # rank 1's barrier failed because of it
    assert deaths.code == 137
    (incident,) = fold_incidents(events)
    assert (incident.id, incident.ranks, incident.symptom) == (
        "job/incident-3",
        (2,),
        "process_exit",
    )
    assert (incident.outcome, incident.lost_steps) == ("ended", 0)
    (evidence,) = events[0].body["evidence"]
    assert evidence == "rank 2 (w4) killed by SIGKILL behind the last step"


def test_ranks_that_are_killed_at_once_are_one_incident_and_later_ones_another(scene):
    deaths, events = scene
    assert deaths.take({0: 1, 1: -15, 2: -9})
    assert not deaths.take({0: 1, 1: -15, 2: -9})
    assert deaths.code == 143
    assert [i.ranks for i in fold_incidents(events)] == [(1, 2)]


@pytest.mark.parametrize(("codes", "code"), [({0: 0, 1: 0, 2: 0}, 0), ({0: 0, 1: 3, 2: 4}, 3)])
def test_ends_by_themselves_are_no_incident(scene, codes, code):
    deaths, events = scene
    deaths.take(codes)
    assert (deaths.code, events) == (code, [])
