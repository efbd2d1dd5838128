"""Faults that only the step itself can have: an exception, a gradient with NaN.

A training script (of a test or a drill) asks before each step; nobody else can raise inside it. Each fault
happens once in the whole run, also when its rank is served by another process afterwards and the step is
replayed: the mark that it has happened is a file, created exclusively.

A fault that waits for the recovery of the one before (`after_recovered`) cannot be timed from inside a rank: the
injector arms it, by a file, and the next step of the rank has it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lastgood.base.canonical import sha256_hex
from lastgood.base.clock import Clock
from lastgood.faults.spec import IN_STEP, Fault, FaultKind
from lastgood.faults.tape import Tape

LOG_NAME = "in_step.jsonl"


def arm(fault: Fault, mark_dir: Path) -> None:
    """Let the rank have the fault in its next step."""
    (mark_dir / f"armed-{_name_of(fault)}").touch(mode=0o600)


def _name_of(fault: Fault) -> str:
    return sha256_hex(fault.id.encode("utf-8", "surrogatepass"))[:32]


class StepFaults:
    """The faults that one rank has to have."""

    def __init__(self, tape: Tape, *, rank: int, mark_dir: Path, clock: Clock) -> None:
        """Keep the rank's own faults; `mark_dir` is shared by all processes of the run."""
        self._rank, self._mark_dir, self._clock = rank, mark_dir, clock
        self._faults = [
            fault
            for fault in tape.expanded()
            if fault.kind in IN_STEP and fault.target.rank == rank and fault.when.step is not None
        ]
        mark_dir.mkdir(parents=True, exist_ok=True)

    def due(self, step: int) -> Fault | None:
        """The fault that this step has to have, once; None for every other call.

        Only one fault of one step is given: a step that raises has no second fault.
        """
        for fault in self._faults:
            if self._is_due(fault, step) and self._mark(fault, step):
                return fault
        return None

    def due_in_start(self) -> Fault | None:
        """The fault that strikes in the start of the rank, once."""
        for fault in self._faults:
            if fault.kind is FaultKind.KILL_IN_START and self._mark(fault, 0):
                return fault
        return None

    def _is_due(self, fault: Fault, step: int) -> bool:
        if fault.kind is FaultKind.KILL_IN_START:
            return False
        if fault.when.after_recovered:
            return (self._mark_dir / f"armed-{_name_of(fault)}").exists()
        return fault.when.step == step

    def _mark(self, fault: Fault, step: int) -> bool:
        """Claim the fault for this call; False when it has happened before."""
        mark = self._mark_dir / _name_of(fault)
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        record = {
            "fault": fault.id,
            "kind": fault.kind,
            "outcome": "fired",
            "rank": self._rank,
            "pid": os.getpid(),
            "step": step,
            "wall_us": self._clock.wall_us(),
            "monotonic_us": self._clock.monotonic_us(),
        }
        with (self._mark_dir / LOG_NAME).open(
            "ab", buffering=0
        ) as log:  # one write: lines never mix
            log.write(msgspec.json.encode(record) + b"\n")
        return True
