"""A step after which the replicas differ: its incident began with the step and not with the comparison."""

from types import SimpleNamespace

from lastgood.base.clock import ManualClock, RunClock
from lastgood.recovery import messages
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict
from lastgood.training.recorder import Recorder
from lastgood.training.supervising.supervisor import Supervisor


def test_the_onset_of_a_wrong_step_is_its_begin():
    clock, told = ManualClock(1_000_000), []
    recorder = Recorder(
        SimpleNamespace(submit=lambda _event: None), clock=RunClock(clock), run_id="r", versions={}, topology="t",
    )  # type: ignore[arg-type]  # fmt: skip
    recorder.begin_steps(first=455, began_us=recorder.wall_us(900_000))
    found = Assessment(
        question=Question.CORRECTNESS, verdict=Verdict.FAILED, symptom=Symptom.REPLICA_DIVERGENCE,
        onset_us=1_000_000, first_divergent_step=455,
    )  # fmt: skip
    finished = SimpleNamespace(step=455, done_wall_us=recorder.wall_us(970_000), mean_loss=None)
    supervisor = SimpleNamespace(
        state=SimpleNamespace(phase=LoopPhase.RUNNING, generation=1), workers={}, serving=(), recorder=recorder,
        watch=SimpleNamespace(assess_steps=lambda _workers, **_: [SimpleNamespace(finished=finished, correctness=found)]),
        now_us=clock.monotonic_us, tell_loop=told.append,
    )  # fmt: skip
    Supervisor._collect_steps(supervisor)  # type: ignore[arg-type]
    (verdict,) = [m.assessment for m in told if isinstance(m, messages.Assessed)]
    assert verdict.onset_us == 900_000
    assert verdict.first_divergent_step == 455
