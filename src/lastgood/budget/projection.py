"""A rate carried to another number of devices: never a bare number, and often refused.

"If every interrupting hazard scales linearly with devices and nothing else changes" is a condition that real fleets
break: one operator's own rate gives 28.8 h at 1,024 GPUs where 7.9 h was measured. So a projection carries its
condition, its source window, its exposure, its extrapolation factor and, where the records allow it, a back-test: the
same arithmetic inside the records, next to what was measured there.

Refused: a factor above 10 without consent, a rate whose exposure nobody knows, faults that were injected, and
simulated figures. None of these is incidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.base.errors import BadInput, Refused
from lastgood.base.figures import Figure, FigureKind, Interval, combine, project
from lastgood.base.units import format_duration, format_number
from lastgood.budget.intervals import garwood

CONDITION = "every interrupting hazard scales linearly with devices and nothing else changes"
FACTOR_MAX = 10.0
ACCEPT_EXTRAPOLATION = "extrapolation"
LEVEL = 0.95
EVENTS_MIN = 10
"""Events below which a back-test says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSource:
    """What is projected: a mean time between interruptions at a known number of devices."""

    mean_time: Figure
    """Mean time between interruptions while `devices` were at risk, in microseconds."""
    devices: float
    """Devices at risk, averaged over the window."""
    devices_max: float
    """Most devices at risk at once: beyond this the projection leaves what was observed,"""
    devices_min: float
    """and below this too."""
    window: str
    """Such as `54 d on 16384 devices`."""
    exposure: str
    """Such as `884736 device-d`."""
    is_injected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTest:
    """The same arithmetic where the answer is known."""

    devices: float
    projected: Figure
    measured: Figure
    ratio: Figure
    """Projected over measured mean time: above 1, the projection was too hopeful."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A mean time between interruptions at another size, with all that it must not be shown without."""

    mean_time: Figure
    devices: float
    source: RateSource
    back_tests: tuple[BackTest, ...]
    no_back_test: str
    """Why there is none; empty when there is one."""


def project_mean_time(
    source: RateSource,
    *,
    devices: float,
    accepted: Sequence[str] = (),
    back_tests: Sequence[BackTest] = (),
    no_back_test: str = "the records hold one size only",
    where: str = "--devices",
    consent: str = f"--accept {ACCEPT_EXTRAPOLATION} to take it all the same",
) -> Projection:
    """Carry a rate to this number of devices, which came from `where`; `consent` is how to insist.

    Raises:
        Refused: see the module's text; the message says what would be needed.
    """
    _refuse_what_is_no_rate(source)
    if not devices > 0:
        raise BadInput("a job has devices", found=str(devices), needs="more than 0")
    factor = extrapolation_factor(devices, source)
    if factor > FACTOR_MAX and ACCEPT_EXTRAPOLATION not in accepted:
        raise Refused(
            "this leaves what was observed too far behind",
            where=where,
            found=f"{devices:,.0f} devices, a factor of {format_number(factor)} beyond {_sizes(source)} of the source",
            needs=f"at most {FACTOR_MAX:g} times",
            next=consent,
        )
    return Projection(
        mean_time=_projected(source, devices, factor),
        devices=devices,
        source=source,
        back_tests=tuple(back_tests),
        no_back_test="" if back_tests else no_back_test,
    )


def extrapolation_factor(devices: float, source: RateSource) -> float:
    """How far the size lies outside of what was observed, upward or downward, as a factor of at least 1."""
    return max(1.0, devices / source.devices_max, source.devices_min / devices)


def _sizes(source: RateSource) -> str:
    low, high = source.devices_min, source.devices_max
    return f"the {high:,.0f} devices" if low == high else f"the {low:,.0f} to {high:,.0f} devices"


def source_of_count(
    *,
    events: int,
    window_us: float,
    devices: float | None,
    kind: FigureKind = FigureKind.ASSUMED,
    source: str = "typed",
    sizes: tuple[float, float] | None = None,
) -> RateSource:
    """The source of a rate from a count in a window.

    Raises:
        Refused: the number of devices at risk is not known: a count per job says nothing about a device.
        BadInput: no events, or no window.
    """
    if devices is None:
        raise Refused(
            "a count without exposure gives no law per device",
            found=f"{events} events and no number of devices at risk",
            needs="how many devices were at risk in that window",
            next="give --source-devices, or a ledger with join and leave records",
        )
    if events < 1 or not window_us > 0 or not devices > 0:
        raise BadInput(
            "a rate needs events, a window and devices",
            found=f"{events} events, {format_duration(window_us)}, {devices:,.0f} devices",
            needs="all above zero",
        )
    rate = garwood(events, window_us, level=LEVEL)
    days = window_us / 86_400e6
    window = f"{format_number(days)} d on {devices:,.0f} devices"
    mean = Figure(
        name="mean time between interruptions",
        value=window_us / events,
        unit="us",
        kind=kind,
        interval=Interval(lo=1 / rate.hi, hi=1 / rate.lo, level=LEVEL, method="exact Poisson"),
        n=events,
        source=source,
        exposure=f"{devices * days:,.0f} device-d",
    )
    return RateSource(
        mean_time=mean,
        devices=devices,
        devices_min=sizes[0] if sizes else devices,
        devices_max=sizes[1] if sizes else devices,
        window=window,
        exposure=f"{devices * days:,.0f} device-d",
    )


def back_test(source: RateSource, *, devices: float, measured: Figure) -> BackTest:
    """Project to a size at which the answer is known, and say how far off it is."""
    projected = _projected(source, devices, extrapolation_factor(devices, source))
    ratio = combine(
        [projected, measured],
        lambda a, b: a / b,
        name="projected over measured",
        unit="",
        source="back-test",
    )
    assert ratio.value is not None
    factor = float(ratio.value)
    off = factor if factor >= 1 else 1 / factor
    hopeful = "too hopeful" if factor >= 1 else "too gloomy"
    return BackTest(
        devices=devices,
        projected=projected,
        measured=measured,
        ratio=ratio,
        sentence=f"at {devices:,.0f} devices the same arithmetic is {hopeful} by a factor of {off:.2g}",
    )


def _projected(source: RateSource, devices: float, factor: float) -> Figure:
    scale = source.devices / devices
    interval = source.mean_time.interval
    if interval is not None:
        interval = Interval(
            lo=interval.lo * scale,
            hi=interval.hi * scale,
            level=interval.level,
            method=f"{interval.method}; covers the count alone, not the condition",
        )
    return project(
        source.mean_time,
        lambda value: value * scale,
        name=f"mean time between interruptions at {devices:,.0f} devices",
        unit="us",
        condition=CONDITION,
        source_window=f"{source.window}, exposure {source.exposure}",
        extrapolation=factor,
        source="linear scaling of the rate",
        interval=interval,
    )


def _refuse_what_is_no_rate(source: RateSource) -> None:
    if source.is_injected:
        raise Refused(
            "faults that were injected are not a rate",
            found="incidents that somebody caused on purpose",
            needs="failures that happened in the field",
            next="import the logs of real operation: lastgood import PATH...",
        )
    if FigureKind.SIMULATED in source.mean_time.kinds:
        raise Refused(
            "a simulated figure is not a rate",
            found=f"kind {source.mean_time.kind}",
            needs="a measured or reported count",
        )
