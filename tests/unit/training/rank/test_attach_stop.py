"""Hosts that are asked to stop at different times stop behind the same step, and a store that lives on asks nobody again."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lastgood.training.attach.live import StopPage
from lastgood.training.rank import attach as module
from lastgood.training.rank.attach import STOP_AFTER_STEPS, Attached, _Settings

ASKED_BEHIND = 7


class Store:
    """Stands for the job's store."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        assert expected == ""
        return self.kept.setdefault(key, desired.encode())

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        return self.kept[key]


class Rank(Attached):
    """A rank of one of two hosts, with a step and no group."""

    def __init__(self, folder: Path, store: Store, rank: int, *, attempt: int = 1) -> None:
        place = SimpleNamespace(
            world=4, local_world=2, local_rank=rank % 2, rank=rank, attempt=attempt
        )
        page = StopPage(folder / f"{rank // 2}-{attempt}")
        settings = _Settings(snapshots=None, snapshot_every=0, on_stop=None, repeat_limit=2)
        super().__init__(place, SimpleNamespace(on_step=None), page, settings)  # type: ignore[arg-type]
        self._store = store

    def _shared_store(self):
        return self._store

    def stops_behind(self, step: int) -> bool:
        try:
            self._behind_step(step)
        except SystemExit as end:
            return end.code == 75
        return False


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
@pytest.mark.parametrize("asked", range(4))
def test_one_rank_that_is_asked_stops_all_hosts_behind_one_step(tmp_path, order, asked):
    """Within a step the ranks come in any order; none begins the next one before all have ended this one."""
    store = Store()
    ranks = [Rank(tmp_path, store, rank) for rank in range(4)]
    for step in range(ASKED_BEHIND, ASKED_BEHIND + STOP_AFTER_STEPS + 1):
        if step == ASKED_BEHIND:
            ranks[asked]._asked(15, None)
        stopped = [ranks[rank].stops_behind(step) for rank in order]
        assert stopped == [step == ASKED_BEHIND + STOP_AFTER_STEPS] * 4, step


def test_a_stop_of_an_earlier_attempt_stops_nobody_in_the_next(tmp_path):
    store = Store()
    first = Rank(tmp_path, store, 0)
    first._asked(15, None)
    assert not first.stops_behind(3)
    again = Rank(tmp_path, store, 0, attempt=2)
    assert not any(again.stops_behind(step) for step in range(4, 9))


@pytest.fixture
def restored_signals(monkeypatch):
    monkeypatch.setattr(module, "end_where_no_step_comes", lambda _is_broken: True)
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def first_of_the_script(*_: object) -> None:
    """Stands for a handler of the script."""


def second_of_the_script(*_: object) -> None:
    """Another one."""


@pytest.mark.usefixtures("restored_signals")
@pytest.mark.parametrize("before", [signal.SIG_DFL, first_of_the_script])
def test_until_the_first_step_sigterm_does_what_it_did_before(tmp_path, before):
    """A handler of Python is not run by a rank that waits in `init_process_group`."""
    signal.signal(signal.SIGTERM, before)
    rank = Rank(tmp_path, Store(), 0)
    rank.take_signals()
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGUSR1) == rank._asked
    assert not rank.stops_behind(1)
    assert signal.getsignal(signal.SIGTERM) == rank._asked


@pytest.mark.usefixtures("restored_signals")
def test_a_handler_that_the_script_sets_behind_attach_stays(tmp_path):
    signal.signal(signal.SIGTERM, first_of_the_script)
    rank = Rank(tmp_path, Store(), 0)
    rank.take_signals()
    signal.signal(signal.SIGTERM, second_of_the_script)
    assert not any(rank.stops_behind(step) for step in (1, 2))
    assert signal.getsignal(signal.SIGTERM) == second_of_the_script
