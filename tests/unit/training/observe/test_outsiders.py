"""What is written for an injector is what the injector reads."""

from types import SimpleNamespace

from lastgood.faults.live_run import LiveRun
from lastgood.training.observe.outsiders import Outsiders
from lastgood.training.rundir import RunDir


def rank(number: int, step: int) -> SimpleNamespace:
    slot = SimpleNamespace(view=lambda: SimpleNamespace(published_step=step))
    return SimpleNamespace(rank=number, name=f"r{number}a2", pid=100 + number, slot=slot)


def test_an_injector_finds_the_process_of_each_rank_and_its_newest_step(tmp_path):
    outsiders, run = Outsiders(RunDir(tmp_path)), LiveRun(tmp_path)
    assert run.state() is None
    ranks = [rank(0, 7), rank(1, 6)]
    outsiders.say(2, ranks)
    outsiders.say_steps(ranks)
    state = run.state()
    assert state is not None
    assert (state.generation, state.is_over) == (2, False)
    assert {n: (m.worker, m.pid) for n, m in state.ranks.items()} == {0: ("r0a2", 100), 1: ("r1a2", 101)}  # fmt: skip
    assert [run.published_step(number) for number in (0, 1, 2)] == [7, 6, None]
