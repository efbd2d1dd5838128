"""What was at risk, and for how long: the denominator of every rate.

A count without exposure compares nothing: five failures among eight devices in a day and five among eight thousand
in a month are not the same rate. Exposure is the integral of devices at risk over time, from the join and leave
records; a device whose leave was never written is closed by a rule, and the part that rests on the rule is counted
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lastgood.base.figures import Figure, measured
from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, in_effect, time_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """Some devices at risk from one moment to another."""

    key: str
    """Run and worker (or device) that joined."""
    devices: int
    start_us: int
    end_us: int
    is_inferred: bool = False
    """The record of one end is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Devices at risk over a window."""

    stretches: tuple[AtRisk, ...]
    device_us: int
    """Sum of devices times time."""
    inferred_device_us: int
    """The part of it whose join or leave was never written."""
    devices_max: int
    """Most devices at risk at once."""
    as_of_us: int

    def figure(self) -> Figure:
        """Device-hours at risk, measured."""
        return measured(
            "exposure",
            self.device_us / 3_600_000_000,
            "device-h",
            n=len(self.stretches),
            exposure=f"{self.devices_max} devices at most",
            source="join and leave records of the ledger"
            + (
                f"; {format_duration(self.inferred_device_us)} of device time closed by rule"
                if self.inferred_device_us
                else ""
            ),
            as_of_us=self.as_of_us,
        )

    def device_us_within(self, start_us: int, end_us: int) -> int:
        """Devices times time inside a part of the window."""
        return sum(
            s.devices * max(0, min(s.end_us, end_us) - max(s.start_us, start_us))
            for s in self.stretches
        )


def measure_exposure(
    events: Iterable[Event],
    *,
    as_of_us: int,
    run: str | None = None,
    window: tuple[int, int] | None = None,
) -> Exposure:
    """Devices at risk in the window (default: all of the records up to `as_of_us`), of one run or of all."""
    ordered = [e for e in in_effect(events) if run is None or e.run == run]
    stretches = _stretches(ordered, as_of_us)
    start_us, end_us = window or (min((s.start_us for s in stretches), default=0), as_of_us)
    clipped = [
        AtRisk(
            key=s.key,
            devices=s.devices,
            start_us=max(s.start_us, start_us),
            end_us=min(s.end_us, end_us),
            is_inferred=s.is_inferred,
        )
        for s in stretches
        if min(s.end_us, end_us) > max(s.start_us, start_us)
    ]
    total = lambda part: sum(s.devices * (s.end_us - s.start_us) for s in part)  # noqa: E731
    return Exposure(
        stretches=tuple(clipped),
        device_us=total(clipped),
        inferred_device_us=total([s for s in clipped if s.is_inferred]),
        devices_max=_most(clipped),
        as_of_us=as_of_us,
    )


def _stretches(events: Sequence[Event], as_of_us: int) -> list[AtRisk]:
    """Pairs every join with its leave; what has none is closed by the next join of the key, its run's end, or `as_of`."""
    ends: dict[str | None, int] = {e.run: time_of(e) for e in events if e.kind == EventKind.RUN_END}
    starts: dict[str | None, int] = {}
    joined: dict[str, Event] = {}
    found: list[AtRisk] = []

    def close(key: str, join: Event, end_us: int, *, is_inferred: bool) -> None:
        begin_us = time_of(join)
        if end_us > begin_us:
            found.append(
                AtRisk(
                    key=key,
                    devices=1 if join.devices is None else join.devices,
                    start_us=begin_us,
                    end_us=end_us,
                    is_inferred=is_inferred,
                )
            )

    for event in events:
        starts.setdefault(event.run, time_of(event))
        key = _key(event)
        if event.kind == EventKind.EXPOSURE_JOIN:
            if key in joined:
                close(key, joined[key], time_of(event), is_inferred=True)
            joined[key] = event
        elif event.kind == EventKind.EXPOSURE_LEAVE:
            join = joined.pop(key, None)
            if join is not None:
                close(key, join, time_of(event), is_inferred=False)
            else:
                _add_without_join(found, event, key, starts[event.run])
    for key, join in joined.items():
        end_us = ends.get(join.run)
        # A run that is still going is measured up to now; that is no guess.
        is_over = end_us is not None and end_us >= time_of(join)
        close(key, join, end_us if is_over else as_of_us, is_inferred=is_over)
    return found


def _add_without_join(found: list[AtRisk], leave: Event, key: str, begin_us: int) -> None:
    """A leave without a join was at risk since its run began, or since the same key was last seen."""
    begin_us = max([begin_us, *(s.end_us for s in found if s.key == key)])
    if time_of(leave) > begin_us:
        found.append(
            AtRisk(
                key=key,
                devices=1 if leave.devices is None else leave.devices,
                start_us=begin_us,
                end_us=time_of(leave),
                is_inferred=True,
            )
        )


def _key(event: Event) -> str:
    who = event.body.get("worker")
    if who is None and event.domain:
        who = ",".join(f"{d.kind}:{d.id}" for d in event.domain)
    if who is None:
        who = event.body.get("rank", "all")
    return f"{event.run or '-'}/{who}"


def _most(stretches: Sequence[AtRisk]) -> int:
    # At one instant leaves come first: a device handed over is not two devices.
    changes = sorted(
        [(s.end_us, 0, -s.devices) for s in stretches]
        + [(s.start_us, 1, s.devices) for s in stretches]
    )
    most = now = 0
    for _, _, change in changes:
        now += change
        most = max(most, now)
    return most
