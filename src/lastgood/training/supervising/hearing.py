"""What a worker says about a recovery, in the words of the recovery loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages
from lastgood.recovery.messages import ReplayOutcome
from lastgood.training import control

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
