"""A supervisor that did not run for a while blames nobody for it, and forgets nothing else."""

from types import SimpleNamespace

import pytest

from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase, ProcessState, Verdict
from lastgood.training.resuming.life import LifePage
from lastgood.training.watching import observing
from lastgood.training.watching.kernel import ProcessSample
from lastgood.training.watching.pauses import notice_pause
from lastgood.training.watching.watch import Watch

LIMIT_US = 1_000_000


class Supervisor:
    def __init__(self, folder):
        self.time_us = 10_000_000
        self.life = LifePage(folder / "life")
        self.watch = Watch(Limits(step_floor_us=LIMIT_US))
        self.has_turned = False
        self.state = None
        self.events = []
        self.clock = SimpleNamespace(wall_us=lambda: self.time_us + 5)
        self.recorder = SimpleNamespace(
            record=lambda kind, **fields: self.events.append(fields), wall_us=lambda us: us + 5
        )

    def now_us(self):
        return self.time_us

    def turn(self, after_us):
        self.time_us += after_us
        notice_pause(self)  # pyrefly: ignore


def worker(progress_us):
    view = SimpleNamespace(
        generation=1, rank=0, phase=Phase.COMPUTE, step=5, published_step=4, launches=3, completions=3,
        progress_us=progress_us, section=None, section_limit_us=None,
    )  # fmt: skip
    return SimpleNamespace(
        name="w0", pid=1, exit_code=None, slot=SimpleNamespace(view=lambda: view)
    )


@pytest.fixture
def supervisor(tmp_path, monkeypatch):
    sample = ProcessSample(ProcessState.SLEEPING, 0, 0)
    monkeypatch.setattr(observing, "sample_process", lambda _pid: sample)
    made = Supervisor(tmp_path)
    made.watch.begin_generation(1, next_step=5)
    made.turn(0)
    return made


def verdict_of(supervisor, progress_us):
    found = supervisor.watch.assess_liveness([worker(progress_us)], {}, now_us=supervisor.time_us)
    return found.verdict


def test_the_first_turn_of_a_process_is_no_pause_however_old_the_page(tmp_path):
    made = Supervisor(tmp_path)
    made.life.turn(now_us=1, wall_us=1)
    made.turn(0)
    assert made.events == []


def test_a_rank_that_moved_right_before_the_pause_is_not_silent_after_it(supervisor):
    progress_us = supervisor.time_us
    supervisor.turn(60 * LIMIT_US)
    assert verdict_of(supervisor, progress_us) is Verdict.OK
    (event,) = supervisor.events
    assert event["body"]["pause_us"] == 60 * LIMIT_US
    assert event["t_occurred_us"] == progress_us + 5


def test_silence_before_and_after_the_pause_still_counts(supervisor):
    progress_us = supervisor.time_us
    for _ in range(60):
        supervisor.turn(10_000)
    supervisor.turn(60 * LIMIT_US)
    for _ in range(38):
        supervisor.turn(10_000)
    assert verdict_of(supervisor, progress_us) is Verdict.OK
    for _ in range(6):
        supervisor.turn(10_000)
    assert verdict_of(supervisor, progress_us) is Verdict.FAILED


def test_a_machine_that_starves_the_supervisor_again_and_again_hides_no_hang(supervisor):
    """Each pause is left out, and the turns between them add up."""
    progress_us = supervisor.time_us
    for _ in range(52):
        supervisor.turn(300_000)
        supervisor.turn(20_000)
    assert verdict_of(supervisor, progress_us) is Verdict.FAILED
    assert supervisor.events == []


def test_the_deadline_of_a_recovery_moves_by_the_pause(supervisor):
    from dataclasses import replace

    from lastgood.recovery.loop import initial_state

    state = initial_state(1, None, ("w0",), 0, now_us=0)
    before_us = supervisor.time_us + 100
    supervisor.state = replace(state, deadline_us=before_us)
    supervisor.turn(5_000_000)
    assert supervisor.state.deadline_us == before_us + 5_000_000
