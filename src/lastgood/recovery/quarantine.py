"""What must leave the next attempt.

The named ranks leave. When the same failure has come back, everything that shares their host leaves too:
taking out too much costs seconds, taking out too little costs the whole recovery again. When nobody could
be named, nobody is killed at first; who does not leave the generation by itself is found out by the
deadline of the isolation.
"""

from __future__ import annotations

from lastgood.contract.taxonomy import DomainKind
from lastgood.recovery.crew import Crew, Standing
from lastgood.recovery.diagnosis import Diagnosis


def evicted_workers(diagnosis: Diagnosis, crew: Crew) -> tuple[str, ...]:
    """Workers that do not serve in the next generation and can still be killed.

    Assumes one host: a host domain is every rank.
    """
    living = (Standing.ACTIVE, Standing.PARKED)
    if diagnosis.domain is DomainKind.HOST:
        return crew.serving_with(*living)
    return tuple(
        crew.serving[rank]
        for rank in diagnosis.culprits
        if rank < len(crew.serving) and crew.standing[crew.serving[rank]] in living
    )
