"""The faults beside SIGKILL and SIGSTOP, for lastgood alone: drills of its catalogue, played against the job of the bench.

A drill says which faults, against which ranks, and whom the records have to name. The ranks move on by one with every
run. When a fault happened is read from the log of whoever carried it out: the injector, or the rank itself.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec

from lastgood.base.figures import FigureKind
from lastgood.faults.in_step import LOG_NAME
from lastgood.faults.spec import IN_STEP, Fault, FaultKind, When
from lastgood.faults.tape import Provenance, Tape, write_tape
from lastgood.training.drills.catalogue import all_drills
from lastgood.training.drills.drill import Drill, Expectation, JobSettings, Outcome, a_fault

STEPS_BEFORE = 25
"""As for the signals: the job has settled."""
TAPE, INJECTOR_LOG = "tape.jsonl", "injector.jsonl"
_TWO_IN_A_SECOND = Drill(
    name="two-in-a-second",
    group="deaths",
    title="two ranks are killed one behind the other within a second, two spares are parked",
    faults=(
        a_fault(FaultKind.SIGKILL, 1, name="first"),
        a_fault(FaultKind.SIGKILL, 3, name="second", when=When(step=STEPS_BEFORE + 5)),
    ),
    expect=Expectation(outcome=Outcome.RECOVERED, ranks=(1, 3)),
    run=JobSettings(spares=2),
)
_NAMES = (
    "exception", "exit-0", "nan-gradient", "flip-parameter", "flip-snapshot", "deadlock", "spin", "slow", "die-restoring",
    "two-in-a-second", "two-at-once", "kill-supervisor", "full-ledger", "full-disk",
)  # fmt: skip
OTHERS: dict[str, Drill] = {
    drill.name: drill
    for name in _NAMES
    for drill in (*all_drills(), _TWO_IN_A_SECOND)
    if drill.name == name
}
"""Name of the fault -> its drill, in the order of the table."""
LIMITS = {
    "process_exit": "its end is seen",
    "exception": "it is told",
    "nonfinite": "before the update",
    "replica_divergence": "digests of every step",
    "hang": "1 s without progress",
    "slow": "the loss exceeds the cost of acting",
}
"""Symptom -> what detection waits for. A rank that spins wants a processor and may be starved, so it has four limits."""


def placed(name: str, run: int, world: int) -> Drill:
    """The drill of one run: other ranks each time, and no fault before the job has settled."""
    drill = OTHERS[name]
    move = lambda rank: (rank + run) % world  # noqa: E731
    faults = [
        msgspec.structs.replace(
            fault,
            target=msgspec.structs.replace(fault.target, rank=move(fault.target.rank or 0)),
            when=_settled(fault.when),
        )
        for fault in drill.faults
    ]
    ranks = tuple(sorted(move(rank) for rank in drill.expect.ranks or ()))
    return dataclasses.replace(
        drill, faults=tuple(faults), expect=dataclasses.replace(drill.expect, ranks=ranks)
    )


def _settled(when: When) -> When:
    if when.step is None:
        return when
    return msgspec.structs.replace(when, step=max(when.step, STEPS_BEFORE))


def write_faults(drill: Drill, folder: Path) -> Path:
    """The tape of a drill."""
    provenance = Provenance(kind=FigureKind.ASSUMED, source=f"bench: {drill.title}")
    write_tape(Tape(faults=drill.faults, seed=0, provenance=provenance), folder / TAPE)
    return folder / TAPE


def injections(drill: Drill, folder: Path, run_folder: Path) -> dict[str, int]:
    """Fault -> monotonic time, as far as they have happened.

    Raises:
        RuntimeError: one could not be carried out.
    """
    done: dict[str, int] = {}
    wanted: dict[str, Fault] = {fault.id: fault for fault in drill.faults}
    for path in (folder / INJECTOR_LOG, run_folder / "faults" / LOG_NAME):
        *lines, _ = path.read_text().split("\n") if path.exists() else [""]
        for record in map(json.loads, lines):
            fault, outcome = wanted.get(record.get("fault")), record.get("outcome")
            if fault is None or (fault.kind in IN_STEP and outcome in {"left_to_step", "armed"}):
                continue
            if outcome != "fired":
                raise RuntimeError(f"{fault.id} was not injected: {record.get('detail')}")
            done[fault.id] = record["monotonic_us"]
    return done
