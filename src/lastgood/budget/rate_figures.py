"""The numbers of a study with their provenance: count, exposure, rate and mean times as figures.

A figure on an exposure that a person typed is at best assumed; without exposure there is no rate at all.
"""

from __future__ import annotations

from typing import NamedTuple

from lastgood.base.figures import DEVICE_TIME, Figure, FigureKind, Interval, weakest
from lastgood.budget.intervals import Headline
from lastgood.budget.operational import ExposureCurve
from lastgood.budget.sample import Sample

EXPOSURE_UNKNOWN = "exposure unknown; give --devices or node events"
HOUR_US = 3_600_000_000
PER = 1000
"""Device rates are given per this many device-hours."""


class RateFigures(NamedTuple):
    """The figures of a study, by their names there."""

    count: Figure
    unknown_share: Figure | None
    exposure_figure: Figure | None = None
    rate: Figure | None = None
    mean_time: Figure | None = None
    fleet_mean_time: Figure | None = None


def rate_figures(
    sample: Sample, exposure: ExposureCurve | None, chosen: Headline | None
) -> RateFigures:
    """Count, exposure, rate and mean times; None where there is none."""
    count = _figure(sample, exposure, f"{sample.name}: {sample.layer}", sample.count, sample.layer)
    unknown = None
    if sample.unknown_causes is not None and sample.count:
        value = sample.unknown_causes / sample.count
        unknown = _figure(sample, exposure, "share without a known cause", value, "ratio")
    if exposure is None or chosen is None:
        return RateFigures(count, unknown)
    kinds = (sample.kind, FigureKind.ASSUMED) if exposure.is_assumed else (sample.kind,)
    interval, is_run = chosen.interval, exposure.unit == "run-h"
    per = 1 if is_run else PER

    def on_exposure(
        name: str, value: float | None, unit: str, lo: float, hi: float | None
    ) -> Figure:
        within = Interval(lo=lo, hi=hi, level=interval.level, method=interval.words) if hi else None
        return _figure(sample, exposure, name, value, unit, kinds=kinds, within=within)

    def mean(name: str, unit: str, scale: float) -> Figure:
        # Without an incident there is no mean; the bound stands in the interval of the rate.
        value = None if interval.mean is None else interval.mean * scale
        hi = None if interval.mean_hi is None else interval.mean_hi * scale
        return on_exposure(f"{sample.name}: {name}", value, unit, interval.mean_lo * scale, hi)

    return RateFigures(
        count=count,
        unknown_share=unknown,
        exposure_figure=_figure(
            sample, exposure, "exposure", exposure.total, exposure.unit, kinds=kinds
        ),
        rate=on_exposure(
            f"{sample.name}: rate",
            interval.rate * per,
            f"per {exposure.unit}" if is_run else f"per {PER} {exposure.unit}",
            interval.lo * per,
            interval.hi * per,
        ),
        mean_time=mean(
            f"mean {'run' if is_run else 'device'} time between {sample.layer}",
            "us" if is_run else DEVICE_TIME,
            HOUR_US,
        ),
        fleet_mean_time=mean(
            f"mean time between {sample.layer}",
            "us",
            HOUR_US * sample.window_h / exposure.total,
        ),
    )


def _figure(
    sample: Sample,
    exposure: ExposureCurve | None,
    name: str,
    value: float | None,
    unit: str,
    *,
    kinds: tuple[FigureKind, ...] = (),
    within: Interval | None = None,
) -> Figure:
    """A figure of the sample with what it was counted from."""
    grouping = f", grouped by {sample.rule}" if sample.rule else ""
    return Figure(
        name=name,
        value=value,
        unit=unit,
        kind=weakest(kinds or (sample.kind,)),
        kinds=kinds or (sample.kind,),
        interval=within,
        n=sample.count,
        exposure=exposure.words if exposure else EXPOSURE_UNKNOWN,
        source=f"{sample.source or 'ledger'}: {sample.layer}{grouping}",
        as_of_us=sample.as_of_us,
    )
