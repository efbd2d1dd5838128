"""Which steps of an optimizer are steps of the training."""

import pytest
import torch
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from lastgood.training.rank.counting import is_empty_step


class Seen:
    """A small model whose optimizer's steps are judged as they are made."""

    def __init__(self, kind, **given):
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = kind(self.model.parameters(), **given)
        self.empty: list[bool] = []
        self.optimizer.register_step_post_hook(lambda *_: self.empty.append(is_empty_step()))

    def train(self):
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_the_step_by_which_torch_makes_the_state_to_load_into_is_none_of_the_training(kind):
    trained, fresh = Seen(kind, lr=0.1), Seen(kind, lr=0.1)
    trained.train()
    state = get_optimizer_state_dict(trained.model, trained.optimizer)
    set_optimizer_state_dict(fresh.model, fresh.optimizer, state)
    fresh.train()
    assert fresh.empty[0] is True
    assert fresh.empty[-1] is False


def test_a_warm_up_that_begins_with_a_rate_of_zero_trains():
    seen = Seen(torch.optim.AdamW, lr=0.0)
    seen.train()
    assert seen.empty == [False]


def test_such_a_step_trains_also_on_a_rank_whose_own_shards_have_no_gradient():
    seen = Seen(torch.optim.AdamW, lr=0.0)
    for parameter in seen.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    seen.optimizer.step()
    assert seen.empty == [False]


def test_the_rate_may_be_a_tensor():
    seen = Seen(torch.optim.AdamW, lr=torch.tensor(0.1))
    get_optimizer_state_dict(seen.model, seen.optimizer)
    seen.train()
    assert seen.empty == [True, False]
