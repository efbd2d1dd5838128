"""A notice that comes when every rank has done its last step: nothing is stopped, and the scripts' own code is the run's."""

import signal
from types import SimpleNamespace

import pytest

from lastgood.base.clock import ManualClock
from lastgood.cli.live import describe
from lastgood.ledger.event import new_event
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase
from lastgood.training.supervising.ending import Ending

GRACE_US = 60_000_000
REQUEUE, INTERRUPTED, DO_NOT_REQUEUE = 75, 130, 93


class Run:
    """Two ranks that have done their last step, and what the supervisor knows of them."""

    def __init__(self, folder, *, finished=(0, 1)):
        self.now_us, self.events, self.is_stopped = 0, [], False
        page = SimpleNamespace(published_step=6, step=6, phase=Phase.FINISHED)
        self.ranks = [
            SimpleNamespace(
                exit_code=None, pid=1, kill=None, slot=SimpleNamespace(view=lambda: page),
                channel=SimpleNamespace(send=lambda _: None),
            )
            for _ in range(2)
        ]  # fmt: skip
        self.supervisor = SimpleNamespace(
            state=SimpleNamespace(phase=LoopPhase.RUNNING, case_count=0), is_running=True, exit_code=None, last_step=None,
            finished=dict.fromkeys(finished, 6), leavers=SimpleNamespace(left=()), serving=("w0", "w1"),
            workers=dict(zip(("w0", "w1"), self.ranks, strict=True)), watch=SimpleNamespace(next_step=7),
            options=SimpleNamespace(ranks=2, run_id="job", limits=Limits(), checkpoint_dir=None, preemption_grace_us=GRACE_US),
            run_dir=SimpleNamespace(status=lambda name: folder / name, stacks=folder), now_us=lambda: self.now_us,
            recorder=SimpleNamespace(record=self._record), tell_loop=lambda _: None, finish_after=self._stop,
        )  # fmt: skip
        checkpointing = SimpleNamespace(write_last=lambda: True)
        self.ending = Ending(self.supervisor, checkpointing)  # type: ignore[arg-type]

    def _record(self, kind, *, body=None, **_):
        self.events.append(new_event(kind, clock=ManualClock(self.now_us), body=body or {}))

    def _stop(self, _steps):
        self.is_stopped = True

    def turn(self, *, after_us=1):
        self.now_us += after_us
        self.ending.advance()
        return self.supervisor.exit_code

    @property
    def said(self):
        return [text for event in self.events if (text := describe(event))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("turns", [0, 1])
def test_scripts_that_were_through_end_by_themselves(tmp_path, number, turns):
    run = Run(tmp_path)
    for _ in range(turns):
        run.turn()
    run.ending.notice(number)
    assert run.turn() is None
    assert (run.turn(), run.is_stopped) == (None, False)
    assert run.said == [
        f"behind the last step came {signal.Signals(number).name}: every step is done, and the scripts have 1 min to end"
    ]
    for rank in run.ranks:
        rank.exit_code = 3
    assert run.turn() == 3
    assert "planned.begin" not in [event.kind for event in run.events]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, REQUEUE), (signal.SIGINT, INTERRUPTED)]
)
def test_scripts_that_do_not_end_within_the_time_of_a_notice_are_cut_off(tmp_path, number, code):
    run = Run(tmp_path)
    run.turn()
    run.ending.notice(number)
    assert run.turn() is None
    assert run.turn(after_us=GRACE_US) == code
    assert "have not ended within 1 min" in run.said[-1]


def test_a_second_interrupt_waits_for_no_script(tmp_path):
    run = Run(tmp_path)
    run.turn()
    run.ending.notice(signal.SIGINT)
    run.turn()
    run.ending.notice(signal.SIGINT)
    assert run.supervisor.exit_code == INTERRUPTED


def test_a_notice_that_ends_the_ranks_too_asks_for_a_requeue(tmp_path):
    run = Run(tmp_path)
    run.turn()
    run.ending.notice(signal.SIGTERM)
    for rank in run.ranks:
        rank.exit_code = -signal.SIGTERM
    assert run.turn() == REQUEUE


def test_a_notice_before_the_last_rank_is_done_stops_the_run(tmp_path):
    run = Run(tmp_path, finished=(0,))
    run.ending.notice(signal.SIGTERM)
    run.turn()
    assert run.is_stopped
    assert "what it trained is lost" in run.said[-1]


def test_another_reason_to_end_is_no_notice(tmp_path):
    run = Run(tmp_path)
    run.turn()
    run.ending.end_for("the ledger cannot be written", code=DO_NOT_REQUEUE)
    assert run.turn() == DO_NOT_REQUEUE
