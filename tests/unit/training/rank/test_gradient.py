"""The quick looks at a gradient say what the slow ones say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastgood.training.rank.gradient import is_finite, square_sum

LARGEST = torch.finfo(torch.float32).max


@given(
    size=st.integers(1, 5000),
    at=st.integers(0, 4999),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    scale=st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_one_bad_element_is_found_wherever_it_is(size, at, bad, scale):
    tensor = torch.full((size,), scale)
    assert is_finite(tensor)
    tensor[at % size] = bad
    assert not is_finite(tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_large_finite_elements_are_finite_although_their_squares_are_not(dtype):
    assert is_finite(torch.full((1000,), torch.finfo(dtype).max, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_bad_element_of_any_type_is_found(dtype):
    tensor = torch.ones(100, dtype=dtype)
    tensor[99] = math.inf
    assert not is_finite(tensor)


def test_nothing_is_finite():
    assert is_finite(torch.zeros(0))


@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-3, 1.0, 1e10, 1e25, LARGEST / 8])
def test_the_sum_of_squares_is_that_of_double_precision_from_the_smallest_to_the_largest(scale):
    tensor = torch.randn(100_000, generator=torch.Generator().manual_seed(1)) * scale
    exact = float(tensor.double().square().sum())
    assert exact > 0
    assert float(square_sum(tensor)) == pytest.approx(exact, rel=1e-4, abs=0)


def test_a_sum_with_a_bad_element_is_not_finite():
    assert not math.isfinite(float(square_sum(torch.tensor([1.0, math.nan]))))
