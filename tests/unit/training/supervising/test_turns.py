"""What an answer of a recovery costs: it is taken by itself, and all the rest waits for its time."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from lastgood.recovery import messages
from lastgood.recovery.policy import LoopPhase
from lastgood.training import control
from lastgood.training.supervising import supervisor as module
from lastgood.training.supervising.supervisor import TURN_S_MAX, Supervisor

ANSWERS = [
    control.Parked(generation=2),
    control.StateRestored(generation=3, rank=0, is_intact=True),
    control.StepReplayed(generation=3, rank=0, step=8, outcome="equal", digest="aa"),
]
REMARK = control.Remark(rank=0, text="shuffles without a seed", next="give it one")


class Turning(Supervisor):
    """A supervisor in a recovery that has just made a whole turn, with nothing real around it."""

    def __init__(self):
        self.time_us = 1_000_000
        self.whole, self.seen = [], []
        self.told = []
        self.recorder, self.beginning, self.checkpointing = MagicMock(), MagicMock(), MagicMock()
        self._ledger_watch, self._effects, self._remarks = MagicMock(), MagicMock(), MagicMock()
        self.ending = SimpleNamespace(is_finishing=True, advance=lambda: None)
        self.state = SimpleNamespace(phase=LoopPhase.RESTORING, deadline_us=None)
        self.serving, self.workers, self._talking, self._startup = (), {}, [], None
        self.beginning.poll.side_effect = lambda: self.whole.append(self.time_us)
        self._on_turn = self.seen.append
        self._next_turn_us, self._is_due = 0, True
        self._take_turn()
        self.whole.clear()
        self.seen.clear()

    def now_us(self):
        return self.time_us

    def tell_loop(self, observation):
        self.told.append(observation)

    def turn(self, *messages):
        channel = MagicMock(is_closed=False)
        channel.has_input.side_effect = [True, False]
        channel.receive.return_value = messages
        worker = SimpleNamespace(name="w0", channel=channel)
        self._talking = [worker] if messages else []
        self._take_turn()


@pytest.fixture
def supervisor(monkeypatch):
    monkeypatch.setattr(module, "hear_fatal_errors", lambda _supervisor: None)
    return Turning()


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_within_a_recovery_is_taken_without_a_whole_turn(supervisor, answer):
    supervisor.turn(answer)
    ((_, heard), _) = supervisor._effects.hear.call_args
    assert heard == answer
    assert supervisor.whole == []


def test_outside_readers_see_what_came_of_an_answer(supervisor):
    """A phase of a recovery may last less than a whole turn takes to come."""
    supervisor._effects.publish_state.reset_mock()
    supervisor.turn(ANSWERS[0])
    assert supervisor._effects.publish_state.call_count == len(supervisor.seen) == 1


def test_anything_else_that_is_said_is_looked_at_in_a_whole_turn(supervisor):
    supervisor.turn(ANSWERS[0], REMARK)
    assert len(supervisor.whole) == 1
    supervisor.turn(ANSWERS[1])
    assert len(supervisor.whole) == 1


def test_answers_put_off_no_whole_turn(supervisor):
    supervisor.time_us += int(TURN_S_MAX * 1e6) - 1
    supervisor.turn(ANSWERS[0])
    assert supervisor.whole == []
    supervisor.time_us += 1
    supervisor.turn(ANSWERS[1])
    assert len(supervisor.whole) == 1


def test_the_loop_hears_of_time_when_its_deadline_has_passed(supervisor):
    supervisor.state.deadline_us = supervisor.time_us + 1
    supervisor.turn(REMARK)
    assert supervisor.told == []
    supervisor.time_us += 1
    supervisor.turn(REMARK)
    assert supervisor.told == [messages.Tick()]


def test_an_end_is_looked_at_in_a_whole_turn(supervisor, monkeypatch):
    heard = SimpleNamespace(talking=[], letting_go=[], ended=[SimpleNamespace(name="w0")])
    monkeypatch.setattr(module, "wait_for_workers", lambda _workers, _limit_s: heard)
    supervisor.wait_for_input()
    supervisor._take_turn()
    assert len(supervisor.whole) == 1


@pytest.mark.parametrize("startup", [None, MagicMock()], ids=["training", "starting"])
def test_nobody_turns_without_a_rest(supervisor, monkeypatch, startup):
    """Ranks that start, or take up a run, need every core."""
    limits = []
    heard = SimpleNamespace(talking=[], letting_go=[], ended=[])
    monkeypatch.setattr(module, "notice_pause", lambda _supervisor: None)
    monkeypatch.setattr(
        module, "wait_for_workers", lambda _workers, limit_s: limits.append(limit_s) or heard
    )
    supervisor._startup = startup
    supervisor.ending.is_noticed = False
    if startup is not None:
        startup.advance.return_value = False
        supervisor._next_turn_us = 0  # as it begins: there was no whole turn yet
    supervisor._serve()
    assert limits == [TURN_S_MAX]


def test_all_that_a_worker_said_is_heard_before_it_is_forgotten(supervisor, monkeypatch):
    order = []
    monkeypatch.setattr(module, "end_orphans", lambda *_: None)
    channel = MagicMock(is_closed=False)
    channel.has_input.side_effect = [True, True, False]
    channel.receive.side_effect = [[REMARK], [REMARK]]
    worker = SimpleNamespace(name="w7", channel=channel, exit_code=1)
    monkeypatch.setattr(supervisor, "_hear", lambda *_: order.append("heard"))
    supervisor._effects.forget = lambda _worker: order.append("forgotten")
    supervisor.workers, supervisor._reaped = {"w7": worker}, set()
    supervisor._reap()
    assert order == ["heard", "heard", "forgotten"]
