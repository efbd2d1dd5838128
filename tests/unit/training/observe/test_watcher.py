"""The look at ranks that are not there: slots are written by the test, and what is recorded is read back."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.ledger.event import Event
from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase, ProcessState, Raised, StepReport
from lastgood.training import slot as slot_module
from lastgood.training.observe import watcher as module
from lastgood.training.observe.ending import EndingNote
from lastgood.training.observe.first_note import FirstNote
from lastgood.training.observe.watcher import ENDED_OF_HOST, WAITS_FOR_HOST, Watcher
from lastgood.training.observe.words import UNDECLARED
from lastgood.training.recorder import Recorder
from lastgood.training.slot import StatusSlot
from lastgood.training.watching.stack_groups import THROUGH, ProcessStack

LATER_US = 3_000_000
"""More than the limit of a second."""
TURN_US = 500_000


class Kept:
    """Stands for the ledger's writer."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def submit(self, event: Event) -> None:
        self.events.append(event)


class Rank:
    """A rank of which everything is said by the test; its process is the test's own."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank, self.name, self.pid = rank, f"r{rank}", os.getpid()
        self.slot = StatusSlot(folder / self.name, create=True)
        self.slot.begin_generation(1, rank)
        self.exit_code: int | None = None
        self.ending: EndingNote | None = None
        self.first_step: FirstNote | None = None

    def step(self, number: int) -> None:
        clock = SystemClock()
        self.first_step = self.first_step or FirstNote(number, "optimizer", clock.monotonic_us())
        self.slot.count_completion()
        report = StepReport(rank=self.rank, step=number, digest="0", loss=None, grad_norm=None, local_nonfinite=False, self_us=10, step_us=20)  # fmt: skip
        self.slot.publish(report, done_wall_us=clock.monotonic_us())
        self.slot.set_published(number)
        self.slot.enter(Phase.BETWEEN, step=number)

    def wait_in_collective(self) -> None:
        self.slot.count_launch(is_last=True)

    def leave(self) -> None:
        """Come to the end of its script with code 0; the process is still there."""
        self.ending = EndingNote(0, None, "")
        self.slot.enter(Phase.FINISHED)

    def end_of_a_peer(self, peers_alive: tuple[int, ...] = (), t_us: int = 1) -> None:
        raised = Raised(
            type_name="RuntimeError", message="gloo", is_group_error=True, step=1, t_us=t_us
        )
        self.exit_code, self.ending = 1, EndingNote(1, raised, "trace", peers_alive)


@pytest.fixture(autouse=True)
def _no_dumps(monkeypatch):
    """Nobody is dumped here: the dump is over at once and empty."""
    monkeypatch.setattr(module.JobDump, "__init__", lambda self, *_a, **_k: setattr(self, "_targets", []))  # fmt: skip
    monkeypatch.setattr(module.JobDump, "advance", lambda _self, _now: True)
    monkeypatch.setattr(module.JobDump, "close", lambda _self: None)


class Scene:
    def __init__(
        self,
        folder: Path,
        *,
        ranks: int = 3,
        is_all: bool = True,
        group_advice: tuple[str, ...] = (),
        host: str | None = None,
    ) -> None:
        self.kept = Kept()
        recorder = Recorder(self.kept, clock=SystemClock(), run_id="r", versions={}, topology="t")  # type: ignore[arg-type]
        limits = Limits(step_floor_us=1_000_000, warmup_floor_us=60_000_000)
        self.watcher = Watcher(
            recorder,
            run="r",
            limits=limits,
            stacks=folder,
            world=ranks,
            is_all=is_all,
            group_advice=group_advice,
            host=host,
        )
        self.ranks = [Rank(folder, rank) for rank in range(ranks)]
        self.watcher.begin_attempt(self.ranks, 1)
        self.recorder = recorder

    def look(self, later_us: int = 0) -> None:
        self.look_at(SystemClock().monotonic_us() + later_us)

    def look_at(self, now_us: int) -> None:
        """Look twice a second until then: what lies between two looks is held against nobody."""
        before_us = self.watcher._looked_us or now_us
        for at_us in (*range(before_us + TURN_US, now_us, TURN_US), now_us):
            self.look_once(at_us)
        self.recorder.close_chunk()

    def look_once(self, now_us: int) -> None:
        self.watcher._next_liveness_us = 0
        self.watcher.look(now_us)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.kept.events if event.kind == kind]


def test_the_rank_that_did_not_come_is_named_and_the_incident_closes_when_it_does(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    scene.look()
    assert scene.of("incident.open") == []
    scene.look(LATER_US)
    assert [e.ranks for e in scene.of("incident.open")] == [(1,)]
    for rank in scene.ranks:
        rank.step(2)
    scene.look()
    assert [e.body["outcome"] for e in scene.of("incident.close")] == ["resolved"]


@pytest.mark.parametrize(("host", "who"), [(None, "the supervisor"), ("h1", "the watcher of h1")])
def test_a_pause_is_said_of_the_process_that_looks_after_the_ranks(tmp_path, host, who):
    scene = Scene(tmp_path, host=host)
    now_us = SystemClock().monotonic_us()
    scene.look_once(now_us)
    scene.look_once(now_us + LATER_US)
    (told,) = scene.of("annotation")
    assert str(told.body["text"]).startswith(f"{who} did not turn for ")


def test_time_in_which_nobody_looked_is_held_against_nobody(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    now_us = SystemClock().monotonic_us()
    scene.look_once(now_us)
    scene.look_once(now_us + LATER_US)
    assert scene.of("incident.open") == []
    (told,) = scene.of("annotation")
    assert told.body["pause_us"] == LATER_US
    scene.look_at(now_us + LATER_US + 500_000)
    assert scene.of("incident.open") == [], "half a second of silence is not a second"
    scene.look_at(now_us + 2 * LATER_US)
    assert [e.ranks for e in scene.of("incident.open")] == [(1,)]


def test_a_hang_that_has_passed_waits_for_a_step_and_is_acted_upon_no_more(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    scene.look(LATER_US)
    assert scene.watcher.is_diagnosed
    assert not scene.watcher.has_passed
    scene.ranks[1].wait_in_collective()
    scene.look()
    assert scene.watcher.open_case is not None
    assert scene.watcher.has_passed


def test_ranks_that_are_all_in_their_own_code_are_left_alone_for_long(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.look(LATER_US)
    assert scene.of("incident.open") == []
    scene.look(30 * 1_000_000)
    assert [e.ranks for e in scene.of("incident.open")] == [()]


def test_the_first_rank_back_from_a_long_evaluation_of_all_accuses_nobody(tmp_path, monkeypatch):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    began_us = SystemClock().monotonic_us()
    later = lambda: (began_us + 12_000_000) * 1000
    monkeypatch.setattr(slot_module, "monotonic_ns", later)
    scene.ranks[0].wait_in_collective()
    scene.look_at(began_us + 12_040_000)
    assert scene.of("incident.open") == [], "it has waited for 40 ms"
    scene.look_at(began_us + 13_040_000)
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("hang", (1, 2))


@pytest.mark.parametrize("is_all", [True, False])
def test_the_only_rank_in_sight_may_evaluate_for_long_too(tmp_path, is_all):
    scene = Scene(tmp_path, ranks=1, is_all=is_all)
    scene.ranks[0].step(1)
    scene.look(LATER_US)
    assert scene.of("incident.open") == []
    scene.look(30 * 1_000_000)
    assert [e.ranks for e in scene.of("incident.open")] == [(0,)]


def test_the_last_rank_may_save_for_long_when_the_others_have_left(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in scene.ranks[1:]:
        rank.exit_code = 0
    scene.look(LATER_US)
    assert scene.of("incident.open") == []


def test_one_host_of_several_whose_ranks_are_all_in_their_own_code_does_not_say_that_they_wait(
    tmp_path,
):
    scene = Scene(tmp_path, is_all=False)
    for rank in scene.ranks:
        rank.step(1)
    scene.look(30 * 1_000_000)
    assert scene.of("observation") == []
    assert [e.ranks for e in scene.of("incident.open")] == [()]


def test_a_rank_that_left_with_code_0_while_others_wait_is_named(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[1].exit_code = 0
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    scene.look(LATER_US)
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (1,))


def test_a_rank_that_left_with_code_0_is_named_and_not_its_victims(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[1].exit_code = 0
    scene.ranks[0].end_of_a_peer()
    scene.ranks[2].end_of_a_peer()
    scene.look()
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (1,))


def test_a_rank_that_left_is_named_while_python_still_takes_it_apart(tmp_path):
    """Its sockets close before its process is gone, so its peers end first."""
    scene = Scene(tmp_path, ranks=2)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[1].leave()
    scene.ranks[0].end_of_a_peer(t_us=SystemClock().monotonic_us())
    scene.look()
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (1,))
    assert opened.body["evidence"][0].startswith("rank 1 (r1) ended with exit code 0, after step 1")


def test_a_rank_that_does_not_end_behind_its_script_is_named_by_those_that_wait_for_it(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[1].leave()
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    scene.look(LATER_US)
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (1,))


def test_what_broke_a_group_may_show_a_moment_later(tmp_path):
    scene = Scene(tmp_path, ranks=2)
    for rank in scene.ranks:
        rank.step(1)
    now_us = SystemClock().monotonic_us()
    scene.ranks[0].end_of_a_peer(t_us=now_us)
    scene.look_at(now_us + LATER_US)
    assert scene.of("incident.open") == []
    scene.ranks[1].exit_code = -9
    scene.look_at(now_us + LATER_US + TURN_US)
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (1,))


def test_what_broke_a_group_is_not_waited_for_without_end(tmp_path):
    scene = Scene(tmp_path, ranks=2)
    for rank in scene.ranks:
        rank.step(1)
    now_us = SystemClock().monotonic_us()
    scene.ranks[0].end_of_a_peer(t_us=now_us)
    scene.look_at(now_us + 2 * LATER_US)
    assert [(e.symptom, e.ranks) for e in scene.of("incident.open")] == [("group_error", ())]


def test_a_rank_behind_its_script_stands_at_no_place_of_lastgoods(tmp_path, monkeypatch):
    scene = Scene(tmp_path, ranks=2)
    dump = 'Thread 1 (active): "MainThread"\n    flush_files (lastgood/training/teardown.py:82)\n'
    found = [ProcessStack(rank, 100 + rank, is_child=False, text=dump) for rank in (0, 1)]
    monkeypatch.setattr(module.JobDump, "stacks", lambda _self: found)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[1].leave()
    scene.ranks[0].wait_in_collective()
    scene.look(LATER_US)
    (diagnosed,) = scene.of("diagnose")
    told = {tuple(g["ranks"]): g["stack"] for g in diagnosed.body["stack_groups"]}
    assert told == {(1,): [THROUGH], (0,): ["flush_files (lastgood/training/teardown.py:82)"]}


def test_a_rank_that_asked_to_be_requeued_is_no_failure(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
        rank.exit_code, rank.ending = 75, EndingNote(75, None, "")
    scene.look(LATER_US)
    assert scene.of("incident.open") == []


def test_one_host_of_several_says_that_it_waits_and_names_nobody(tmp_path):
    scene = Scene(tmp_path, is_all=False)
    for rank in scene.ranks:
        rank.step(1)
        rank.wait_in_collective()
    scene.look(LATER_US)
    scene.look(LATER_US)
    assert scene.of("incident.open") == []
    (said,) = scene.of("observation")
    assert said.body["text"] == WAITS_FOR_HOST
    assert said.body["launches"] == {"0": 1, "1": 1, "2": 1}


def test_every_silence_of_an_attempt_is_said(tmp_path):
    scene = Scene(tmp_path, is_all=False)
    for number in (1, 2):
        for rank in scene.ranks:
            rank.step(number)
            rank.wait_in_collective()
        scene.look()
        scene.look(LATER_US)
        scene.look(LATER_US)
    counts = [e.body["launches"]["0"] for e in scene.of("observation")]
    assert counts == [1, 2]


def test_every_hang_of_an_attempt_is_an_incident(tmp_path):
    scene = Scene(tmp_path)
    for number in (1, 2):
        for rank in scene.ranks:
            rank.step(number)
        scene.look()
        for rank in (scene.ranks[0], scene.ranks[2]):
            rank.wait_in_collective()
        scene.look(LATER_US)
        scene.ranks[1].wait_in_collective()
    assert [(e.incident, e.ranks) for e in scene.of("incident.open")] == [("r/1.1", (1,)), ("r/1.2", (1,))]  # fmt: skip


@pytest.mark.parametrize("phase", [Phase.BETWEEN, Phase.COMPUTE])
def test_a_rank_that_is_called_hung_at_its_own_work_is_told_how_to_declare_it(tmp_path, phase):
    """An evaluation through the wrapper looks like the forward pass of the next step."""
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[0].slot.enter(phase)
    for rank in scene.ranks[1:]:
        rank.wait_in_collective()
    scene.look(LATER_US)
    (opened,) = scene.of("incident.open")
    assert opened.ranks == (0,)
    assert opened.body["evidence"][-1] == UNDECLARED
    assert all(call in UNDECLARED for call in ("run.section(", "lastgood.attach().section("))


def test_a_rank_that_the_kernel_stopped_was_at_no_work(tmp_path, monkeypatch):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in scene.ranks[1:]:
        rank.wait_in_collective()
    read = module.read_rank
    monkeypatch.setattr(module, "read_rank", lambda *a, **k: replace(read(*a, **k), process=ProcessState.STOPPED))  # fmt: skip
    scene.look(LATER_US)
    (opened,) = scene.of("incident.open")
    assert UNDECLARED not in opened.body["evidence"]


def test_a_rank_that_leaves_in_the_middle_of_a_step_is_not_said_to_have_done_it(tmp_path):
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(6)
        rank.slot.enter(Phase.COMPUTE, step=7)
    for rank in scene.ranks[1:]:
        rank.wait_in_collective()
    scene.ranks[0].exit_code = 0
    scene.look(LATER_US)
    (opened,) = scene.of("incident.open")
    (evidence,) = opened.body["evidence"]
    assert "ended with exit code 0, in step 7" in evidence
    scene.watcher.close_case(SystemClock().monotonic_us(), "ended")
    assert scene.of("incident.close")[0].body["blast_radius"] == 3


def test_a_groups_time_that_is_up_ends_no_hang(tmp_path):
    """The job's own limit: the peers raise and end, the rank that hung moves at last, and no step was done."""
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.wait_in_collective()
    scene.look(LATER_US)
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.slot.enter(Phase.BETWEEN)  # the collective raised; the exception is on its way out
    scene.look()
    for rank in (scene.ranks[0], scene.ranks[2]):
        rank.end_of_a_peer()
        scene.look()
    scene.ranks[1].wait_in_collective()
    scene.look()
    scene.ranks[1].end_of_a_peer()
    scene.watcher.finish(SystemClock().monotonic_us())
    scene.watcher.close_case(SystemClock().monotonic_us(), "ended")
    assert [e.ranks for e in scene.of("incident.open")] == [(1,)]
    assert [e.body["outcome"] for e in scene.of("incident.close")] == ["ended"]


def test_a_rank_that_ended_of_its_group_is_a_messenger_and_not_the_culprit(tmp_path):
    """A restarted rank met the address of a dead one while its peer still waits; then the launcher kills the peer."""
    scene = Scene(tmp_path, ranks=2, group_advice=("torchrun keeps one store",))
    scene.ranks[0].end_of_a_peer()
    scene.look()
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks, opened.domain) == ("group_error", (), ())
    assert opened.body["evidence"] == [
        "the process group could not be formed; which rank was the cause is not known",
        "rank 0 ended of its group: RuntimeError: gloo",
        "torchrun keeps one store",
    ]
    assert opened.t_occurred_us == scene.recorder.wall_us(1)
    scene.ranks[1].exit_code = -9
    scene.look()
    scene.watcher.close_case(SystemClock().monotonic_us(), "ended")
    assert {e.ranks for e in scene.of("diagnose") + scene.of("incident.close")} == {()}


def test_a_peer_that_was_alive_when_the_group_broke_is_not_the_cause_of_it(tmp_path):
    """The launcher ends it before the next look: both ends are seen at once."""
    scene = Scene(tmp_path, ranks=2)
    scene.ranks[0].end_of_a_peer(peers_alive=(1,))
    scene.ranks[1].exit_code = -15
    scene.look()
    assert [(e.symptom, e.ranks) for e in scene.of("incident.open")] == [("group_error", ())]


def test_of_two_ranks_that_left_no_word_the_one_that_was_gone_when_the_group_broke_is_named(tmp_path):  # fmt: skip
    scene = Scene(tmp_path)
    for rank in scene.ranks:
        rank.step(1)
    scene.ranks[0].end_of_a_peer(peers_alive=(1,))
    for rank in scene.ranks[1:]:
        rank.exit_code = -9
    scene.look()
    (opened,) = scene.of("incident.open")
    assert (opened.symptom, opened.ranks) == ("process_exit", (2,))
    assert [words.partition(" (")[0] for words in opened.body["evidence"]] == ["rank 2"]


def test_victims_of_another_host_are_not_named_by_their_own(tmp_path):
    scene = Scene(tmp_path, is_all=False)
    for rank in scene.ranks:
        rank.step(1)
        rank.end_of_a_peer()
    scene.look()
    assert scene.of("incident.open") == []
    assert [e.body["text"] for e in scene.of("observation") if "text" in e.body] == [ENDED_OF_HOST]


def test_steps_that_were_faster_than_the_look_are_counted_with_their_times_spread(tmp_path):
    scene = Scene(tmp_path)
    for number in range(1, 101):
        for rank in scene.ranks:
            rank.step(number)
    scene.look()
    steps = [e.body for e in scene.of("step")]
    numbers = [n for body in steps for n in range(body["first"], body["last"] + 1)]
    assert numbers == list(range(1, 101))
    assert [body.get("spread", False) for body in steps] == [True, True, False]
    assert all(len(body["ended_us"]) == body["last"] - body["first"] + 1 for body in steps)
    times = [t for body in steps for t in body["ended_us"]]
    assert times == sorted(times)


def test_a_script_without_a_count_is_counted_on_after_a_restart(tmp_path):
    scene = Scene(tmp_path, ranks=1)
    scene.ranks[0].step(1)
    scene.look()
    again = [Rank(tmp_path, 5)]
    again[0].slot.begin_generation(2, 0)
    scene.watcher.begin_attempt(again, 2)
    again[0].first_step = FirstNote(1, "count", SystemClock().monotonic_us())
    again[0].step(1)
    scene.look()
    assert [e.body["first"] for e in scene.of("step")] == [1, 2]
