"""A plan's inputs from a ledger: the rate of interruptions with its interval, and the costs that were measured.

The rate is that of failures in the field, counted and bounded as every other statistic of the fleet is; injected
faults are never part of it. Costs may well come from injected faults (a drill measures a recovery), and say so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.base.errors import Refused
from lastgood.base.figures import Figure, FigureKind, Interval, measured
from lastgood.base.units import US_PER_DAY, US_PER_H, format_duration, format_number
from lastgood.budget.intervals import IntervalMethod, garwood, headline
from lastgood.budget.projection import EVENTS_MIN, BackTest, RateSource, back_test
from lastgood.budget.sampling import LEVEL
from lastgood.budget.scenario import Scenario
from lastgood.evidence.drilled_runs import drilled_runs
from lastgood.evidence.exposure_basis import one_exposure, with_source
from lastgood.evidence.plan_costs import measured_costs
from lastgood.evidence.rates_records import FleetRecords, RatesQuestion, fleet_records

if TYPE_CHECKING:
    from lastgood.ledger.table import EventTable

SIZE_RATIO_MIN = 1.5
"""Two sizes nearer to each other than this test nothing."""
UNCLASSIFIED = "unclassified"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInputs:
    """What a ledger has to say about a plan."""

    scenario: Scenario
    records: FleetRecords | None
    """The field's records; None when all that the ledger holds was caused on purpose."""
    injected_count: int
    """Incidents that were caused on purpose."""
    root: str
    size: int


def ledger_inputs(path: Path, question: RatesQuestion | None = None) -> LedgerInputs:
    """Read a ledger (or its export) for a plan.

    Raises:
        LedgerError: no such ledger.
        BadInput: nothing is observed.
    """
    import numpy as np

    from lastgood.ledger.columns import fold_table, read_events
    from lastgood.ledger.grouping import parse_rule

    question = question or RatesQuestion()
    table = read_events(path)
    stored = path if os.path.isfile(path) else None
    drilled = drilled_runs(table, stored)
    folded = fold_table(table, parse_rule(question.rule))
    on_purpose = folded.run.is_one_of(drilled) | (folded.injected == 1)
    injected_count = int(np.count_nonzero(on_purpose & ~folded.planned))
    field = table.take(~table.run.is_one_of(drilled)) if drilled else table
    one = one_exposure(field)
    records = (
        with_source(fleet_records(one.table, question), one)
        if _has_failures(field) or not drilled
        else None
    )
    given, notes = _rate(records, injected_count)
    costs, cost_notes, free = measured_costs(folded, stored, injected_count=injected_count)
    return LedgerInputs(
        scenario=Scenario(
            name=path.name,
            given={**given, **costs},
            stops={} if records is None else _stops(records),
            notes=(*notes, *cost_notes),
            free_checkpoints=free,
        ),
        records=records,
        injected_count=injected_count,
        root=table.root.hex() if table.root else "",
        size=table.size or 0,
    )


def _has_failures(table: EventTable) -> bool:
    return bool((table.class_.codes >= 0).any())


def _rate(records: FleetRecords | None, injected_count: int) -> tuple[dict[str, Figure], list[str]]:
    """The mean time between failures where there is one, and the sentences that belong to it."""
    if records is not None and len(records.incidents):
        mean, choice, is_plain = mean_time(records)
        state = "held" if is_plain else "not held"
        return {"mtti": mean}, [_window_note(records), f"dispersion: {state}, {choice}"]
    if injected_count:
        return {}, [
            f"{injected_count} injected faults are no rate: the mean time to interruption has to come from elsewhere"
        ]
    return {}, [
        "the ledger holds no failure: the mean time to interruption has to come from elsewhere"
    ]


def mean_time(
    records: FleetRecords, rows: Any = None, *, name: str = "failures"
) -> tuple[Figure, str, bool]:
    """Mean time between failures of the whole fleet, how its interval was chosen, and whether counts look Poisson.

    Time in which no device was at risk, such as the gap between two runs, is no time between failures.
    `rows` (a mask over the incidents) asks for some of them only, such as one class.
    """
    import numpy as np

    clock, at_risk_us = records.clock, time_at_risk_us(records)
    hours = records.hours if rows is None else records.hours[rows]
    times = np.sort(clock.until(hours)) * (records.window_h / clock.total)
    chosen = headline(times, records.window_h, exposure=at_risk_us / US_PER_H)
    made = chosen.interval
    interval = None
    if made.lo > 0:
        interval = Interval(
            lo=US_PER_H / made.hi, hi=US_PER_H / made.lo, level=made.level, method=made.words
        )
    figure = measured(
        f"mean time between {name}",
        at_risk_us / len(hours),
        "us",
        source=f"ledger, grouped by {records.question.rule}",
        n=len(hours),
        interval=interval,
        exposure=f"{format_duration(at_risk_us)} {_told(records, at_risk_us)}",
        as_of_us=records.end_us,
    )
    return figure, chosen.choice, made.method is IntervalMethod.EXACT


def time_at_risk_us(records: FleetRecords) -> float:
    """Observed time without the stretches in which the records say that no device was at risk."""
    import numpy as np

    exposure = records.exposure
    if exposure is None:
        return records.observed_us
    idle_h = float(np.diff(exposure.edges_h)[np.asarray(exposure.devices) <= 0].sum())
    return records.observed_us - idle_h * US_PER_H


def _told(records: FleetRecords, at_risk_us: float) -> str:
    return "observed" if at_risk_us == records.observed_us else "with devices at risk"


def _window_note(records: FleetRecords) -> str:
    count, at_risk_us = len(records.incidents), time_at_risk_us(records)
    idle_us = records.observed_us - at_risk_us
    idle = f", without {format_duration(idle_us)} in which no device was at risk" if idle_us else ""
    return (
        f"{count} failure{'' if count == 1 else 's'} in {format_duration(at_risk_us)} "
        f"({records.window_source}{idle}), every one taken to stop this job; {records.planned_count} planned stops and "
        f"{records.injected_count} injected faults are not counted"
    )


def _stops(records: FleetRecords) -> dict[str, Figure]:
    """Each class's own mean time: their rates add up to the rate of the job."""
    column = records.incidents.class_
    named = {name: column.codes == column.code_of(name) for name in column.counts()}
    if (column.codes < 0).any():
        named[UNCLASSIFIED] = column.codes < 0
    return {name: mean_time(records, rows, name=name)[0] for name, rows in named.items()}


# --- projection --------------------------------------------------------------------------------------------


def rate_source(
    records: FleetRecords | None, *, injected_count: int = 0, option: str | None = None
) -> RateSource:
    """The ledger's rate as something that can be projected.

    `option` is what a person types for the number of devices at risk, where there is such an option.

    Raises:
        Refused: no failures in the field, or nobody knows how many devices were at risk.
    """
    if records is None or not len(records.incidents):
        raise Refused(
            "faults that were injected are not a rate" if injected_count else "nothing to project",
            found=f"{injected_count} injected faults and no failure in the field",
            needs="failures that happened in the field, with their exposure",
            next="import the logs of real operation: lastgood import PATH...",
        )
    count = len(records.incidents)
    exposure = records.exposure
    if exposure is None or exposure.unit != "device-h":
        raise Refused(
            "a count without exposure gives no law per device",
            found=f"{count} failures and no number of devices at risk",
            needs="join and leave records, or the number of devices",
            next=f"give {option}" if option else "lastgood project takes it: --source-devices N",
        )
    mean, _, _ = mean_time(records)
    if exposure.is_assumed:
        mean = _weakened(mean)
    at_risk = exposure.devices[exposure.devices > 0]
    at_risk_us = time_at_risk_us(records)
    days = at_risk_us / US_PER_DAY
    devices = exposure.total / (at_risk_us / US_PER_H)
    low, high = float(at_risk.min()), float(at_risk.max())
    sizes = f"{low:,.0f} to {high:,.0f}" if low < high else f"{high:,.0f}"
    typed = records.question.devices
    told = exposure.source if typed is None or option is None else f"{option} {typed}"
    return RateSource(
        mean_time=mean,
        devices=devices,
        devices_min=low,
        devices_max=high,
        window=f"{format_number(days)} d on {sizes} devices",
        exposure=f"{exposure.total:,.0f} device-h, {told}",
    )


def _weakened(mean: Figure) -> Figure:
    import msgspec

    kinds = (*mean.kinds, FigureKind.ASSUMED)
    return msgspec.structs.replace(mean, kind=FigureKind.ASSUMED, kinds=kinds)


def back_tests(records: FleetRecords) -> tuple[tuple[BackTest, ...], str]:
    """From the smaller sizes of the ledger to its larger ones, or the reason why that cannot be done."""
    import numpy as np

    exposure = records.exposure
    if exposure is None or exposure.is_constant:
        return (), "the records hold one size only"
    exposure = records.clock  # over the calendar, as the hours of the incidents are
    hours = np.diff(exposure.edges_h)
    devices = np.asarray(exposure.devices)
    order = np.argsort(devices, kind="stable")
    reached = np.cumsum((devices * hours)[order])
    split = devices[order][int(np.searchsorted(reached, reached[-1] / 2))]
    small = (devices > 0) & (devices < split)
    large = devices >= split
    spans = np.clip(
        np.searchsorted(exposure.edges_h, records.hours, side="right") - 1, 0, len(devices) - 1
    )
    parts = []
    for mask in (small, large):
        span_h, total = float(hours[mask].sum()), float((devices * hours)[mask].sum())
        parts.append((int(mask[spans].sum()), span_h, total))
    (few, small_h, small_total), (many, large_h, large_total) = parts
    if min(few, many) < EVENTS_MIN:
        return (), f"fewer than {EVENTS_MIN} failures at one of two sizes"
    small_devices, large_devices = small_total / small_h, large_total / large_h
    if large_devices < SIZE_RATIO_MIN * small_devices:
        return (), "the sizes in the records are too much alike"
    rate = garwood(few, small_h * US_PER_H, level=LEVEL)
    source = RateSource(
        mean_time=measured(
            "mean time between failures",
            small_h * US_PER_H / few,
            "us",
            source="ledger, smaller sizes",
            n=few,
            interval=Interval(lo=1 / rate.hi, hi=1 / rate.lo, level=LEVEL, method="exact Poisson"),
        ),
        devices=small_devices,
        devices_min=small_devices,
        devices_max=small_devices,
        window=f"{format_number(small_h / 24)} d on about {small_devices:,.0f} devices",
        exposure=f"{small_total:,.0f} device-h",
    )
    seen = measured(
        f"measured at about {large_devices:,.0f} devices",
        large_h * US_PER_H / many,
        "us",
        source="ledger, larger sizes",
        n=many,
    )
    return (back_test(source, devices=large_devices, measured=seen),), ""
