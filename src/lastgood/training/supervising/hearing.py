"""Who has something to say or has ended, and what a worker says, in the words of whoever assesses it."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, NamedTuple

from lastgood.recovery import messages
from lastgood.recovery.messages import ReplayOutcome
from lastgood.signals.reading import Raised
from lastgood.training import control
from lastgood.training.trace_place import innermost_place

if TYPE_CHECKING:
    from collections.abc import Collection

    from lastgood.training.processes import WorkerProcess


class Heard(NamedTuple):
    """What woke the supervisor up; all empty when nothing did."""

    talking: list[WorkerProcess]
    letting_go: list[WorkerProcess]
    """Of these the early notice came: they seem to end."""
    ended: list[WorkerProcess]


def wait_for_workers(workers: Collection[WorkerProcess], limit_s: float) -> Heard:
    """Sleep until a worker says something or ends; each end is heard here, and known to the worker from now on."""
    sockets = {w.channel.socket: w for w in workers if not w.channel.is_closed}
    # The descriptor of a process that has ended stays readable: waiting on it would spin.
    living = [w for w in workers if w.exit_code is None]
    notices = {notice: w for w in living for notice in w.early_notices}
    ends = {w.pidfd: w for w in living}
    ready, _, _ = select.select([*sockets, *notices, *ends], [], [], limit_s)
    heard = Heard(
        [sockets[found] for found in ready if found in sockets],
        [notices[found] for found in ready if found in notices],
        [ends[found] for found in ready if found in ends],
    )
    for worker in heard.ended:
        worker.hear_end()
    return heard


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
