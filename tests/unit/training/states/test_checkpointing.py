"""A checkpoint that is due is begun, or it is said why not; the helper of a short interval starts beside the ranks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lastgood.base.errors import EXIT_INTERRUPTED
from lastgood.recovery.policy import LoopPhase
from lastgood.training.states import checkpointing as module
from lastgood.training.states.checkpointing import LATE, Checkpointing

SECOND = 1_000_000


class Keeper:
    """The keeper of checkpoints, with a helper that is ready when the test says so."""

    def __init__(self) -> None:
        self.is_busy, self.ready, self.started = False, False, 0
        self.helper = SimpleNamespace(why_not_ready=lambda: None)

    def start(self) -> None:
        self.started += 1

    def is_ready(self) -> bool:
        return self.ready

    def answers(self) -> list[dict[str, object]]:
        return []

    def verified_up_to(self, _step: int) -> tuple[()]:
        return ()

    def request(self, step: int, **_: object) -> SimpleNamespace:
        self.is_busy = True
        return SimpleNamespace(name=f"step-{step}")


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, every_us: int) -> None:
        self.now_us, self.said = 0, []
        self.step = 1
        candidate = lambda *_, **__: [SimpleNamespace(step=self.step, published_us=0)]
        monkeypatch.setattr(module, "read_headers", lambda *_, **__: ())
        monkeypatch.setattr(module, "slot_candidates", candidate)
        supervisor = SimpleNamespace(
            options=SimpleNamespace(checkpoint_dir=None, checkpoint_every_us=every_us, ranks=2),
            page=SimpleNamespace(assessed_step=1000, pinned_step=0),
            recorder=SimpleNamespace(record=lambda kind, body: self.said.append((kind, body))),
            state=SimpleNamespace(phase=LoopPhase.RUNNING),
            now_us=lambda: self.now_us,
            run_dir=None,
            tolerance=None,
            exit_code=None,
            clock=SimpleNamespace(sleep_us=self.sleep_us),
        )
        self.supervisor = supervisor
        self.checkpointing = Checkpointing(supervisor)  # type: ignore[arg-type]
        self.keeper = self.checkpointing._keeper = Keeper()  # type: ignore[assignment]

    def sleep_us(self, how_long_us: int) -> None:
        self.now_us += how_long_us
        if self.now_us >= SECOND:
            self.keeper.ready = True
        if self.now_us >= 2 * SECOND:
            self.keeper.is_busy = False

    def poll_until(self, until_us: int) -> Scene:
        while self.now_us < until_us:
            self.now_us += SECOND // 4
            self.step += 1
            self.checkpointing.poll()
        return self


def test_a_checkpoint_that_waits_for_its_helper_is_said_once_and_its_delay_with_it(monkeypatch):
    scene = Scene(monkeypatch, 2 * SECOND)
    scene.poll_until(8 * SECOND)
    reason = "the process that writes them is not ready yet"
    assert scene.said == [("annotation", {"text": LATE, "reason": reason, "every_us": 2 * SECOND})]
    scene.keeper.ready = True
    scene.poll_until(9 * SECOND)
    (_, (kind, body)) = scene.said
    assert (kind, body["late_us"]) == ("checkpoint.begin", 6 * SECOND)


def test_one_that_waits_for_the_one_before_is_said_and_one_in_time_is_not(monkeypatch):
    scene = Scene(monkeypatch, 2 * SECOND)
    scene.keeper.ready = True
    scene.poll_until(3 * SECOND)
    assert [(kind, body.get("late_us")) for kind, body in scene.said] == [
        ("checkpoint.begin", None)
    ]
    scene.poll_until(6 * SECOND)
    reasons = [body["reason"] for kind, body in scene.said if kind == "annotation"]
    assert reasons == ["the one before is still being written"]


@pytest.mark.parametrize(("every_us", "started"), [(2 * SECOND, 1), (300 * SECOND, 0)])
def test_the_helper_of_a_short_interval_starts_beside_the_ranks(monkeypatch, every_us, started):
    scene = Scene(monkeypatch, every_us)
    scene.checkpointing.prepare()
    assert scene.keeper.started == started


def test_a_run_that_ends_for_a_refusal_waits_for_a_checkpoint_of_its_newest_state(monkeypatch):
    scene = Scene(monkeypatch, 600 * SECOND)
    scene.checkpointing.keep_newest()
    assert [(kind, body["step"]) for kind, body in scene.said] == [("checkpoint.begin", 1)]
    assert 2 * SECOND <= scene.now_us < 3 * SECOND


def test_a_checkpoint_that_cannot_be_written_does_not_hold_the_end_back(monkeypatch):
    scene = Scene(monkeypatch, 600 * SECOND)
    scene.keeper.ready = True
    failed = {"kind": "failed", "step": 1, "reason": "No space left on device"}
    scene.keeper.answers = lambda: [failed]
    scene.checkpointing.keep_newest()
    assert scene.now_us == 0


def test_one_that_could_not_be_written_long_ago_keeps_no_later_one_from_being_tried(monkeypatch):
    scene = Scene(monkeypatch, 2 * SECOND)
    scene.keeper.ready = True
    scene.poll_until(2 * SECOND + SECOND // 2)
    failed = {"kind": "failed", "step": scene.step, "reason": "No space left on device"}
    scene.keeper.answers, scene.keeper.is_busy = lambda: [failed], False
    scene.poll_until(3 * SECOND)
    scene.keeper.answers, scene.said = list, []
    scene.checkpointing.keep_newest()
    assert [(kind, body["step"]) for kind, body in scene.said] == [("checkpoint.begin", scene.step)]


def test_a_second_ctrl_c_ends_the_wait_for_the_last_checkpoint(monkeypatch):
    scene = Scene(monkeypatch, 600 * SECOND)

    def press(_how_long_us: int) -> None:
        assert scene.supervisor.exit_code is None, "it still waits"
        scene.supervisor.exit_code = EXIT_INTERRUPTED

    scene.supervisor.clock.sleep_us = press
    scene.checkpointing.keep_newest()
    assert scene.said == []


def test_a_helper_that_never_gets_ready_holds_the_end_back_for_a_bounded_time(monkeypatch):
    scene = Scene(monkeypatch, 600 * SECOND)
    monkeypatch.setattr(module, "LAST_CHECKPOINT_US", SECOND // 2)
    scene.checkpointing.keep_newest()
    assert scene.now_us <= SECOND
    assert scene.said == []
