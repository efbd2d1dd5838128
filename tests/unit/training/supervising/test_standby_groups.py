"""Groups stand by while the ranks train and a spare waits: ordered once for each crew, behind its first step."""

from types import SimpleNamespace

import pytest

from lastgood.recovery.crew import first_crew
from lastgood.training import control
from lastgood.training.rundir import RunDir
from lastgood.training.supervising.standby_groups import StandbyGroups


@pytest.fixture
def made(tmp_path):
    sent = []

    def worker(name):
        return SimpleNamespace(
            channel=SimpleNamespace(send=lambda message: sent.append((name, message)))
        )

    (tmp_path / "store").mkdir()
    supervisor = SimpleNamespace(
        serving=("w0", "w1"),
        workers={name: worker(name) for name in ("w0", "w1", "s1", "s2")},
        state=SimpleNamespace(crew=first_crew(["w0", "w1"], spare_count=1).spare_ready("s1")),
        page=SimpleNamespace(assessed_step=4),
        is_running=True,
        run_dir=RunDir(tmp_path),
    )
    groups = StandbyGroups(supervisor)
    return SimpleNamespace(groups=groups, supervisor=supervisor, sent=sent, root=tmp_path)


def ordered(number):
    return [
        ("w0", control.FormStandby(number=number, world=2, rank=0)),
        ("w1", control.FormStandby(number=number, world=2, rank=1)),
        ("s1", control.FormStandby(number=number, world=2, rank=None)),
    ]


def step(made, *, to):
    made.supervisor.page.assessed_step = to
    made.groups.poll()


def test_they_are_ordered_once_behind_the_first_step(made):
    made.groups.poll()
    assert made.sent == []
    step(made, to=5)
    assert made.sent == ordered(1)
    step(made, to=6)
    assert made.sent == ordered(1)


@pytest.mark.parametrize("change", ["no spare", "a recovery", "alone", "nine"])
def test_nothing_is_ordered_with(made, change):
    supervisor = made.supervisor
    if change == "no spare":
        supervisor.state.crew = first_crew(["w0", "w1"], spare_count=1)
    elif change == "a recovery":
        supervisor.is_running = False
    else:
        supervisor.serving = ("w0",) if change == "alone" else tuple(f"w{n}" for n in range(9))
    made.groups.poll()
    step(made, to=5)
    assert made.sent == []


def test_behind_a_recovery_they_wait_for_its_first_step_again(made):
    made.groups.poll()
    made.supervisor.is_running = False
    step(made, to=5)
    made.supervisor.is_running = True
    step(made, to=5)
    assert made.sent == []
    step(made, to=6)
    assert made.sent == ordered(1)


def test_the_case_is_told_where_the_spare_takes_one_rank_and_no_other(made):
    made.groups.poll()
    step(made, to=5)
    assert made.groups.case_of(("w0", "s1")) == (1, 1)
    assert made.groups.case_of(("s1", "w1")) == (1, 0)
    assert made.groups.case_of(("s2", "w1")) is None
    assert made.groups.case_of(("w0", "w1")) is None
    assert made.groups.case_of(("s1", "s2")) is None


def test_before_any_order_no_case_is_told(made):
    assert made.groups.case_of(("w0", "s1")) is None


def test_the_store_of_the_group_in_use_stays_and_those_of_the_others_go(made):
    made.groups.poll()
    step(made, to=5)
    files = [made.supervisor.run_dir.standby_store(1, lost_rank) for lost_rank in (0, 1)]
    for file in files:
        file.touch()
    assert made.groups.case_of(("w0", "s1")) == (1, 1)
    made.supervisor.serving = ("w0", "s1")
    made.supervisor.state.crew = first_crew(["w0", "s1"], spare_count=1).spare_ready("s2")
    step(made, to=6)
    assert [file.exists() for file in files] == [False, True]
    assert made.sent[3:] == [
        ("w0", control.FormStandby(number=2, world=2, rank=0)),
        ("s1", control.FormStandby(number=2, world=2, rank=1)),
        ("s2", control.FormStandby(number=2, world=2, rank=None)),
    ]
