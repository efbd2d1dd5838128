"""A name that is given again: a finished run keeps its own, and a run that did not end goes on behind its attempts."""

import dataclasses

import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.errors import Refused
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store, read_store
from lastgood.training.observe import session
from lastgood.training.observe.session import run_observed
from lastgood.training.options import RunOptions
from lastgood.training.rundir import RunDir


@pytest.fixture
def options(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass")
    return RunOptions(
        script=script, ranks=2, run_id="again", ledger=tmp_path / "ledger.db", root=tmp_path / "run"
    )


@pytest.fixture
def begun(options, monkeypatch):
    """Attempt numbers with which a supervisor is made; none is run."""
    numbers = []

    class Stub:
        def __init__(self, _options, _contract, recorder, **_):
            numbers.append(recorder.attempt)

        def run(self):
            return 0

    monkeypatch.setattr(session, "ObserveSupervisor", Stub)
    return numbers


def put(options, *, exit_code, script="train.py"):
    clock = SystemClock()
    told = [
        ("run.start", {"command": [script], "world": 2}),
        ("step", {"first": 1, "last": 1, "began_us": clock.wall_us(), "ended_us": [clock.wall_us()]}),
        ("run.end", {"exit_code": exit_code}),
    ]  # fmt: skip
    with open_store(options.ledger) as store:
        store.append(
            [new_event(kind, clock=clock, run="again", attempt=3, body=body) for kind, body in told]
        )


def test_the_name_of_a_finished_run_is_refused_and_nothing_is_recorded(options, begun):
    put(options, exit_code=0)
    with pytest.raises(Refused, match="the run with this id has finished"):
        run_observed(options, is_acting=False)
    with read_store(options.ledger) as store:
        assert len(list(store.events())) == 3
    assert begun == []


def test_the_name_of_another_script_is_refused(options, begun):
    put(options, exit_code=137, script="other.py")
    with pytest.raises(Refused, match="the run with this id is another one"):
        run_observed(options, is_acting=False)
    assert begun == []


def test_a_run_that_was_killed_goes_on_behind_its_attempts(options, begun):
    put(options, exit_code=137)
    assert run_observed(options, is_acting=False).exit_code == 0
    assert begun == [4]


def test_a_new_run_has_attempt_one(options, begun):
    assert run_observed(options, is_acting=True).exit_code == 0
    assert begun == [1]


def test_what_a_killed_supervisor_left_open_is_closed_by_the_next_start(options, begun):
    """Else the devices of both starts would be at risk at once to the end of the run."""
    clock = SystemClock()
    left = [
        ("run.start", {"body": {"command": ["train.py"], "world": 2}}),
        ("exposure.join", {"devices": 1, "ranks": (0,), "body": {"worker": "r0a1", "rank": 0}}),
        ("incident.open", {"incident": "again/1.1", "symptom": "hang"}),
    ]
    with open_store(options.ledger) as store:
        store.append(
            [new_event(kind, clock=clock, run="again", attempt=1, **f) for kind, f in left]
        )
    assert run_observed(options, is_acting=False).exit_code == 0
    with read_store(options.ledger) as store:
        events = list(store.events())
    assert [e.kind for e in events[3:8]] == [
        "incident.close", "exposure.leave", "attempt.end", "run.end", "run.start",
    ]  # fmt: skip
    assert events[3].body["outcome"] == events[6].body["result"] == "interrupted"
    assert begun == [2]


# --- a name that lives ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_acting", [True, False])
def test_the_name_of_a_run_that_lives_is_refused_before_anything_is_written(options, is_acting):
    """Else the living run reads as interrupted, and its twin's ledger holds a run that never was."""
    clock = SystemClock()
    with open_store(options.ledger) as store:
        store.append([new_event("run.start", clock=clock, run="again", attempt=1, body={})])
    living = RunDir.create(options.root, ranks=2)
    with pytest.raises(Refused, match="another run with this id is on this machine"):
        run_observed(options, is_acting=is_acting)
    with read_store(options.ledger) as store:
        assert [e.kind for e in store.events()] == ["run.start"]
    elsewhere = dataclasses.replace(options, ledger=options.ledger.with_name("other.db"))
    with pytest.raises(Refused, match="another run with this id is on this machine"):
        run_observed(elsewhere, is_acting=is_acting)
    assert not elsewhere.ledger.exists()
    living.remove()


def test_the_name_is_taken_until_the_ledger_is_closed(options, begun, monkeypatch):
    """Else the next start reads a run without an end, and ends it."""
    close, closed = session.close_ledger, []

    def closes(*arguments):
        with pytest.raises(Refused):
            RunDir.create(options.root, ranks=2)
        closed.append(arguments)
        return close(*arguments)

    monkeypatch.setattr(session, "close_ledger", closes)
    assert run_observed(options, is_acting=False).exit_code == 0
    assert closed
    assert not options.root.exists()


def test_a_refusal_by_the_ledger_leaves_what_an_earlier_start_left(options, begun):
    put(options, exit_code=0)
    RunDir.create(options.root, ranks=2).release()
    kept = RunDir(options.root).snapshot(0, 7)
    kept.write_bytes(b"state")
    with pytest.raises(Refused, match="the run with this id has finished"):
        run_observed(options, is_acting=False)
    assert kept.read_bytes() == b"state"
    RunDir.create(options.root, ranks=2).remove()
