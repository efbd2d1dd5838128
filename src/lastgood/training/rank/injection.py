"""Faults that only a rank can have, carried out by the rank itself. Does nothing without an event tape."""

from __future__ import annotations

import os
import signal
import statistics
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.clock import SystemClock
from lastgood.faults.spec import FaultKind

if TYPE_CHECKING:
    import torch

    from lastgood.faults.in_step import StepFaults
    from lastgood.training.rundir import RunDir

_STUCK = frozenset(
    {FaultKind.SPIN, FaultKind.SPIN_THREAD, FaultKind.DEADLOCK, FaultKind.KERNEL_WAIT}
)
_USUAL_COUNT = 9
"""Steps whose median says how long a step of this process usually takes."""


class InjectedFault(RuntimeError):
    """Raised inside the user's step because the tape says so."""


class StepInjection:
    """The faults that this rank still has to have."""

    def __init__(self, run: RunDir) -> None:
        """Look whether the run has a tape."""
        tape = os.environ.get("LASTGOOD_FAULT_TAPE")
        self._tape = Path(tape) if tape else None
        self._marks = run.faults
        self._faults: StepFaults | None = None
        self._due: FaultKind | None = None
        self._factor = 1.0
        """How many times as long a step takes: stays for the life of the process."""
        self._usual_us: deque[int] = deque(maxlen=_USUAL_COUNT)
        self._slowed_us = 0
        self._kills_in_section = False
        self._clock = SystemClock()

    def serve_rank(self, rank: int) -> None:
        """Take over the faults of a rank; those that another worker already had stay done."""
        if self._tape is None:
            return
        from lastgood.faults.in_step import StepFaults
        from lastgood.faults.tape import read_tape

        self._faults = StepFaults(
            read_tape(self._tape), rank=rank, mark_dir=self._marks, clock=SystemClock()
        )

    def begin_step(self, step: int) -> None:
        """See whether this step has to fail."""
        fault = self._faults.due(step) if self._faults is not None else None
        self._due = fault.kind if fault is not None else None
        self._slowed_us = 0
        self._kills_in_section |= self._due is FaultKind.KILL_IN_SECTION
        if fault is not None and fault.kind is FaultKind.SLOW_STEP:
            self._factor = fault.factor or 1.0

    def begin_rank(self) -> None:
        """Die in the start, where the tape says so."""
        if self._faults is not None and self._faults.due_in_start() is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def enter_section(self) -> None:
        """Die in a section, where the tape says so."""
        if self._kills_in_section:
            os.kill(os.getpid(), signal.SIGKILL)

    def strike_if_due(self) -> None:
        """Raise, stick or be slow where the user's model is called."""
        if self._due is FaultKind.EXCEPTION:
            self._due = None
            raise InjectedFault("injected: the step raises")
        if self._due is FaultKind.EXIT_PROCESS:
            os._exit(0)
        if self._due is FaultKind.LEAVE_LOOP:
            self._due = None
            sys.exit(0)
        if self._due in _STUCK:
            from lastgood.faults.stuck import get_stuck

            get_stuck(self._due)
        if self._factor > 1 and self._usual_us and not self._slowed_us:
            self._slowed_us = int((self._factor - 1) * statistics.median(self._usual_us))
            self._clock.sleep_us(self._slowed_us)

    def end_step(self, own_us: int) -> None:
        """Learn how long the rank's own part of a step usually takes, without what was added on purpose."""
        if self._tape is not None:
            self._usual_us.append(max(0, own_us - self._slowed_us))

    def spoil_if_due(self, gradient: torch.Tensor) -> None:
        """Put NaN into this rank's own gradient, before it is reduced."""
        if self._due is FaultKind.NAN_GRADIENT and gradient.numel():
            self._due = None
            gradient[0] = float("nan")
