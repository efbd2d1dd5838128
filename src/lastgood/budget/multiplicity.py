"""Many tests, one fleet: with twenty classes one of them looks significant by chance.

Source: Holm (1979); Benjamini and Hochberg (1995).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


def holm(p: ArrayLike) -> np.ndarray:
    """Adjusted p values that keep the chance of any false alarm among all tests at the level.

    Assumes: nothing about how the tests depend on each other.
    Source: Holm (1979).
    """
    import numpy as np

    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _back(np.minimum(raised, 1.0), order)


def benjamini_hochberg(p: ArrayLike, *, tests: int | None = None) -> np.ndarray:
    """Adjusted p values that keep the expected share of false alarms among those called at the level.

    `tests` counts all tests that were made; those that `p` lacks have a p value of 1.

    Assumes: independent or positively dependent tests.
    Source: Benjamini and Hochberg (1995).
    """
    import numpy as np

    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * (len(p) if tests is None else tests) / np.arange(1, len(p) + 1)
    lowered = np.minimum.accumulate(scaled[::-1])[::-1]
    return _back(np.minimum(lowered, 1.0), order)


def _back(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    import numpy as np

    placed = np.empty(len(values))
    placed[order] = values
    return placed
