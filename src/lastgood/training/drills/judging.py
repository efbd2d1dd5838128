"""What became of each injected fault: the injector's log laid beside the ledger.

The two were written by processes that do not know of each other. A fault belongs to the first incident whose
detection follows its injection and comes before the next one; whatever has no incident went undetected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.clock import SystemClock
from lastgood.faults.spec import IN_STEP, ON_SNAPSHOT, FaultKind
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.incident import Incident, fold_incidents, is_accepted

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.faults.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """One injected fault and what the records say about it."""

    fault: str
    kind: str
    rank: int | None
    injected_us: int | None
    """Wall time of the injection; None when it was never carried out."""
    incident: Incident | None
    is_state_dropped: bool = False
    """A state was found wrong and not built upon."""

    @property
    def detected_us(self) -> int | None:
        """From the injection to the detection."""
        if self.incident is None or self.incident.detected_us is None or self.injected_us is None:
            return None
        return self.incident.detected_us - self.injected_us

    @property
    def recovered_us(self) -> int | None:
        """From the injection to the moment when new steps were allowed again, verification included."""
        if self.incident is None or self.incident.closed_us is None or self.injected_us is None:
            return None
        return self.incident.closed_us - self.injected_us

    @property
    def is_culprit_right(self) -> bool:
        """True when exactly the rank that was hit is named."""
        return self.incident is not None and self.incident.ranks == (self.rank,)

    @property
    def has_held(self) -> bool:
        """Detected, the right rank named, recovered and verified; a corrupt snapshot must also have been refused."""
        incident = self.incident
        return (
            incident is not None
            and self.is_culprit_right
            and incident.outcome == "recovered"
            and incident.verification is not None
            and is_accepted(incident.verification)
            and (self.is_state_dropped or self.kind not in ON_SNAPSHOT)
            and (
                incident.lost_steps == 0 or self.kind not in {FaultKind.SIGKILL, FaultKind.SIGSTOP}
            )
        )


def judge(log: Path, events: Sequence[Event], *, tape: Tape) -> tuple[FaultOutcome, ...]:
    """Return one outcome for each fault of the tape, also for those that were never carried out."""
    fired = _fired(log)
    incidents = [i for i in fold_incidents(events) if not i.is_planned]
    dropped = {
        event.incident
        for event in events
        if event.kind == "state.trust" and event.body.get("state") in {"suspect", "tainted"}
    }
    instants = sorted(at_us for at_us in fired.values())
    outcomes = []
    for fault in tape.expanded():
        if fault.kind in IN_STEP:
            continue
        at_us = fired.get(fault.id)
        following = next((t for t in instants if at_us is not None and t > at_us), None)
        mine = next(
            (
                i for i in incidents
                if at_us is not None and i.detected_us is not None and i.detected_us >= at_us
                and (following is None or i.detected_us < following)
            ),
            None,
        )  # fmt: skip
        outcomes.append(
            FaultOutcome(
                fault=fault.id,
                kind=fault.kind.value,
                rank=fault.target.rank,
                injected_us=at_us,
                incident=mine,
                is_state_dropped=mine is not None and mine.id in dropped,
            )
        )
    return tuple(outcomes)


def _fired(log: Path) -> dict[str, int]:
    """Fault -> wall time of its injection."""
    # The injector is ended by SIGKILL: what stands behind the last line break is no record.
    *lines, _ = log.read_text().split("\n") if log.exists() else [""]
    records = [json.loads(line) for line in lines]
    return {r["fault"]: r["wall_us"] for r in records if r.get("outcome") == "fired"}


def annotations(
    outcomes: Sequence[FaultOutcome], events: Sequence[Event], *, is_bitwise_equal: bool, steps: int
) -> list[Event]:
    """Return the events that say which incidents were caused on purpose, and how the twin compares."""
    first = events[0]
    clock = SystemClock()
    common = {
        "run": first.run,
        "attempt": max(e.attempt or 1 for e in events),
        "versions": events[-1].versions,
        "topology": first.topology,
    }
    made = []
    for outcome in outcomes:
        links = {"incident": outcome.incident.id} if outcome.incident is not None else None
        body = {
            "injected": True,
            "fault": outcome.fault,
            "fault_kind": outcome.kind,
            "injected_wall_us": outcome.injected_us,
            "culprit_right": outcome.is_culprit_right,
        }
        made.append(new_event("annotation", clock=clock, links=links, body=body, **common))
    text = f"final weights after {steps} steps compared with an undisturbed run in plain torch"
    twin = "equal" if is_bitwise_equal else "different"
    made.append(
        new_event(
            "annotation", clock=clock, body={"text": text, "twin": twin, "steps": steps}, **common
        )
    )
    return made
