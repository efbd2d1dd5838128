"""Small fleets in a ledger: imported failures with known counts, repairs, causes and exposure, all made up.

`fleet` is the fixture that is always there. It has a constant pooled rate made of a rising and a falling part, repairs
that do not hold, one burst over many hosts, one open incident, an injected fault and a planned stop.
"""

from __future__ import annotations

import math
from pathlib import Path

from lastgood.base.clock import ManualClock
from lastgood.base.units import US_PER_DAY, US_PER_H
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.store import open_store

BEGIN_US = 1_700_000_000_000_000
DAYS = 100
NODES = 40
BURST_DAY = 61.5
CLOCK = ManualClock(BEGIN_US)


def at_us(day: float) -> int:
    return BEGIN_US + round(day * US_PER_DAY)


class Fleet:
    """Collects events; `write` puts them into a ledger."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.count = 0

    def add(self, kind: str, day: float, **fields) -> None:
        number = len(self.events)
        self.events.append(
            new_event(kind, clock=CLOCK, id=f"made-{number:06d}", t_occurred_us=at_us(day), t_observed_us=at_us(day), **fields)
        )  # fmt: skip

    def covers(self, begin: float, end: float, *, is_declared: bool = True, **more) -> None:
        said = {"begin_us": at_us(begin), "end_us": at_us(end), "format": "made", "declared": is_declared}  # fmt: skip
        self.add("annotation", begin, body={"coverage": said, **more})

    def fault(
        self,
        day: float,
        host: str,
        cause: str,
        *,
        label: str = "",
        hours: float | None = 6.0,
        class_: str = "fail_stop",
        injected: bool | None = None,
        **close,
    ) -> None:
        """One fault with a declared incident; `hours` None leaves it open."""
        self.count += 1
        name = f"made:{self.count:05d}"
        domain = [{"kind": "host", "id": host}]
        body: dict = {"label": label} if label else {}
        if injected is not None:
            body["injected"] = injected
        status = "unknown" if cause == "unknown" else "supported"
        self.add(
            "incident.open", day, class_=class_, cause=cause, cause_status=status, domain=domain, incident=name, body=body,
            source={"importer": "made", "version": "1"},
        )  # fmt: skip
        if hours is not None:
            self.add("incident.close", day + hours / 24, domain=domain, incident=name, **close)

    def joins(self, day: float, host: str, devices: int) -> None:
        self.add("exposure.join", day, devices=devices, domain=[{"kind": "host", "id": host}])

    def leaves(self, day: float, host: str, devices: int) -> None:
        self.add("exposure.leave", day, devices=devices, domain=[{"kind": "host", "id": host}])

    def write(self, path: Path) -> Path:
        with open_store(path, clock=CLOCK) as store:
            store.append(sorted(self.events, key=lambda e: e.t_occurred_us))
        return path


def host(number: int) -> str:
    return f"gpu-{number:04d}"


def fleet(*, with_exposure: bool = False) -> Fleet:
    """120 faults in 100 days on 40 hosts: 60 GPU faults that come ever faster, 60 cable faults ever slower."""
    made = Fleet()
    made.covers(0, DAYS)
    for i in range(60):
        share = (i + 0.5) / 60
        # A power law of 2 in either direction: the count up to day t is 60 (t/100)^2, and the mirror image of it.
        rising, falling = DAYS * math.sqrt(share), DAYS * (1 - math.sqrt(1 - share))
        made.fault(
            min(rising, DAYS - 0.01), host(7 * i % NODES), "gpu.memory", label="Hardware/GPU/ecc"
        )
        made.fault(falling, host((11 * i + 3) % NODES), "network.cable", label="Hardware/Cable/crc")
    return _with_exposure(made) if with_exposure else made


def troubled(*, with_exposure: bool = False) -> Fleet:
    """The same with everything that a report has to keep apart."""
    made = fleet()
    for i in range(
        12
    ):  # repairs that do not hold: the same host again three hours after its repair
        made.fault(5 + 7 * i, host(39), "gpu.bus", label="Hardware/GPU/bus", hours=2)
        made.fault(5 + 7 * i + 5 / 24, host(39), "gpu.bus", label="Hardware/GPU/bus", hours=2)
    for i in range(8):  # one switch takes eight hosts with it
        made.fault(BURST_DAY, host(i), "unknown", label="Other/Unknown/none", hours=1)
    made.fault(99.5, host(20), "unknown", label="Other/Unknown/none", hours=None)
    made.fault(50, host(1), "gpu.memory", injected=True)
    made.add("planned.begin", 70, incident="planned:1", class_="planned")
    made.add("planned.end", 70.1, incident="planned:1", class_="planned")
    return _with_exposure(made) if with_exposure else made


def few() -> Fleet:
    """Six faults: too few to test anything."""
    made = Fleet()
    made.covers(0, 54)
    for i in range(6):
        made.fault(4 + 8 * i, host(i), "gpu.compute", class_="sdc", hours=20)
    return made


def _with_exposure(made: Fleet) -> Fleet:
    for i in range(NODES):
        made.joins(0, host(i), 8)
        made.leaves(DAYS, host(i), 8)
    return made


HOURS = DAYS * 24
DEVICE_HOURS = NODES * 8 * HOURS
assert US_PER_H * 24 == US_PER_DAY
