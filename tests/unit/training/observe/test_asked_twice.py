"""A person who presses Ctrl-C twice ends the ranks: a line says so, and the code is that of the signal."""

import signal
from types import SimpleNamespace

import pytest

from lastgood.base.clock import ManualClock
from lastgood.training.observe.supervisor import ObserveSupervisor

KILLED = -signal.SIGKILL


class Rank:
    """It ignores what it can."""

    def __init__(self, code):
        self.exit_code, self.got = code, []

    @property
    def process_code(self):
        return self.exit_code

    def signal(self, number):
        self.got.append(number)

    def kill(self):
        if self.exit_code is None:
            self.exit_code = KILLED


def ended(*numbers, codes=(None, None), is_acting=False):
    """The exit code and the lines of a job that got these signals."""
    told = []
    watcher = SimpleNamespace(is_leaving=False, open_case=None, close_case=lambda *_a, **_k: None)
    supervisor = ObserveSupervisor.__new__(ObserveSupervisor)
    vars(supervisor).update(
        clock=ManualClock(0), is_acting=is_acting, ranks=[Rank(code) for code in codes], watcher=watcher,
        recorder=SimpleNamespace(record=lambda kind, body: told.append(body)),
        _noticed=None, _noticed_us=0, _is_notice_said=False, _insisted=None, _is_insistence_said=False, _pending=[],
    )  # fmt: skip
    for number in numbers:
        supervisor._notice(number, None)
    if numbers:
        supervisor._say_notice(numbers[0])
        supervisor._say_notice(numbers[0])
    return supervisor._over(0), [body["text"] for body in told if "text" in body]


@pytest.mark.parametrize("is_acting", [False, True])
def test_two_ctrl_c_are_an_interrupt_with_a_line(is_acting):
    code, lines = ended(signal.SIGINT, signal.SIGINT, is_acting=is_acting)
    assert code == 130
    assert lines == ["a second signal (SIGINT): every rank was killed"]


def test_two_sigterm_are_the_signal_that_was_sent():
    assert ended(signal.SIGTERM, signal.SIGTERM)[0] == 143


def test_what_a_rank_said_itself_stays_the_code_of_the_job():
    assert ended(signal.SIGINT, signal.SIGINT, codes=(75, None))[0] == 75
    assert ended(signal.SIGINT, codes=(130, 130)) == (130, [])
    assert ended(codes=(0, KILLED))[0] == 137, "nobody asked for that"
