"""What a worker says about a recovery or an error of its own, in the words of whoever assesses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages
from lastgood.recovery.messages import ReplayOutcome
from lastgood.signals.reading import Raised
from lastgood.training import control
from lastgood.training.trace_place import innermost_place

if TYPE_CHECKING:
    from lastgood.training.processes import WorkerProcess


def observation_of(
    worker: WorkerProcess, message: control.Parked | control.StateRestored | control.StepReplayed
) -> messages.Observation:
    """Return the observation that the loop takes."""
    match message:
        case control.Parked():
            return messages.WorkerParked(worker.name, message.generation)
        case control.StateRestored():
            return messages.Restored(
                rank=message.rank,
                generation=message.generation,
                is_intact=message.is_intact,
                bad_step=message.bad_step,
                detail=message.detail,
            )
        case control.StepReplayed():
            return messages.Replayed(
                rank=message.rank,
                generation=message.generation,
                step=message.step,
                outcome=ReplayOutcome(message.outcome),
                detail=message.detail,
            )


def raised_of(message: control.StepRaised, *, now_us: int) -> Raised:
    """Return what a rank raised, as the liveness check reads it."""
    return Raised(
        type_name=message.type_name,
        message=message.message,
        is_group_error=message.is_group_error,
        step=message.step,
        t_us=now_us,
        place=innermost_place(message.trace),
        loader=message.loader,
    )
