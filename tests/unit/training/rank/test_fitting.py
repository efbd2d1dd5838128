"""A state of another model is refused in words, before anything of it is loaded."""

import pytest
import torch

from lastgood.base.errors import BadInput
from lastgood.training.rank.fitting import refuse_other_model
from lastgood.training.rank.snapshot import LoadedState
from lastgood.training.rank.state import Digests, Trainable, capture_streams


def trainable_of(*widths, groups=1):
    layers = [torch.nn.Linear(4, width) for width in widths]
    model = torch.nn.Sequential(*layers)
    parts = [{"params": list(layer.parameters())} for layer in layers]
    optimizer = torch.optim.SGD(parts if groups > 1 else model.parameters(), lr=0.1)
    return Trainable(model, optimizer)


def state_of(trainable):
    replicated, private = trainable.tensors()
    return LoadedState(
        step=12, tensors=replicated | private, values=trainable.values(), streams=capture_streams(),
        position={}, digests=Digests("", ""),
    )  # fmt: skip


def test_a_state_of_the_same_model_fits():
    refuse_other_model(trainable_of(8, 4), state_of(trainable_of(8, 4)))


@pytest.mark.parametrize(
    ("saved", "live", "words"),
    [
        ((8, 4), (8, 16), "1.weight is (4, 4) of float32 there, is (16, 4) of float32 in the script; 1 more differ"),
        ((8,), (8, 4), "1.weight is not there, is (4, 4) of float32 in the script; 1 more differ"),
        ((8, 4), (8,), "1.weight is (4, 4) of float32 there, is not in the script; 1 more differ"),
    ],
)  # fmt: skip
def test_the_first_tensor_that_differs_is_named_with_both_shapes(saved, live, words):
    with pytest.raises(BadInput) as refused:
        refuse_other_model(trainable_of(*live), state_of(trainable_of(*saved)))
    assert words in str(refused.value)
    assert "state 12" in str(refused.value)
    assert "another --run-id" in str(refused.value)
    assert refused.value.exit_code == 2


def test_another_type_of_the_same_shape_is_another_model():
    live = trainable_of(8)
    live.model.double()
    with pytest.raises(BadInput, match=r"of float32 there, is .* of float64 in the script"):
        refuse_other_model(live, state_of(trainable_of(8)))


def test_other_parameter_groups_are_another_optimizer():
    with pytest.raises(BadInput, match="1 parameter groups there, 2 in the script"):
        refuse_other_model(trainable_of(8, 4, groups=2), state_of(trainable_of(8, 4)))


def test_a_buffer_may_have_grown():
    live, before = trainable_of(8), trainable_of(8)
    before.model.register_buffer("history", torch.zeros(2))
    live.model.register_buffer("history", torch.zeros(5))
    refuse_other_model(live, state_of(before))
