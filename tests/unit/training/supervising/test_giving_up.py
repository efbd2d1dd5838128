"""A killed process that does not go away is given up, and the ledger and the loop are told."""

from types import SimpleNamespace

import pytest

from lastgood.recovery import messages
from lastgood.signals.reading import ProcessState
from lastgood.training.supervising import effects as module
from lastgood.training.supervising.effects import Effects
from lastgood.training.watching.kernel import ProcessSample

S = 1_000_000


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Effects over one worker that has just been killed; `state` is what the kernel says of it from now on."""
    made = SimpleNamespace(now_us=0, told=[], recorded=[], state=ProcessState.RUNNING)
    worker = SimpleNamespace(name="w1", pid=77, kill=lambda: None)
    recorder = SimpleNamespace(record=lambda kind, **fields: made.recorded.append((kind, fields)))
    supervisor = SimpleNamespace(
        run_dir=SimpleNamespace(progress=tmp_path / "progress"), workers={"w1": worker},
        now_us=lambda: made.now_us, tell_loop=made.told.append, recorder=recorder,
    )  # fmt: skip
    monkeypatch.setattr(module, "sample_process", lambda pid: ProcessSample(made.state, 0, 0))
    made.effects = Effects(supervisor)
    made.effects.carry_out(messages.Kill(("w1",)))
    yield made
    made.effects.close()


def look(scene, at_us):
    scene.now_us = at_us
    scene.effects.poll()
    return scene.told


@pytest.mark.parametrize(
    ("state", "limit_us"),
    [
        (ProcessState.UNINTERRUPTIBLE, 1 * S),
        (ProcessState.RUNNING, 10 * S),
        (ProcessState.STOPPED, 10 * S),
    ],
)
def test_a_killed_process_is_given_up_after_its_time(scene, state, limit_us):
    scene.state = state
    assert look(scene, limit_us - 1) == []
    assert look(scene, limit_us) == [messages.WorkerUnkillable("w1")]
    ((kind, fields),) = scene.recorded
    assert (kind, fields["body"]["state"], fields["body"]["pid"]) == ("inventory", "unkillable", 77)
    assert look(scene, 60 * S) == [messages.WorkerUnkillable("w1")]  # said once
