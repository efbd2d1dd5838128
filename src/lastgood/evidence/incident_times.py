"""How long incidents took, by indicator: one definition for the tables and for the objectives.

An escalated incident was never recovered. However short its phases were, it is no fast recovery: it stands behind
every recovered one, as if it had taken for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lastgood.base.figures import Figure, Interval, measured
from lastgood.budget.order_statistics import quantile_ranks
from lastgood.evidence.late_verdicts import FOUND_AFTERWARDS
from lastgood.ledger.incident import Incident
from lastgood.ledger.walltime import WallTime

TIMES: Final[dict[str, Callable[[Incident], int | None]]] = {
    "detection_time": lambda i: i.detect_us,
    "diagnosis_time": lambda i: i.diagnose_us,
    "isolation_time": lambda i: i.isolate_us,
    "recovery_time": lambda i: i.recover_us,
    "verification_time": lambda i: i.verify_us,
}
"""Indicator of a contract -> where an incident keeps it."""
_OF_A_RECOVERY: Final = frozenset({"recovery_time", "verification_time"})


class Durations(NamedTuple):
    """One indicator over some incidents."""

    values_us: tuple[int, ...]
    never_count: int
    """Escalated incidents: no time will do."""
    unknown_count: int
    """Incidents without a record of it, which could be short or long."""

    def percentile_us(self, ratio: float) -> int | None:
        """The nearest rank among the known ones, those that never recovered last; None when it falls on one of them."""
        at = rank_at(len(self.values_us) + self.never_count, ratio)
        return sorted(self.values_us)[at] if at < len(self.values_us) else None


def durations(incidents: Sequence[Incident], indicator: str) -> Durations:
    """The values of an indicator, and how many incidents have none."""
    return durations_of(incidents, TIMES[indicator], is_of_recovery=indicator in _OF_A_RECOVERY)


def durations_of(
    incidents: Sequence[Incident], take: Callable[[Incident], int | None], *, is_of_recovery: bool
) -> Durations:
    """The values that incidents have of it; an escalated one has none of what only a recovery has."""
    reached = [i for i in incidents if not (is_of_recovery and i.outcome == "escalated")]
    known = tuple(value for i in reached if (value := take(i)) is not None)
    return Durations(known, len(incidents) - len(reached), len(reached) - len(known))


def to_next_step_us(incident: Incident, wall: WallTime | None) -> int | None:
    """From the onset to the end of the first accepted step behind the close: what the fault cost the job, in whole.

    None where no such step is on record, where a person had to act, and for what was found after its steps had been
    accepted, which stopped none.
    """
    onset_us, closed_us = incident.onset_us, incident.closed_us
    is_whole = incident.outcome not in {"escalated", FOUND_AFTERWARDS}
    if wall is None or onset_us is None or closed_us is None or not is_whole:
        return None
    next_us = wall.next_step_us(closed_us)
    return None if next_us is None else next_us - onset_us


def rank_at(count: int, ratio: float) -> int:
    """Place of the smallest value that at least this share of all values does not exceed (nearest rank)."""
    return max(0, math.ceil(ratio * count - 1e-9) - 1)


def quantile_figure(
    incidents: Sequence[Incident], indicator: str, share: float, *, level: float = 0.95
) -> Figure:
    """A quantile of an indicator, with the interval of order statistics where there are enough incidents for one.

    Assumes: for the interval only, independent incidents of one distribution.
    """
    times = durations(incidents, indicator)
    ordered = [*sorted(map(float, times.values_us)), *[math.inf] * times.never_count]
    told = [f"incidents of the ledger, {indicator.replace('_', ' ')}, nearest rank"]
    if times.never_count:
        told.append(f"{times.never_count} escalated stand behind every recovered one")
    if times.unknown_count:
        told.append(f"{times.unknown_count} without this time left out")
    value, interval = None, None
    if ordered:
        ranks = quantile_ranks(len(ordered), share, level=level)
        ends = [None if at is None else ordered[at] for at in (ranks.lo, ranks.hi)]
        value = ordered[ranks.value] if ordered[ranks.value] < math.inf else None
        lo, hi = ends
        if value is not None and lo is not None and hi is not None and hi < math.inf:
            method = "order statistics (exact binomial); independent incidents"
            interval = Interval(lo=lo, hi=hi, level=level, method=method)
        else:
            told.append(f"no interval: {len(ordered)} are too few for both ends at {level:.0%}")
    return measured(
        f"{indicator.replace('_', ' ')} p{share * 100:g}", value, "us",
        source="; ".join(told), n=len(ordered), interval=interval,
    )  # fmt: skip
