"""The costs of failures and checkpoints as a ledger measured them: means with intervals, and how many they rest on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.figures import Figure, Interval, measured
from lastgood.budget.sampling import LEVEL
from lastgood.budget.scenario import FreeCheckpoints
from lastgood.ledger.table import NO_TIME, IncidentTable

if TYPE_CHECKING:
    import numpy as np

    from lastgood.ledger.event import Event

COUNT_MIN = 2
"""Durations below which no interval is given."""
BLOCKING = "checkpoint.blocking"


class Costs(NamedTuple):
    """What records tell of the costs."""

    given: dict[str, Figure]
    notes: list[str]
    free: FreeCheckpoints | None
    """Checkpoints that cost nothing, where none of them did."""


class Checkpoints(NamedTuple):
    """What records tell of checkpoints."""

    cost_us: np.ndarray
    source: str
    failures: Figure | None
    free: FreeCheckpoints | None = None


def measured_costs(incidents: IncidentTable, ledger: Path | None, *, injected_count: int) -> Costs:
    """Detection, recovery and checkpoint cost where records tell; and sentences about what they rest on."""
    import numpy as np

    given: dict[str, Figure] = {}
    notes: list[str] = []
    free: FreeCheckpoints | None = None
    unplanned = incidents.take(~incidents.planned)
    detection = _summed(unplanned, ("detect_us", "diagnose_us"))
    recovery = _summed(unplanned, ("isolate_us", "recover_us", "verify_us"))
    for name, values in (("detection", detection), ("recovery", recovery)):
        if values.any():  # a fault that is seen as it begins says nothing about detection
            given[name] = mean_figure(name, values, source=f"{len(values)} incidents of the ledger")
    open_count = int(np.count_nonzero(unplanned.end_us == NO_TIME))
    if given and injected_count:
        notes.append(
            f"{injected_count} of {len(unplanned)} incidents behind the costs were injected: they show what recovery takes, "
            "not how often it is needed"
        )
    if given and open_count:
        notes.append(
            f"{open_count} incidents still open are left out of the costs, which makes them too small"
        )
    if ledger is not None:
        found = _checkpoints(ledger)
        free = found.free
        if found.cost_us.any():  # a plan trades a cost: none is not one of 0
            given["checkpoint_cost"] = mean_figure("checkpoint_cost", found.cost_us, found.source)
        if found.failures is not None:
            given["checkpoint_failure"] = found.failures
    return Costs(given, notes, free)


def mean_figure(name: str, values: np.ndarray, source: str) -> Figure:
    """The mean of measured durations, with Student's interval.

    Source: Student 1908. Assumes: independent durations whose mean is nearly normal; with few of them too narrow.
    """
    n, mean = len(values), float(values.mean())
    interval = None
    if n >= COUNT_MIN and mean > 0:
        from scipy.special import stdtrit

        half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
        low = mean - half if mean > half else float(values.min())
        interval = Interval(lo=min(low, mean), hi=mean + half, level=LEVEL, method="Student")
    return measured(name, mean, "us", source=source, n=n, interval=interval)


def _summed(incidents: IncidentTable, names: tuple[str, ...]) -> np.ndarray:
    """The sum of these durations for the incidents that know the first of them; unknown later ones count as zero."""
    import numpy as np

    columns = [getattr(incidents, name) for name in names]
    known = np.zeros(len(incidents), dtype=bool)
    total = np.zeros(len(incidents))
    for column in columns:
        known |= column != NO_TIME
        total += np.where(column == NO_TIME, 0, column)
    return total[known & (columns[0] != NO_TIME)]


def _checkpoints(ledger: Path) -> Checkpoints:
    """Time blocked where it was recorded, else begin to commit; and the share of failed ones."""
    import numpy as np

    from lastgood.ledger.event import time_of
    from lastgood.ledger.store import read_store

    kinds = (
        "section.begin", "section.end", "checkpoint.begin", "checkpoint.commit", "checkpoint.fail",
    )  # fmt: skip
    blocking: list[int] = []
    blocked: list[int] = []
    written: list[int] = []
    began: dict[tuple[object, ...], int] = {}
    ended = failed = 0
    with read_store(ledger) as store:
        for event in store.events(kinds=kinds):
            t_us, key = time_of(event), _key(event)
            if t_us is None or (event.kind.startswith("section") and key is None):
                continue
            assert key is not None
            if event.kind.endswith(".begin"):
                began[key] = t_us
                continue
            start = began.pop(key, None)
            if event.kind == "checkpoint.fail":
                failed += 1
                continue
            ended += event.kind == "checkpoint.commit"
            told = event.body.get("blocked_us")
            if isinstance(told, int):
                blocked.append(told)
            if start is not None and t_us >= start:
                (blocking if event.kind == "section.end" else written).append(t_us - start)
    failures = None
    if failed + ended:
        failures = measured(
            "checkpoint_failure",
            failed / (failed + ended),
            "ratio",
            source="checkpoints of the ledger",
            n=failed + ended,
        )
    if blocking:
        source = f"{len(blocking)} blocking stretches of the ledger"
        return Checkpoints(np.array(blocking, float), source, failures)
    if blocked and len(blocked) == ended:
        source = (
            f"time for which {len(blocked)} checkpoints of the ledger blocked the job, as recorded"
        )
        cost_us = np.array(blocked, float)
        free = _free(cost_us, np.array(written, float), source)
        return Checkpoints(cost_us, source, failures, free)
    source = f"begin to commit of {len(written)} checkpoints, taken to block the job all the while"
    return Checkpoints(np.array(written, float), source, failures)


def _free(cost_us: np.ndarray, write_us: np.ndarray, source: str) -> FreeCheckpoints | None:
    """The cost and the time of a write where none of the checkpoints blocked anything."""
    if cost_us.any() or not len(write_us):
        return None
    told = f"begin to commit of {len(write_us)} checkpoints"
    return FreeCheckpoints(
        cost=mean_figure("checkpoint_cost", cost_us, source),
        write=mean_figure("checkpoint_write", write_us, told),
    )


def _key(event: Event) -> tuple[object, ...] | None:
    """What a begin and its end have in common; None for a section that is no checkpoint."""
    family = event.kind.partition(".")[0]
    if family == "section":
        if BLOCKING not in {event.body.get("state"), event.body.get("name")}:
            return None
        return (family, event.run, event.body.get("name"))
    return (family, event.run, event.body.get("step"))
