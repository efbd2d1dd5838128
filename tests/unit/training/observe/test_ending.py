"""With which code a rank has ended: by its own word where only Python's teardown was left to be cut short."""

import signal
from types import SimpleNamespace

import pytest

from lastgood.ledger.event import Event
from lastgood.signals.limits import Limits
from lastgood.training.lingering import Lingering
from lastgood.training.observe.ending import write_ending
from lastgood.training.observe.rank import ObservedRank
from lastgood.training.observe.supervisor import ObserveSupervisor
from lastgood.training.slot import StatusSlot
from lastgood.training.teardown import code_of_end, note_teardown

ABORTED = -signal.SIGABRT


@pytest.fixture
def slot(tmp_path):
    return StatusSlot(tmp_path / "slot", create=True)


@pytest.mark.parametrize("meant", [0, 1, 75])
def test_a_rank_that_a_signal_ends_in_the_teardown_counts_with_the_code_it_was_leaving_with(
    tmp_path, meant
):
    note_teardown(tmp_path / "r1a2", meant)
    assert code_of_end(ABORTED, tmp_path / "r1a2") == meant


def test_a_rank_that_a_signal_ends_while_the_script_still_has_exit_handlers_was_ended(
    tmp_path, slot
):
    write_ending(tmp_path / "r1a2", slot, code=0)
    assert code_of_end(ABORTED, tmp_path / "r1a2") == ABORTED


def test_a_rank_with_half_a_mark_ended_as_the_kernel_says(tmp_path):
    (tmp_path / "r1a2.teardown").touch()
    assert code_of_end(ABORTED, tmp_path / "r1a2") == ABORTED


def test_what_lives_or_ended_with_a_code_is_as_the_kernel_says(tmp_path):
    note_teardown(tmp_path / "r1a2", 0)
    assert code_of_end(None, tmp_path / "r1a2") is None
    assert code_of_end(120, tmp_path / "r1a2") == 120


class Ended:
    """A job of two ranks that have both ended, the second one in its teardown; the supervisor's first turn behind it.

    `code` is the one that the second one was leaving with; with another than 0 it is the first that failed.
    """

    def __init__(self, folder, slot, *, is_acting, code=0):
        self.events: list[Event] = []
        (folder / "endings").mkdir()
        ranks = []
        for rank, (by_kernel, own) in enumerate(((0, 0), (ABORTED, code))):
            ended = ObservedRank.__new__(ObservedRank)
            ended.rank, ended.name = rank, f"r{rank}a2"
            ended.is_given_up = False
            ended.pid = 1
            ended._run = SimpleNamespace(root=folder)  # type: ignore[assignment]
            ended.process = SimpleNamespace(poll=lambda code=by_kernel: code, kill=None)  # type: ignore[assignment]
            write_ending(folder / "endings" / ended.name, slot, code=own)
            note_teardown(folder / "endings" / ended.name, own)
            ranks.append(ended)
        supervisor = ObserveSupervisor.__new__(ObserveSupervisor)
        supervisor.ranks, supervisor.is_acting = ranks, is_acting
        supervisor._outsiders = supervisor._noticed = supervisor._insisted = None
        supervisor._torn_down, supervisor._pending = set(), []
        supervisor.watcher = SimpleNamespace(  # type: ignore[assignment]
            finish=lambda _now: None,
            close_case=lambda *_a, **_f: None,
            open_case=SimpleNamespace(culprits=(1,)) if code else None,
        )
        supervisor.recorder = SimpleNamespace(record=self._record)  # type: ignore[assignment]
        supervisor._lingering = Lingering(
            supervisor.recorder, limits=Limits(), stacks=folder, may_end=is_acting
        )
        self.code = supervisor._turn(0)

    def _record(self, kind, *, ranks, body):
        self.events.append((kind, ranks, body["signal"], body["exit_code"]))  # type: ignore[arg-type]


def test_a_job_that_is_done_is_not_started_again_and_ends_well(tmp_path, slot):
    ended = Ended(tmp_path, slot, is_acting=True)
    assert ended.code == 0
    assert ended.events == [("annotation", (1,), 6, 0)]


def test_in_observe_mode_the_code_of_the_job_stays_what_its_launcher_would_see(tmp_path, slot):
    ended = Ended(tmp_path, slot, is_acting=False)
    assert ended.code == 128 + 6
    assert ended.events == [("annotation", (1,), 6, 0)]


def test_so_does_the_code_of_the_rank_that_failed_first(tmp_path, slot):
    ended = Ended(tmp_path, slot, is_acting=False, code=1)
    assert ended.code == 128 + 6
    assert ended.events == [("annotation", (1,), 6, 1)]
