"""The numbers of a study with their provenance: count, exposure, rate and mean times as figures.

A figure on an exposure that a person typed is at best assumed; without exposure there is no rate at all.
"""

from __future__ import annotations

from lastgood.base.figures import DEVICE_TIME, Figure, FigureKind, Interval, weakest
from lastgood.budget.intervals import Headline, RateInterval
from lastgood.budget.operational import ExposureCurve
from lastgood.budget.sample import Sample

EXPOSURE_UNKNOWN = "exposure unknown; give --devices or node events"
HOUR_US = 3_600_000_000
PER = 1000
"""Device rates are given per this many device-hours."""


def rate_figures(sample: Sample, exposure: ExposureCurve | None, chosen: Headline | None) -> dict:
    """Count, exposure, rate and mean times by their names in a study; None where there is none."""
    grouping = f", grouped by {sample.rule}" if sample.rule else ""
    source = f"{sample.source or 'ledger'}: {sample.layer}{grouping}"
    words = exposure.words if exposure else EXPOSURE_UNKNOWN
    kinds = [sample.kind]

    def figure(name: str, value: float | None, unit: str, within: Interval | None = None) -> Figure:
        return Figure(
            name=name,
            value=value,
            unit=unit,
            kind=weakest(kinds),
            kinds=tuple(kinds),
            interval=within,
            n=sample.count,
            exposure=words,
            source=source,
            as_of_us=sample.as_of_us,
        )

    parts: dict = dict.fromkeys(("exposure_figure", "rate", "mean_time", "fleet_mean_time"))
    parts["count"] = figure(f"{sample.name}: {sample.layer}", sample.count, sample.layer)
    unknown = sample.unknown_causes
    parts["unknown_share"] = (
        figure("share without a known cause", unknown / sample.count, "ratio")
        if unknown is not None and sample.count
        else None
    )
    if exposure is None or chosen is None:
        return parts
    if exposure.is_assumed:
        kinds.append(FigureKind.ASSUMED)
    interval, is_run = chosen.interval, exposure.unit == "run-h"
    per = 1 if is_run else PER
    unit = f"per {exposure.unit}" if is_run else f"per {PER} {exposure.unit}"
    parts["exposure_figure"] = figure("exposure", exposure.total, exposure.unit)
    parts["rate"] = figure(
        f"{sample.name}: rate",
        interval.rate * per,
        unit,
        _interval(interval.lo * per, interval.hi * per, interval),
    )
    time_unit = "us" if is_run else DEVICE_TIME
    parts["mean_time"] = figure(
        f"{sample.name}: mean {'run' if is_run else 'device'} time between {sample.layer}",
        *_mean(interval, HOUR_US, time_unit),
    )
    parts["fleet_mean_time"] = figure(
        f"{sample.name}: mean time between {sample.layer}",
        *_mean(interval, HOUR_US * sample.window_h / exposure.total, "us"),
    )
    return parts


def _interval(lo: float, hi: float, made: RateInterval) -> Interval:
    return Interval(lo=lo, hi=hi, level=made.level, method=made.words)


def _mean(made: RateInterval, scale: float, unit: str) -> tuple[float | None, str, Interval | None]:
    """Exposure per incident; without an incident there is no mean, and the bound stands in the rate's interval."""
    if made.mean is None or made.mean_hi is None:
        return None, unit, None
    return made.mean * scale, unit, _interval(made.mean_lo * scale, made.mean_hi * scale, made)
