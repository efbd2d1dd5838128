"""A real job of four ranks under its supervisor, broken by a tape, beside an undisturbed twin: once per module."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lastgood.base.clock import SystemClock
from lastgood.base.figures import FigureKind
from lastgood.faults.spec import IN_STEP, Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape, write_tape
from lastgood.ledger.event import Event
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.signals.limits import Limits
from lastgood.training.drills.live import DrillOptions, DrillResult, run_drill
from lastgood.training.drills.play import SCRIPT
from lastgood.training.options import RunOptions
from lastgood.training.states.striping import SnapshotForm
from lastgood.training.supervising.supervisor import Supervisor

JOB = SCRIPT
RANKS = 4
HANG_AFTER_US = 1_000_000
PACE_MS = 40
FIRST_STEP, SETTLE_STEPS = 8, 8


@dataclass(frozen=True)
class Drilled:
    """Everything that a broken run left behind."""

    result: DrillResult
    events: list[Event]
    incidents: list[Incident]
    ledger: Path

    def incident_of(self, name: str) -> Incident:
        """The incident that the injected fault of that name led to."""
        outcome = next(fault for fault in self.result.faults if fault.fault == name)
        assert outcome.incident is not None, f"{name} was not detected"
        return outcome.incident

    def incident_with(self, *, symptom: str, rank: int) -> Incident:
        """The incident with that symptom of that rank (for faults that only the step itself can have)."""
        (found,) = [i for i in self.incidents if i.symptom == symptom and i.ranks == (rank,)]
        return found

    def events_of(self, incident: Incident, kind: str) -> list[Event]:
        """Events of one kind that belong to an incident."""
        return [e for e in self.events if e.kind == kind and e.incident == incident.id]


def fault(name: str, kind: FaultKind, rank: int, **options: object) -> Fault:
    """A fault that waits until the run has recovered from the one before and a spare is parked."""
    when = When(step=FIRST_STEP, after_recovered=True, settle_steps=SETTLE_STEPS)
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=when, **options)


def in_step(name: str, kind: FaultKind, rank: int, *, step: int) -> Fault:
    """A fault that the step itself has."""
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=When(step=step))


def tape_of(*faults: Fault) -> Tape:
    """A tape typed by hand."""
    return Tape(
        faults=faults, seed=1, provenance=Provenance(kind=FigureKind.ASSUMED, source="a test")
    )


def drill(
    folder: Path,
    *faults: Fault,
    spares: int = 1,
    job: Path = JOB,
    ranks: int = RANKS,
    snapshots: SnapshotForm = SnapshotForm.AUTO,
    on_turn: Callable[[Supervisor], None] | None = None,
) -> Drilled:
    """Run the job, break it, run its twin, and read what the ledger says."""
    # A fault of the step that waits for a recovery is armed by the injector, so it stands on both tapes.
    tape = tape_of(*(f for f in faults if f.kind not in IN_STEP or f.when.after_recovered))
    inside = folder / "in-step-tape.jsonl"
    write_tape(tape_of(*(f for f in faults if f.kind in IN_STEP)), inside)
    ledger = folder / "ledger.db"
    options = RunOptions(
        script=job,
        arguments=("--steps", "100000", "--pace-ms", str(PACE_MS), "--out", str(folder)),
        ranks=ranks,
        spares=spares,
        run_id=f"test-{folder.name}-{os.getpid()}",
        ledger=ledger,
        snapshots=snapshots,
        limits=Limits(step_floor_us=HANG_AFTER_US, warmup_floor_us=60_000_000),
        mode="drill",
        tape=inside if any(f.kind in IN_STEP for f in faults) else None,
        log_dir=folder / "logs",
    )
    result = run_drill(DrillOptions(run=options, tape=tape, folder=folder), on_turn=on_turn)
    with open_store(ledger, create=False) as store:
        events = list(store.events())
    return Drilled(result, events, fold_incidents(events), ledger)


def wait_until(condition, *, limit_s: float = 100) -> None:
    """Look until it is so; fail when the time is up."""
    clock = SystemClock()
    deadline_us = clock.monotonic_us() + int(limit_s * 1e6)
    while not condition():
        assert clock.monotonic_us() < deadline_us, "it did not happen in time"
        clock.sleep_us(50_000)


def lives(pid: int) -> bool:
    """Whether a process still runs: one that has ended and was not waited for has no environment."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    return False


def assert_recovered_in_order(incident: Incident) -> None:
    """Every time is there and none is before the one that it follows; the restored state was reproduced bit for bit."""
    times = [
        incident.onset_us, incident.detected_us, incident.diagnosed_us, incident.isolated_us,
        incident.restored_us, incident.verified_us, incident.closed_us,
    ]  # fmt: skip
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert incident.outcome == "recovered"
    assert incident.verification is not None
    assert incident.verification.result == "equal"


def assert_ledger_holds(ledger: Path) -> None:
    """The ledger verifies to its last byte."""
    assert verify_ledger(ledger).ok
