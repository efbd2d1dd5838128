"""What a snapshot will hold is known before the first step, for the optimizers that people use."""

import pytest
import torch

from lastgood.training.rank.sizing import expected_state_bytes, ready_message
from lastgood.training.rank.state import Trainable

OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "rmsprop": torch.optim.RMSprop,
    "centered": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "adagrad": torch.optim.Adagrad,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_what_the_tensors_take_after_a_step_but_for_counters(name):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32))
    optimizer = OPTIMIZERS[name](model.parameters())
    trainable = Trainable(model, optimizer)
    before = expected_state_bytes(trainable)
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    after = expected_state_bytes(trainable)
    parameter_count = len(list(model.parameters()))
    assert 0 <= after - before <= 8 * parameter_count


def test_a_model_that_is_sharded_later_asks_for_nothing_yet():
    model = torch.nn.Linear(4, 4)
    trainable = Trainable(model, torch.optim.AdamW(model.parameters()))
    assert ready_message(trainable, is_sharded=True).snapshot_bytes == 0
    assert ready_message(trainable, is_sharded=False).snapshot_bytes == 3 * 20 * 4
