"""What a rank hears from its supervisor, in any order, and what it owes in return."""

from types import SimpleNamespace

import pytest

from lastgood.training import control
from lastgood.training.rank import link as module
from lastgood.training.rank.link import Link, ReplayVerdict


@pytest.fixture
def link():
    sent = []
    made = Link(
        worker="w0",
        channel=SimpleNamespace(send=sent.append, is_closed=False),
        run=None,
        slot=None,
        page=None,
    )
    made.sent = sent
    return made


def assignment(generation):
    return control.Assignment(generation=generation, rank=0, world=2)


def test_a_silent_supervisor_is_looked_at_once_there_was_an_assignment(link, monkeypatch):
    done = []
    monkeypatch.setattr(
        module, "Vigil", lambda _: SimpleNamespace(look=lambda: done.append("look"))
    )
    monkeypatch.setattr(module.os, "_exit", done.append)
    link.run = SimpleNamespace(life=None)

    def waits():
        yield  # still parked for the first time: nothing is looked at
        assert done == []
        link._take(assignment(1))
        yield
        link.channel.is_closed = True
        yield

    waited = waits()
    link.channel.has_input = lambda _limit_s: next(waited)
    link._listen()
    assert done == ["look", "look", module.SUPERVISOR_GONE]


def test_an_assignment_that_was_revoked_before_it_was_taken_is_passed_over_and_answered(link):
    """Whoever revokes waits for every worker to park: silence here would stop the run for good."""
    for message in (assignment(1), control.Revoked(generation=1), assignment(2)):
        link._take(message)
    assert link.wait_assignment().generation == 2
    assert link.sent == [control.Parked(generation=1)]


def test_only_the_end_of_the_present_generation_ends_a_step(link):
    asked = []
    link.interruption = SimpleNamespace(ask=lambda: asked.append("asked"))
    link.group.generation = 3
    link._take(control.Revoked(generation=2))
    assert asked == []
    link._take(control.Revoked(generation=3))
    assert asked == ["asked"]


def test_an_assignment_is_taken_once_and_without_a_word(link):
    link._take(assignment(1))
    assert link.wait_assignment().generation == 1
    assert link.sent == []


def test_an_announced_rank_is_taken_up_unless_the_assignment_has_come(link):
    announced = control.Prepare(generation=2, rank=1, world=2, newest_step=7)
    link._take(announced)
    assert link.wait_assignment() == announced
    link._take(announced)
    link._take(assignment(2))
    assert link.wait_assignment() == assignment(2)


def test_what_may_be_read_ahead_is_said_before_a_revocation_or_with_it_and_not_twice(link):
    heard = []
    link.on_hint = heard.append
    link._take(control.ReadAhead(newest_step=6))
    link._take(control.Revoked(generation=1, newest_step=7))
    link._take(control.Revoked(generation=2))
    assert heard == [6, 7]


@pytest.mark.parametrize("wait", ["wait_proceed", "wait_finish"])
def test_a_revocation_ends_every_wait(link, wait):
    link._take(control.Revoked(generation=3))
    assert getattr(link, wait)(3) is False
    assert link.is_revoked(2)
    assert not link.is_revoked(4)
    link.wait_revoked(3)


def test_the_word_that_was_waited_for_ends_the_wait(link):
    link._take(control.Proceed(generation=2, has_buckets=True))
    link._take(control.Resumed(generation=2, step=9))
    link._take(control.FinishAcknowledged())
    assert link.wait_proceed(2)
    assert link.has_buckets
    assert link.wait_verdict(2) is ReplayVerdict.RESUMED
    assert link.wait_finish(2)


def test_a_replay_is_judged_each_time_that_it_is_made(link):
    link._take(control.ReplayAgain(generation=3))
    assert link.wait_verdict(3) is ReplayVerdict.AGAIN
    link._take(control.Resumed(generation=3, step=9))
    assert link.wait_verdict(3) is ReplayVerdict.RESUMED
    link._take(control.Revoked(generation=3))
    assert link.wait_verdict(3) is ReplayVerdict.REVOKED


def test_a_late_revocation_of_an_older_generation_takes_nothing_back(link):
    link._take(control.Revoked(generation=3))
    link._take(control.Revoked(generation=1))
    assert link.is_revoked(3)


def test_the_last_step_of_a_preempted_run_is_heard(link):
    assert link.stop_after is None
    link._take(control.StopAfter(step=12))
    assert link.stop_after == 12


def test_stacks_are_dumped_while_the_main_thread_is_busy(link, tmp_path):
    link._take(control.DumpStack(path=str(tmp_path / "stacks")))
    assert "test_stacks_are_dumped" in (tmp_path / "stacks").read_text()
