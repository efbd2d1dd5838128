"""Two looks at a gradient that cost one pass each through memory, where the obvious ones cost ten times that.

On a CPU torch's infinity norm and its norm in double precision are an order of magnitude slower than the plain norm.
The plain norm is finite only if every element is, so the slow look is needed only when it is not.
"""

from __future__ import annotations

import math

import torch

_FAST = (torch.float32, torch.float64)
_NORM_MIN = 1e-15
"""Below it, squares of single precision may vanish."""


def is_finite(tensor: torch.Tensor) -> bool:
    """True when no element is NaN or infinite."""
    if not tensor.numel():
        return True
    if tensor.dtype in _FAST and math.isfinite(torch.linalg.vector_norm(tensor)):
        return True
    # It carries NaN along and cannot overflow, unlike a sum.
    return math.isfinite(torch.linalg.vector_norm(tensor, float("inf")))


def square_sum(tensor: torch.Tensor) -> torch.Tensor | float:
    """Return the sum of the squares in double precision; of finite elements it is finite.

    A tensor where a plain number would have to be waited for, or is slow to come by anyway.
    """
    if tensor.is_cpu and tensor.dtype == torch.float32:
        norm = float(torch.linalg.vector_norm(tensor))
        if _NORM_MIN < norm < math.inf:
            return norm * norm
    return torch.linalg.vector_norm(tensor, dtype=torch.float64).square()
