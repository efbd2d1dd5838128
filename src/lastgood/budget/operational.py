"""Operational time: the clock that runs as fast as devices are at risk.

When a fleet doubles, events double, and every trend test on the calendar calls that a failing fleet. On the clock of
cumulative exposure (device-hours) a constant rate per device stays a constant rate, so all tests apply unchanged.

Source: transformation of a Poisson process by its cumulative exposure; Cox and Lewis (1966), chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureCurve:
    """Devices (or runs) at risk over the window, constant between edges. Make one with `constant` or `from_steps`."""

    edges_h: np.ndarray
    """Hours from the window's start: k + 1 values, the first 0, the last the window's length."""
    devices: np.ndarray
    """At risk between two edges: k values; 0 where nothing was, or where it is not known."""
    unit: str = "device-h"
    """`device-h` for hardware, `run-h` for what stops a job."""
    source: str = ""
    """Where the denominator comes from, such as `join and leave records` or `--devices 400`."""
    is_assumed: bool = False
    """True when a person typed it: rates on it are then modelled, not measured."""

    @property
    def window_h(self) -> float:
        """Length of the window."""
        return float(self.edges_h[-1])

    @property
    def total(self) -> float:
        """Exposure over the whole window, in `unit`."""
        return float((self.devices * (self.edges_h[1:] - self.edges_h[:-1])).sum())

    @property
    def is_constant(self) -> bool:
        """True when the count never changes: operational time is then calendar time."""
        return bool((self.devices == self.devices[0]).all())

    @property
    def words(self) -> str:
        """The exposure as a person says it."""
        lo, hi = float(self.devices.min()), float(self.devices.max())
        what = {"device-h": "devices", "node-h": "nodes"}.get(self.unit, "runs")
        span = f"{hi:,.0f} {what}" if lo == hi else f"{lo:,.0f} to {hi:,.0f} {what}"
        return f"{self.total:,.0f} {self.unit} ({span} over {self.window_h:,.1f} h)"

    def until(self, hours: ArrayLike) -> np.ndarray:
        """Exposure from the window's start to these hours: operational time, in `unit`."""
        import numpy as np

        steps = np.concatenate(([0.0], np.cumsum(self.devices * np.diff(self.edges_h))))
        return np.interp(np.asarray(hours, dtype=np.float64), self.edges_h, steps)


def constant(
    devices: float,
    *,
    window_h: float,
    unit: str = "device-h",
    source: str = "",
    is_assumed: bool = False,
) -> ExposureCurve:
    """A count that does not change over the window."""
    import numpy as np

    if not (devices > 0 and window_h > 0):
        raise BadInput(
            "exposure needs devices and a window",
            found=f"{devices} over {window_h} h",
            needs="more than 0 of both",
        )
    return ExposureCurve(
        edges_h=np.array([0.0, window_h]),
        devices=np.array([float(devices)]),
        unit=unit,
        source=source,
        is_assumed=is_assumed,
    )


def from_steps(
    t_us: np.ndarray,
    devices: np.ndarray,
    *,
    begin_us: int,
    end_us: int,
    unit: str = "device-h",
    source: str = "join and leave records",
) -> ExposureCurve:
    """From the ledger's steps: `devices[i]` are at risk from `t_us[i]` to the next step; before the first, none."""
    import numpy as np

    if end_us <= begin_us:
        raise BadInput("a window has an end after its start", found=f"{begin_us} to {end_us}")
    t_us = np.asarray(t_us, dtype=np.int64)
    inside = (t_us > begin_us) & (t_us < end_us)
    before = np.flatnonzero(t_us <= begin_us)
    first = float(devices[before[-1]]) if len(before) else 0.0
    edges_us = np.concatenate(([begin_us], t_us[inside], [end_us]))
    return ExposureCurve(
        edges_h=(edges_us - begin_us) / 3.6e9,
        devices=np.concatenate(([first], np.asarray(devices, dtype=np.float64)[inside])),
        unit=unit,
        source=source,
    )
