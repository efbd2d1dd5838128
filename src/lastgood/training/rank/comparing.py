"""Whether two runs of one step came to the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery.messages import ReplayOutcome
from lastgood.training.rank.state import largest_difference

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from lastgood.training.rank.state import Digests


def compare_replay(
    found: Digests,
    wanted: Digests | None,
    *,
    tolerance: float | None,
    live: Callable[[], dict[str, torch.Tensor]],
    reference: dict[str, torch.Tensor],
) -> tuple[ReplayOutcome, str]:
    """Return how a replay came out, and what differs; `tolerance` is None where every bit has to be the same."""
    if found == wanted:
        return ReplayOutcome.EQUAL, ""
    what = (
        "replicated state" if wanted is None or found.replica != wanted.replica else "private state"
    )
    if tolerance is None:
        return ReplayOutcome.DIFFERENT, f"{what} differs bitwise"
    difference = largest_difference(live(), reference)
    # Written so that a difference that is not a number fails.
    if difference <= tolerance:
        return ReplayOutcome.WITHIN_TOLERANCE, f"{what}: {difference:.3g} <= {tolerance:.3g}"
    return ReplayOutcome.DIFFERENT, f"{what}: {difference:.3g} > {tolerance:.3g}"
