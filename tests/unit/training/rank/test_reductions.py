"""A revocation ends the wait for a gradient, also where the reduction itself never ends; nothing else changes."""

import threading
from unittest.mock import MagicMock

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from lastgood.training.rank.group import is_group_error
from lastgood.training.rank.hook import CountingHook
from lastgood.training.rank.reductions import Reductions

LIMIT_S = 30


def of_done(done):
    return done.value()[0]


def started():
    return torch.futures.Future()


def test_a_reduction_that_ends_gives_what_is_made_of_it():
    reduced = started()
    followed = Reductions().follow(reduced, of_done)
    assert not followed.done()
    reduced.set_result([torch.ones(3)])
    assert torch.equal(followed.wait(), torch.ones(3))


def test_one_that_has_ended_before_it_is_followed_ends_at_once():
    reduced = started()
    reduced.set_result([torch.ones(3)])
    assert torch.equal(Reductions().follow(reduced, of_done).wait(), torch.ones(3))


def test_what_the_reduction_raises_is_raised():
    reduced = started()
    failed = reduced.then(lambda _: 1 / 0)
    followed = Reductions().follow(failed, of_done)
    reduced.set_result(None)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        followed.wait()


def test_a_revocation_ends_every_wait_with_an_error_of_the_group_and_refuses_more():
    reductions, reduced = Reductions(), [started(), started()]
    followed = [reductions.follow(one, of_done) for one in reduced]
    reductions.revoke()
    for one in followed:
        with pytest.raises(RuntimeError) as raised:
            one.wait()
        assert is_group_error(raised.value)
    with pytest.raises(RuntimeError, match="revoked"):
        reductions.refuse_revoked()
    with pytest.raises(RuntimeError, match="revoked"):
        reductions.follow(started(), of_done)
    reduced[0].set_result([torch.ones(3)])  # too late, and nobody is hurt
    with pytest.raises(RuntimeError, match="revoked"):
        followed[0].wait()


def test_the_next_generation_reduces_again():
    reductions = Reductions()
    reductions.revoke()
    reductions.begin()
    reductions.refuse_revoked()
    reduced = started()
    followed = reductions.follow(reduced, of_done)
    reduced.set_result([torch.zeros(1)])
    assert torch.equal(followed.wait(), torch.zeros(1))


def backward(reductions, reduce, *, on_launch):
    """Run a backward pass of a wrapped model on a thread; returns what it raised."""

    def launch(_state, bucket):
        on_launch()
        return reduce(bucket)

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    CountingHook(MagicMock(), MagicMock(), reductions, launch).attach(model)
    raised = []

    def run():
        try:
            model(torch.ones(2, 4)).sum().backward()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_a_backward_pass_that_waits_for_ever_is_freed(group):
    reductions, is_launched = Reductions(), threading.Event()
    thread, raised = backward(reductions, lambda _: started(), on_launch=is_launched.set)
    assert is_launched.wait(LIMIT_S)
    thread.join(0.1)
    assert thread.is_alive(), "nothing answers: else this test would see nothing"
    reductions.revoke()
    thread.join(LIMIT_S)
    assert [is_group_error(error) for error in raised] == [True]


def test_a_backward_pass_in_a_revoked_generation_launches_nothing(group):
    reductions, launched = Reductions(), []
    reductions.revoke()
    thread, raised = backward(
        reductions, lambda _: started(), on_launch=lambda: launched.append(True)
    )
    thread.join(LIMIT_S)
    assert [is_group_error(error) for error in raised] == [True]
    assert launched == []
