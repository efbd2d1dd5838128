"""Copies of batches: new containers around the same tensors, and a count that shows a change in place."""

from typing import Any, NamedTuple

import numpy as np
import torch

from lastgood.training.rank.batch import full_copy, shared_copy, tensor_versions


class Pair(NamedTuple):
    x: Any
    y: Any


class Odd:
    """Something that cannot be copied."""

    def __deepcopy__(self, memo):
        raise TypeError("no")


def test_containers_are_new_and_tensors_shared():
    tensor = torch.ones(2)
    batch = {"a": [tensor, (tensor, 1)], "b": Pair(tensor, "text")}
    copied = shared_copy(batch)
    assert copied["a"] is not batch["a"]
    assert copied["a"][0] is copied["a"][1][0] is copied["b"].x is tensor
    assert type(copied["b"]) is Pair
    assert copied["b"].y == "text"


def test_arrays_and_other_things_are_copied_and_what_cannot_be_is_shared():
    array, odd = np.ones(2), Odd()
    copied = shared_copy([array, odd])
    array += 1
    assert copied[0].tolist() == [1.0, 1.0]
    assert copied[1] is odd
    assert full_copy(odd) is odd


def test_a_full_copy_has_tensors_of_its_own():
    batch = {"a": torch.ones(2)}
    copied = full_copy(batch)
    batch["a"].add_(1)
    assert copied["a"].tolist() == [1.0, 1.0]


def test_a_change_in_place_shows_and_a_use_does_not():
    batch = [{"a": torch.ones(2)}, (torch.zeros(1),), "text"]
    before = tensor_versions(batch)
    _ = batch[0]["a"] * 2
    assert before == tensor_versions(batch)
    batch[1][0].add_(1)
    assert before != tensor_versions(batch)


def test_a_tensor_of_inference_mode_has_no_count_and_is_no_error():
    with torch.inference_mode():
        tensor = torch.ones(1)
    assert tensor_versions([tensor]) == ()
