"""The loop as a script sees it, with a made-up supervisor: which batches come, and which results are kept."""

import gc
import random
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lastgood.recovery.messages import VerifyMode
from lastgood.training import control
from lastgood.training.rank import environment, readiness
from lastgood.training.rank.build import Blueprint
from lastgood.training.rank.generation import Generation
from lastgood.training.rank.group import Group
from lastgood.training.rank.injection import StepInjection
from lastgood.training.rank.interrupting import STEP_SIGNAL, Interruption, StepInterrupted
from lastgood.training.rank.link import ReplayVerdict
from lastgood.training.rank.reductions import Reductions
from lastgood.training.rank.replica import Replica
from lastgood.training.rank.run import Run
from lastgood.training.rank.state import Trainable, capture_streams, digest_tensors, restore_streams
from lastgood.training.rundir import RunDir
from lastgood.training.slot import ControlPage, StatusSlot


class Link:
    """A supervisor that agrees to everything at once."""

    has_buckets = True

    def __init__(self, run, worker="w0"):
        self.run, self.worker = run, worker
        self.slot = StatusSlot(run.status(worker), create=True)
        self.page = ControlPage(run.control, create=True)
        self.page.assessed_step = 10_000
        self.group = Group()
        self.interruption = Interruption()
        self.sent = []
        self.channel = SimpleNamespace(send=self.sent.append)
        self.assignments = []
        self.verdicts = []
        self.revoked = 0
        self.stop_after = None
        self.on_script_end = None
        self.has_left_loop = False

    def is_revoked(self, generation):
        return self.revoked >= generation

    def wait_assignment(self):
        return self.assignments.pop(0)

    def wait_proceed(self, generation):
        return True

    wait_finish = wait_proceed

    def wait_verdict(self, generation):
        if self.verdicts and self.verdicts[0] is ReplayVerdict.REVOKED:
            self.revoked = generation
        if self.verdicts:
            return self.verdicts.pop(0)
        # As the supervisor does with a world of one.
        is_right = self.of(control.StepReplayed)[-1].is_by_buckets
        return ReplayVerdict.RESUMED if is_right else ReplayVerdict.AGAIN

    def wait_revoked(self, generation):
        self.revoked = generation

    def of(self, kind):
        return [message for message in self.sent if isinstance(message, kind)]


def four_batches(_rank, _world):
    return [torch.full((1, 2), float(i)) for i in range(4)]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """One rank in a group of its own; `world(plan=...)` starts a worker over the same run folder."""
    monkeypatch.delenv("LASTGOOD_FAULT_TAPE", raising=False)
    monkeypatch.setattr(environment, "release", lambda **_: None)
    monkeypatch.setattr(
        "lastgood.training.rank.group._REVOKED_WITHIN_S", 0
    )  # nobody says it to this group
    folder = RunDir.create(tmp_path / "run", ranks=1)
    count = iter(range(99))

    def start(*, generation=1, plan=None, scaler=None, loader=four_batches):
        torch.manual_seed(1)
        link = Link(folder, f"w{next(count)}")
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        trainable = Trainable(model, optimizer, scaler=scaler)
        injection = StepInjection(folder)
        replica = Replica(
            Blueprint(model, optimizer),
            trainable,
            link.slot,
            ddp={},
            hook=None,
            hook_state=None,
            injection=injection,
            reductions=Reductions(),
        )

        link.assignments.append(
            control.Assignment(generation=generation, rank=0, world=1, plan=plan)
        )
        run = Run(link, Generation(link, trainable, replica, loader, injection))
        run._generation.enter_next()
        return SimpleNamespace(run=run, link=link, model=model, optimizer=optimizer, seen=[])

    yield start
    gc.unfreeze()
    Group().leave()  # the process may hold one group at a time, and other tests want theirs


def train(worker, **limits):
    for batch in worker.run.batches(**limits):
        with worker.run.step() as step:
            worker.seen.append((step.number, float(batch[0, 0]), step.is_replay))
            worker.optimizer.zero_grad()
            step.loss = worker.run.model(batch).square().mean()
            step.loss.backward()
            worker.optimizer.step()
    return digest_tensors(dict(worker.model.named_parameters()))


def plan(worker, step, *, mode):
    from lastgood.training.states.catalogue import read_snapshot_header

    header = read_snapshot_header(worker.link.run.snapshot(0, step))
    before = step - 1 if mode is VerifyMode.PREDECESSOR else step
    return control.Plan(
        tier="slot", mode=mode.value, restore_step=before, target_step=step, digest=header["digest"]
    )


def test_every_step_is_kept_once_and_the_second_is_run_twice_to_see_whether_steps_repeat(world):
    worker = world()
    train(worker, steps=3)
    # A throw-away pass through a fresh wrapper, then the one that is compared.
    again = [(2, 1.0, True)] * 2
    assert worker.seen == [(1, 0.0, False), (2, 1.0, False), *again, (3, 2.0, False)]
    (noise,) = worker.link.of(control.NoiseMeasured)
    assert noise.is_bitwise
    assert [m.step for m in worker.link.of(control.Finished)] == [3]


def test_the_noise_of_a_step_that_does_not_repeat_is_measured_eight_times(world):
    """One measurement may come out close by chance: see `watching/noise.py`."""
    worker = world()
    numbers = iter(range(99))
    for batch in worker.run.batches(steps=3):
        with worker.run.step() as step:
            worker.seen.append((step.number, step.is_replay))
            worker.optimizer.zero_grad()
            # Each run of the step lies further from the published one than the run before.
            (worker.run.model(batch).square().mean() * (1 + next(numbers))).backward()
            worker.optimizer.step()
    assert worker.seen == [(1, False), (2, False), *[(2, True)] * 9, (3, False)]
    noise = worker.link.of(control.NoiseMeasured)
    assert [n.probe for n in noise] == list(range(1, 9))
    assert not any(n.is_bitwise for n in noise)
    sizes = [float.fromhex(n.noise) for n in noise]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1.5 * sizes[0]
    assert worker.run.steps_done == 3


def test_what_a_script_opened_by_the_end_of_its_first_step_is_noted(world, monkeypatch):
    opened = []
    monkeypatch.setattr(readiness, "holds_exclusive", lambda **_: bool(opened))
    worker, noted = world(), []
    for batch in worker.run.batches(steps=2):
        noted.append(worker.link.slot.holds_exclusive)
        with worker.run.step() as step:
            opened.append("a port")
            worker.optimizer.zero_grad()
            step.loss = worker.run.model(batch).square().mean()
            step.loss.backward()
            worker.optimizer.step()
    assert noted[:2] == [False, True]


def test_steps_go_on_over_as_many_epochs_as_they_need(world):
    worker = world()
    train(worker, steps=6)
    assert [x for _, x, replay in worker.seen if not replay] == [0.0, 1.0, 2.0, 3.0, 0.0, 1.0]


@pytest.mark.parametrize("mode", list(VerifyMode))
@pytest.mark.parametrize("lost_after", [3, 4, 5])
def test_a_spare_goes_on_bit_for_bit_also_where_an_epoch_ends(world, lost_after, mode):
    """Four batches an epoch: the state after step 4 is the last of its epoch."""
    expected = train(world(), steps=7)
    lost = world()
    train(lost, steps=lost_after)
    spare = world(generation=2, plan=plan(lost, lost_after, mode=mode))
    assert expected == train(spare, steps=7)
    assert [m.step for m in spare.link.of(control.Finished)] == [7]
    assert {"equal"} == {m.outcome for m in spare.link.of(control.StepReplayed)}


def replays(worker):
    return [number for number, _, is_replay in worker.seen if is_replay]


def test_a_step_whose_buckets_are_known_is_replayed_at_once(world):
    lost = world()
    train(lost, steps=5)
    spare = world(generation=2, plan=plan(lost, 5, mode=VerifyMode.PREDECESSOR))
    train(spare, steps=7)
    assert replays(spare) == [5]


def test_a_pass_is_thrown_away_where_a_rank_does_not_know_the_buckets(world, monkeypatch):
    lost = world()
    train(lost, steps=5)
    monkeypatch.setattr(Link, "has_buckets", False)
    spare = world(generation=2, plan=plan(lost, 5, mode=VerifyMode.PREDECESSOR))
    train(spare, steps=7)
    assert replays(spare) == [5, 5]
    (restored,) = spare.link.of(control.StateRestored)
    assert restored.buckets, "this rank did know them"


def test_a_replay_through_buckets_that_do_not_come_out_so_is_made_again_the_long_way(
    world, monkeypatch
):
    """The model has one bucket: it cannot be told to have two."""
    expected = train(world(), steps=7)
    lost = world()
    train(lost, steps=5)
    monkeypatch.setattr(Generation, "_known_layout", lambda _: ((1,), (0,)))
    spare = world(generation=2, plan=plan(lost, 5, mode=VerifyMode.PREDECESSOR))
    assert expected == train(spare, steps=7)
    assert replays(spare) == [5, 5, 5]  # as recorded, thrown away, replayed
    wrong, right = spare.link.of(control.StepReplayed)
    assert (wrong.is_by_buckets, right.is_by_buckets) == (False, True)
    assert right.outcome == "equal"


def test_a_peer_that_dies_while_the_ranks_compare_their_replays_ends_the_attempt(world):
    lost = world()
    train(lost, steps=5)
    again = plan(lost, 5, mode=VerifyMode.PREDECESSOR)
    spare = world(generation=2, plan=again)
    spare.link.verdicts.append(ReplayVerdict.REVOKED)
    spare.link.assignments.append(control.Assignment(generation=3, rank=0, world=1, plan=again))
    train(spare, steps=7)
    assert [m.generation for m in spare.link.of(control.StepReplayed)] == [2, 3]
    assert replays(spare) == [5, 5]


@pytest.mark.parametrize("limits", [{"steps": 4}, {"epochs": 1}, {}])
def test_a_run_that_had_ended_does_not_take_one_step_more(world, limits):
    """A last state without a predecessor is verified by a step that nobody asked for: it must not be kept."""
    lost = world()
    expected = train(lost, **limits)
    spare = world(generation=2, plan=plan(lost, 4, mode=VerifyMode.REPEAT))
    assert expected == train(spare, **limits)
    assert spare.seen == [(5, 0.0, True)] * 3  # thrown away, tried, replayed
    assert spare.run.steps_done == 4
    assert spare.link.slot.view().published_step == 4


def test_a_section_leaves_the_random_streams_as_it_found_them(world):
    """A spare that replays the next step never ran it: what it drew would be missing there."""
    worker = world()
    draws = lambda: (torch.rand(1).item(), np.random.rand(), random.random())  # noqa: NPY002
    before = capture_streams()
    with worker.run.section("eval"):
        inside = draws()
    assert draws() == inside
    restore_streams(before)


def test_a_stop_request_holds_behind_its_step(world):
    worker = world()
    worker.link.stop_after = 2
    train(worker, steps=9)
    assert [m.step for m in worker.link.of(control.Finished)] == [2]


def test_an_exception_of_the_users_code_is_reported_and_the_loop_waits(world):
    worker = world()
    batches = worker.run.batches(steps=3)
    next(batches)
    with worker.run.step():
        raise KeyError("lost")
    (raised,) = worker.link.of(control.StepRaised)
    assert (raised.type_name, raised.step, raised.is_group_error) == ("KeyError", 1, False)
    assert "test_run.py" in raised.trace
    assert raised.loader == ""
    assert worker.link.revoked == 1


def broken_at(count, error):
    """A loader that raises behind so many batches of each epoch."""

    class Broken:
        def __iter__(self):
            yield from four_batches(0, 1)[:count]
            raise error

    return lambda _rank, _world: Broken()


def test_an_exception_of_the_loader_is_told_as_such_with_the_step_and_the_batch(world):
    worker = world(loader=broken_at(1, ValueError("a bad record")))
    with pytest.raises(IndexError):  # the made-up supervisor has no second assignment
        train(worker, steps=3)
    (raised,) = worker.link.of(control.StepRaised)
    assert (raised.type_name, raised.step) == ("ValueError", 2)
    assert raised.loader == "in its loader, for step 2 (batches of epoch 0 before it: 1)"


def test_the_end_of_the_process_is_not_swallowed(world):
    worker = world()
    next(worker.run.batches(steps=3))
    with pytest.raises(SystemExit), worker.run.step():
        raise SystemExit(3)
    assert worker.link.of(control.StepRaised) == []


def test_an_interrupted_step_is_nobodys_fault_and_leads_to_the_next_generation(world):
    worker = world()
    batches = worker.run.batches(steps=3)
    next(batches)
    with worker.run.step() as step:
        worker.link.revoked = 1
        raise StepInterrupted
    assert not step.is_accepted
    assert worker.link.of(control.StepRaised) == []
    gc.unfreeze()
    with pytest.raises(IndexError):  # the made-up supervisor has no second assignment
        next(batches)
    assert [m.generation for m in worker.link.of(control.Parked)] == [1]
    assert gc.get_freeze_count() > 0, "no collection goes through a model that everybody waits for"


def test_a_step_that_began_after_its_generation_was_over_is_ended_too(world):
    worker = world()
    before = signal.getsignal(STEP_SIGNAL)
    signal.signal(STEP_SIGNAL, signal.SIG_DFL)
    worker.link.interruption.set_up()
    try:
        next(worker.run.batches(steps=3))
        worker.link.revoked = 1
        with worker.run.step() as step:
            time.sleep(600)
    finally:
        signal.signal(STEP_SIGNAL, before)
    assert not step.is_accepted


def test_an_interrupted_step_leaves_gradients_switched_on(world):
    worker = world()
    next(worker.run.batches(steps=3))
    with worker.run.step():
        worker.link.revoked = 1
        torch.set_grad_enabled(False)
        raise StepInterrupted
    is_enabled = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert is_enabled


def test_a_block_without_a_batch_is_refused(world):
    from lastgood.base.errors import Refused

    with pytest.raises(Refused, match=r"for batch in run\.batches"):
        world().run.step()


@pytest.mark.parametrize("has_scaler", [False, True])
def test_an_overflow_is_a_fault_only_where_no_scaler_looks_for_it(world, has_scaler):
    """A scaler begins far too high on purpose, sees infinity, and skips the step on every rank."""
    worker = world(scaler=torch.amp.GradScaler("cpu") if has_scaler else None)
    hook = SimpleNamespace(
        is_local_nonfinite=True,
        waited_us=0,
        grad_norm=lambda: float("inf"),
        begin_step=lambda: None,
    )
    worker.run.model.hook = hook
    next(worker.run.batches(steps=1))
    with worker.run.step() as step:
        step.loss = torch.tensor(float("nan"))
    report = worker.link.slot.report_of(1).report
    assert report.local_nonfinite is (not has_scaler)
    assert report.grad_norm == (None if has_scaler else float("inf"))
    assert report.loss != report.loss  # a loss that is not a number stays one


def test_sections_are_told_and_closed_even_by_an_exception(world):
    worker = world()

    def evaluate():
        with worker.run.section("eval", limit="10min"):
            assert worker.link.slot.view().section == "eval"
            assert worker.link.slot.view().section_limit_us == 600_000_000
            raise ValueError("eval")

    with pytest.raises(ValueError, match="eval"):
        evaluate()
    assert worker.link.slot.view().section is None
    assert [m.is_open for m in worker.link.of(control.SectionChanged)] == [True, False]


# --- what a step says about its pace --------------------------------------------------------------


def reports_of(worker, steps):
    return [worker.link.slot.report_of(step).report for step in steps]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(512, 512.0), (torch.tensor(7), 7.0), (None, None), (0, None), (float("nan"), None)],
)
def test_the_work_of_a_step_is_published_when_it_is_usable(world, given, kept):
    worker = world()
    for _ in worker.run.batches(steps=1):
        with worker.run.step() as step:
            step.work = given
    assert reports_of(worker, [1])[0].work == kept


def test_the_time_between_two_steps_is_the_ranks_own_without_its_sections(world, monkeypatch):
    worker = world()
    now_us = [0]
    clock = SimpleNamespace(
        monotonic_us=lambda: now_us[0], wall_us=lambda: now_us[0], sleep_us=lambda us: None
    )
    monkeypatch.setattr(worker.run, "_clock", clock)
    for _ in worker.run.batches(steps=6):
        with worker.run.step() as step:
            now_us[0] += 100
        if not step.is_replay:
            now_us[0] += 30
            with worker.run.section("eval"):
                now_us[0] += 5_000
    found = reports_of(worker, range(1, 7))
    # Behind step 2 it is run again, so nothing leads straight from it to step 3.
    assert [report.between_us for report in found] == [0, 30, 0, 30, 30, 30]
    assert {report.self_us for report in found} == {100}
