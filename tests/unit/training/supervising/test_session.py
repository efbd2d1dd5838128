"""The name of a run is taken from before its history is read until its end is in the ledger, whoever starts meanwhile."""

import dataclasses

import pytest

from lastgood.base.clock import SystemClock
from lastgood.base.errors import Refused
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store, read_store
from lastgood.training.options import RunOptions
from lastgood.training.rundir import RunDir
from lastgood.training.supervising import session
from lastgood.training.supervising.session import run_training


@pytest.fixture
def options(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass")
    return RunOptions(
        script=script, ranks=2, run_id="again", ledger=tmp_path / "ledger.db", root=tmp_path / "run"
    )


@pytest.fixture
def at_end(monkeypatch):
    """What happens at the very end of a supervisor, which removes its live files and runs nothing."""
    calls = []

    class Stub:
        serving = ()

        def __init__(self, _options, _contract, _recorder, *, run_dir, **_):
            self.run_dir = run_dir

        def run(self):
            self.run_dir.remove()
            for call in calls:
                call()
            return 75

    monkeypatch.setattr(session, "Supervisor", Stub)
    return calls


def kinds(options):
    with read_store(options.ledger) as store:
        return [event.kind for event in store.events()]


def test_a_start_right_behind_the_end_of_another_one_does_not_read_a_run_without_an_end(
    options, at_end
):
    """Its live files are gone, and its end is not recorded yet: the second one would call it interrupted."""

    def second_start():
        at_end.clear()
        with pytest.raises(Refused, match="another run with this id is on this machine"):
            run_training(options)

    at_end.append(second_start)
    assert run_training(options).exit_code == 75
    assert kinds(options) == ["run.start", "attempt.end", "run.end"]
    assert run_training(options).exit_code == 75
    assert "incident.open" not in kinds(options)
    assert not options.root.exists()


def test_the_name_is_taken_before_the_history_is_read(options, at_end, monkeypatch):
    """Else a run that ends between the two is taken up by a start that has read it without its end."""
    read, found = session.history_of, []

    def reads(options):
        with pytest.raises(Refused):
            RunDir.create(options.root, ranks=2)
        found.append(read(options))
        return found[-1]

    monkeypatch.setattr(session, "history_of", reads)
    run_training(options)
    run_training(options)
    assert [history.is_open for history in found] == [False, False]


def test_the_name_is_taken_until_the_ledger_is_closed(options, at_end, monkeypatch):
    close, closed = session.close_ledger, []

    def closes(*arguments):
        with pytest.raises(Refused):
            RunDir.create(options.root, ranks=2)
        closed.append(arguments)
        return close(*arguments)

    monkeypatch.setattr(session, "close_ledger", closes)
    assert run_training(options).exit_code == 75
    assert closed


def test_the_name_of_a_run_that_lives_is_refused_before_anything_is_written(options, at_end):
    living = RunDir.create(options.root, ranks=2)
    elsewhere = dataclasses.replace(options, ledger=options.ledger.with_name("other.db"))
    with pytest.raises(Refused, match="another run with this id is on this machine"):
        run_training(elsewhere)
    assert not elsewhere.ledger.exists()
    living.remove()


def test_a_refusal_by_the_ledger_leaves_what_an_earlier_start_left_and_nothing_of_its_own(
    options, at_end
):
    clock = SystemClock()
    told = [
        ("run.start", {"command": ["train.py"], "world": 2}),
        ("step", {"first": 1, "last": 1, "began_us": clock.wall_us(), "ended_us": [clock.wall_us()]}),
        ("run.end", {"exit_code": 0}),
    ]  # fmt: skip
    with open_store(options.ledger) as store:
        store.append([new_event(kind, clock=clock, run="again", body=body) for kind, body in told])
    with pytest.raises(Refused, match="the run with this id has finished"):
        run_training(options)
    assert not options.root.exists()
    left = RunDir.create(options.root, ranks=2)
    left.snapshot(0, 7).write_bytes(b"state")
    left.release()
    with pytest.raises(Refused, match="the run with this id has finished"):
        run_training(options)
    assert left.snapshot(0, 7).read_bytes() == b"state"
    assert len(kinds(options)) == 3
