"""The hook sees everything and changes nothing: same bits as DDP without a hook, in groups of one and of two threads."""

import math
import threading
from unittest.mock import MagicMock

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from lastgood.signals.reading import Phase
from lastgood.training.rank.hook import CountingHook
from lastgood.training.rank.reductions import Reductions
from lastgood.training.rank.state import digest_tensors
from lastgood.training.slot import StatusSlot


class NoInjection:
    def spoil_if_due(self, gradient):
        pass


class Spoil:
    def spoil_if_due(self, gradient):
        gradient[:1] = float("nan")


@pytest.fixture
def slot(tmp_path):
    made = StatusSlot(tmp_path / "w0", create=True)
    made.begin_generation(1, 0)
    yield made
    made.close()


class Model(torch.nn.Module):
    """Several buckets, one of them (of another type) with nothing in it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
        self.empty = torch.nn.Parameter(torch.zeros(0, dtype=torch.bfloat16))

    def forward(self, x):
        return self.layers(x).sum() + self.empty.float().sum()


def train(hook=None, steps=3):
    model = Model()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)
    if hook is not None:
        hook.attach(ddp)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(5)
    for _ in range(steps):
        if hook is not None:
            hook.begin_step()
        optimizer.zero_grad()
        ddp(torch.randn(8, 64)).backward()
        optimizer.step()
    return model


def test_the_bits_are_those_of_ddp_without_a_hook(group, slot):
    expected = digest_tensors(dict(train().named_parameters()))
    assert expected == digest_tensors(
        dict(train(CountingHook(slot, NoInjection(), Reductions())).named_parameters())
    )


def test_each_bucket_is_counted_in_and_out_and_the_last_one_says_that_the_rank_waits(group, slot):
    hook = CountingHook(slot, NoInjection(), Reductions())
    train(hook, steps=1)
    first = slot.view()
    assert first.launches == first.completions >= 2
    assert first.phase is Phase.COLLECTIVE


def test_the_norm_is_that_of_the_whole_reduced_gradient(group, slot):
    hook = CountingHook(slot, NoInjection(), Reductions())
    model = train(hook)
    squares = sum(float(p.grad.double().square().sum()) for p in model.parameters())
    assert squares**0.5 == pytest.approx(hook.grad_norm(), rel=1e-6)
    assert not hook.is_local_nonfinite


@pytest.mark.parametrize("others", [(), (1e-30,), (0.0, 1e30)])
def test_buckets_of_any_size_add_up_to_one_norm(slot, others):
    """The sum of a bucket is a number or a tensor, whichever costs less."""
    hook = CountingHook(slot, NoInjection(), Reductions())
    buckets = [torch.full((7,), scale) for scale in (3.0, 4.0, *others)]
    for place, bucket in enumerate(buckets):
        done = torch.futures.Future()
        done.set_result([bucket])
        hook._completed(done, (0, place))
    exact = float(torch.cat(buckets).double().norm())
    assert hook.grad_norm() == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_element_makes_a_norm_that_is_not_finite(slot, bad):
    hook = CountingHook(slot, NoInjection(), Reductions())
    for place, value in enumerate((1.0, bad)):
        done = torch.futures.Future()
        done.set_result(torch.tensor([value]))
        hook._completed(done, (0, place))
    assert not math.isfinite(hook.grad_norm())


def test_a_second_backward_pass_of_the_same_step_is_not_counted_on_top(group, slot):
    hook = CountingHook(slot, NoInjection(), Reductions())
    model = Model()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)
    hook.attach(ddp)
    hook.begin_step()
    for _ in range(2):
        ddp(torch.ones(2, 64)).backward()
    squares = sum(float(p.grad.double().square().sum()) for p in model.parameters())
    assert squares**0.5 == pytest.approx(hook.grad_norm(), rel=1e-6)


def test_without_a_backward_pass_there_is_no_norm(slot):
    hook = CountingHook(slot, NoInjection(), Reductions())
    hook.begin_step()
    assert hook.grad_norm() is None


def test_a_nan_of_this_ranks_own_gradient_is_named_and_forgotten_in_the_next_step(group, slot):
    hook = CountingHook(slot, Spoil(), Reductions())
    train(hook, steps=1)
    assert hook.is_local_nonfinite
    hook.begin_step()
    assert not hook.is_local_nonfinite


def test_the_users_own_hook_decides_and_is_counted(group, slot):
    seen = []

    def halving(state, bucket):
        seen.append(state)
        future = torch.futures.Future()
        future.set_result(bucket.buffer().mul_(0.5))
        return future

    hook = CountingHook(slot, NoInjection(), Reductions(), halving, "mine")
    model = train(hook, steps=1)
    plain = train(steps=1)
    assert set(seen) == {"mine"}
    assert slot.view().completions == slot.view().launches == len(seen)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad * 0.5)


def test_completions_from_many_threads_are_all_counted(slot):
    hook = CountingHook(slot, NoInjection(), Reductions())
    done = torch.futures.Future()
    done.set_result(torch.ones(2))
    threads = [
        threading.Thread(target=lambda: [hook._completed(done, i) for i in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slot.view().completions == 800


class OnDevice(torch.Tensor):
    is_cpu = False


def test_the_future_of_a_users_hook_on_a_device_is_not_replaced(slot):
    """It says behind which work of the device the gradient is; a future of our own would be done before that."""
    reductions, reduced = Reductions(), torch.futures.Future()
    bucket = MagicMock()
    bucket.buffer.return_value = torch.ones(3).as_subclass(OnDevice)
    hook = CountingHook(slot, NoInjection(), reductions, lambda _state, _bucket: reduced)
    given = hook._reduce(bucket, 1, hook._inner, None)
    reductions.revoke()
    assert not given.done()
    reduced.set_result(torch.ones(3))
    assert torch.equal(given.wait(), torch.ones(3))
