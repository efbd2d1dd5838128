"""While the survivors leave, each spare hears which rank it will probably serve, and all hear which state comes next."""

from types import SimpleNamespace

import pytest

from lastgood.recovery import messages
from lastgood.recovery.crew import Standing, first_crew
from lastgood.training import control
from lastgood.training.supervising.effects import Effects


@pytest.fixture
def made(tmp_path):
    sent, heard = [], []

    def worker(name, published):
        return SimpleNamespace(
            name=name,
            channel=SimpleNamespace(send=lambda message: sent.append((name, message))),
            slot=SimpleNamespace(published_step=published),
            set_niceness=lambda value: None,
            hear_early_notice=lambda: heard.append(name),
            exit_code=None,
        )

    crew = first_crew(["w0", "w1", "w2"], spare_count=2).spare_ready("s1").spare_ready("s2")
    published = {"w0": 9, "w1": 8, "w2": 9, "s1": 0, "s2": 0}
    supervisor = SimpleNamespace(
        run_dir=SimpleNamespace(progress=tmp_path / "progress.bin"),
        serving=("w0", "w1", "w2"),
        workers={name: worker(name, step) for name, step in published.items()},
        state=SimpleNamespace(crew=crew, generation=4),
        is_running=True,
        ending=SimpleNamespace(is_finishing=False),
    )
    effects = Effects(supervisor)
    yield SimpleNamespace(effects=effects, sent=sent, heard=heard, supervisor=supervisor)
    effects.close()


def lose(made, *workers):
    state = made.supervisor.state
    state.crew = state.crew.moved(workers, Standing.DOOMED)
    survivors = state.crew.serving_with(Standing.ACTIVE)
    made.effects.carry_out(messages.Revoke(4, survivors))


def prepared(rank, newest_step=8):
    return control.Prepare(generation=5, rank=rank, world=3, newest_step=newest_step)


def test_the_oldest_spare_prepares_for_the_lost_rank(made):
    lose(made, "w1")
    revoked = control.Revoked(generation=4, newest_step=8)
    assert made.sent == [("s1", prepared(1)), ("w0", revoked), ("w2", revoked)]


def test_two_spares_prepare_for_two_ranks_in_the_order_in_which_they_will_be_taken(made):
    lose(made, "w0", "w2")
    assert made.sent[:2] == [("s1", prepared(0)), ("s2", prepared(2))]
    crew = made.supervisor.state.crew.moved(["w0", "w2"], Standing.GONE)
    assert crew.moved(["w1"], Standing.PARKED).reassigned().serving == ("s1", "w1", "s2")


def test_nothing_is_prepared_where_no_state_has_a_predecessor(made):
    made.supervisor.workers["w1"].slot.published_step = 0
    lose(made, "w1")
    assert [name for name, _ in made.sent] == ["w0", "w2"]


def test_what_was_said_when_a_rank_seemed_to_end_is_not_said_again(made):
    made.effects.preparing.expect_ends([made.supervisor.workers["w1"]])
    hint = control.ReadAhead(newest_step=8)
    assert made.sent == [("s1", prepared(1)), ("w0", hint), ("w2", hint)]
    made.sent.clear()
    lose(made, "w1")
    revoked = control.Revoked(generation=4)
    assert made.sent == [("w0", revoked), ("w2", revoked)]


def test_the_others_hear_of_an_end_that_is_certain_when_they_are_told_to_leave(made):
    made.supervisor.workers["w1"].exit_code = -9
    made.effects.preparing.expect_ends([made.supervisor.workers["w1"]])
    assert made.sent == [("s1", prepared(1))]
    lose(made, "w1")
    revoked = control.Revoked(generation=4, newest_step=8)
    assert made.sent[1:] == [("w0", revoked), ("w2", revoked)]


def test_what_has_changed_since_a_rank_seemed_to_end_is_said(made):
    made.effects.preparing.expect_ends([made.supervisor.workers["w1"]])
    made.sent.clear()
    made.supervisor.workers["w1"].slot.published_step = 9
    lose(made, "w0", "w1")
    assert made.sent == [
        ("s1", prepared(0, newest_step=9)),
        ("s2", prepared(1, newest_step=9)),
        ("w2", control.Revoked(generation=4, newest_step=9)),
    ]


@pytest.mark.parametrize("way", ["a spare", "finishing", "recovering"])
def test_an_end_that_costs_no_step_is_not_prepared_for(made, way):
    made.supervisor.ending.is_finishing = way == "finishing"
    made.supervisor.is_running = way != "recovering"
    made.effects.preparing.expect_ends(
        [made.supervisor.workers["s1" if way == "a spare" else "w1"]]
    )
    assert made.sent == []
    assert made.heard == ["s1" if way == "a spare" else "w1"]


def test_two_ranks_that_seem_to_end_one_behind_the_other_get_a_spare_each_and_none_is_told_twice(
    made,
):
    for name in ("w1", "w0"):
        made.effects.preparing.expect_ends([made.supervisor.workers[name]])
    told = [(name, m) for name, m in made.sent if isinstance(m, control.Prepare)]
    assert told == [("s1", prepared(1)), ("s1", prepared(0)), ("s2", prepared(1))]
    made.sent.clear()
    lose(made, "w0", "w1")
    assert made.sent == [("w2", control.Revoked(generation=4))]
