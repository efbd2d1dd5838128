"""How many checkpoints to keep when corruption is found late.

A checkpoint taken after the first divergent step is corrupt as well. If detection takes longer than the oldest kept
checkpoint is old, no clean one is left and the job starts again from nothing. This couples a measured detection
latency to a storage budget.
"""

from __future__ import annotations

import math

from lastgood.base.errors import BadInput, Refused

RETAINED_COUNT_MAX = 100_000


def retention_risk(retained_count: int, *, period: float, mean_detection: float) -> float:
    """Chance that a silent corruption leaves no clean checkpoint: exp(-kT/μ) (exp(T/μ) - 1) μ/T.

    Source: derived for this project after Aupy, Benoit, Hérault, Robert, Vivien, Zaidouni 2013; checked by draws.
    Assumes: exponential detection latency of mean μ; corruption at any moment of a period alike; k kept
        checkpoints of period T; a checkpoint older than the corruption is clean.
    """
    if retained_count < 1 or not (period > 0 and mean_detection > 0):
        raise BadInput(
            "retention needs at least one checkpoint and durations above zero",
            found=f"{retained_count} kept, period {period}, latency {mean_detection}",
        )
    a = period / mean_detection
    return -math.expm1(-a) / a * math.exp(-(retained_count - 1) * a)


def retained_for(risk_max: float, *, period: float, mean_detection: float) -> int:
    """The fewest checkpoints to keep for a risk of at most this per corruption.

    Source and Assumes: as for `retention_risk`.
    """
    if not 0 < risk_max < 1:
        raise BadInput("a risk lies between 0 and 1", found=str(risk_max))
    a = period / mean_detection
    first = -math.expm1(-a) / a
    count = 1 if first <= risk_max else 1 + math.ceil(math.log(first / risk_max) / a - 1e-12)
    if count > RETAINED_COUNT_MAX:
        raise Refused(
            "no reasonable number of checkpoints covers this detection latency",
            found=f"{count:,}",
            needs=f"at most {RETAINED_COUNT_MAX:,}",
            next="detect earlier or checkpoint less often",
        )
    return count
