"""ETTR of a job that also waits in a queue each time it is submitted again, and the question backwards.

Source of the form: Kokolis and others, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
2024 (arXiv 2410.21680). The queueing factor is derived for this project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastgood.base.errors import BadInput, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmission:
    """Costs of a job that is started again by a scheduler."""

    checkpoint: float
    """w: time for which one checkpoint blocks the job."""
    restart: float
    """u0: from the failure to the first new step, the queue not included."""
    queue: float = 0.0
    """q: mean wait for each submission."""
    scheduled: float = math.inf
    """X: scheduled time of the run; for a long one the first wait does not matter."""


def best_work(costs: Resubmission, *, mean_to_stop: float) -> float:
    """Δt* = sqrt(2 w M)."""
    return math.sqrt(2 * costs.checkpoint * mean_to_stop)


def expected_ettr(work: float, costs: Resubmission, *, mean_to_stop: float) -> float:
    """E[ETTR] = (1 - λ (u0 + Δt/2)) / ((1 + w/Δt) (1 + q (λ + 1/X))).

    Source: Kokolis and others 2024, with the queue factor derived here; about 5 % from their own simulation.
    Assumes: Poisson interruptions; small λ (u0 + Δt/2); the mean wait is the same for every submission.
    """
    rate = 1 / mean_to_stop
    useful = 1 - rate * (costs.restart + work / 2)
    waiting = 1 + costs.queue * (rate + 1 / costs.scheduled)
    return useful / ((1 + costs.checkpoint / work) * waiting)


def mean_to_stop_for(ettr: float, costs: Resubmission) -> float:
    """The inverse: the mean time to interruption that is just enough for this ETTR at the best Δt.

    Source and Assumes: as for `expected_ettr`.

    Raises:
        Refused: no rate of interruptions, however low, reaches it (the first wait alone costs more).
    """
    if not 0 < ettr < 1:
        raise BadInput("an ETTR lies between 0 and 1", found=str(ettr))

    def reached(mean: float) -> float:
        return expected_ettr(best_work(costs, mean_to_stop=mean), costs, mean_to_stop=mean)

    low = high = max(costs.checkpoint, costs.restart, costs.queue)
    for _ in range(200):
        if reached(high) >= ettr:
            break
        low, high = high, high * 2
    else:
        raise Refused(
            "no rate of interruptions reaches this ETTR",
            found=f"{ettr}",
            needs="a longer run or a shorter first wait",
        )
    low = 0.0 if low == high else low
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if middle > 0 and reached(middle) >= ettr else (middle, high)
    return high
