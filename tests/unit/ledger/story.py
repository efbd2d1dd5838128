"""A made-up run, told second by second: what the tests of wall time and incidents read."""

from __future__ import annotations

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Event, new_event
from tests.unit.ledger.cases import START_US, S


def us(seconds: float) -> int:
    return START_US + round(seconds * S)


class Story:
    """Appends events at given seconds after the start."""

    def __init__(self, run: str = "r1") -> None:
        self.run = run
        self.attempt = 1
        self.events: list[Event] = []

    def tell(self, kind: str, at: float, **fields) -> Event:
        fields.setdefault("attempt", self.attempt)
        fields.setdefault("t_occurred_us", us(at))
        event = new_event(
            kind, clock=ManualClock(us(at)), run=self.run, id=f"e{len(self.events):04}", **fields
        )
        self.events.append(event)
        return event

    def start(self, at: float = 0) -> Story:
        self.tell("run.start", at)
        return self

    def end(self, at: float) -> Story:
        self.tell("run.end", at)
        return self

    def new_attempt(self, at: float) -> Story:
        self.attempt += 1
        self.tell("attempt.start", at)
        return self

    def steps(self, first: int, last: int, began: float, *, each: float = 10) -> Story:
        ended = [us(began + each * n) for n in range(1, last - first + 2)]
        body = {"first": first, "last": last, "began_us": us(began), "ended_us": ended}
        self.tell("step", began + each * (last - first + 1), body=body)
        return self

    def incident(
        self, name: str, *, onset: float, detect: float, diagnose: float, isolate: float, begin: float,
        restore: float, verify: float, close: float, target: int | None = None, **fields,
    ) -> Story:  # fmt: skip
        """A whole incident; the seconds are absolute."""
        fields = {"class_": "fail_stop", "symptom": "process_exit", "ranks": [2]} | fields
        self.tell("incident.open", detect, incident=name, t_occurred_us=us(onset), **fields)
        self.tell("detect", detect, incident=name, t_occurred_us=us(onset))
        self.tell("diagnose", diagnose, incident=name, body={"culprits": [2]})
        self.tell(
            "isolate", isolate, incident=name, body={"killed": ["w2"], "parked": ["w0", "w1", "w3"]}
        )
        self.tell("restore.begin", begin, incident=name)
        self.tell(
            "restore", restore, incident=name, body={"step": (target or 1) - 1, "tier": "slot"}
        )
        self.tell(
            "verify", verify, incident=name, verification={"test": "replay", "result": "equal"},
            body={} if target is None else {"target": target},
        )  # fmt: skip
        self.tell(
            "incident.close", close, incident=name, body={"outcome": "recovered", "lost_steps": 0}
        )
        return self
