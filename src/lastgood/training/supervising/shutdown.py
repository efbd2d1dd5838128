"""The end of a run on this host: every process that it started is ended, and its live files go, or stay for a next start."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from lastgood.training.processes import describe_exit
from lastgood.training.resuming.leftovers import end_leftovers, sessions_of
from lastgood.training.watching.fatal import hear_fatal_errors

if TYPE_CHECKING:
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervising.supervisor import Supervisor

WAIT_S_MAX = 5.0
"""Longest wait for one killed process: what the kernel holds longer is named and left to it."""


def end_processes(supervisor: Supervisor) -> None:
    """Kill every worker with all that it started, and wait for them."""
    supervisor.ending.close()
    for worker in supervisor.workers.values():
        worker.kill()
    for worker in supervisor.workers.values():
        wait_for(supervisor, worker)
        worker.close()
    hear_fatal_errors(supervisor, is_last=True)
    run_dir = supervisor.run_dir
    ended = end_leftovers(run_dir.root, sessions=sessions_of(run_dir))
    record_ended(supervisor, [f"{entry.pid} {entry.command}" for entry in ended], "the run")


def wait_for(supervisor: Supervisor, worker: WorkerProcess) -> None:
    """Wait until a killed worker is gone, and say so when it does not go."""
    try:
        worker.process.wait(WAIT_S_MAX)
    except subprocess.TimeoutExpired:
        body = {"text": "a killed process does not end", "worker": worker.name, "pid": worker.pid}
        supervisor.recorder.record("annotation", body=body)


def record_gone(supervisor: Supervisor, worker: WorkerProcess, code: int) -> None:
    """Say in the ledger how a worker ended."""
    body = {"worker": worker.name, "state": "gone", "exit": describe_exit(code)}
    supervisor.recorder.record("inventory", body=body)


def end_orphans(supervisor: Supervisor, worker: WorkerProcess) -> None:
    """End what an ended worker has left: loader workers hold its sockets open and read for nobody."""
    ended = end_leftovers(supervisor.run_dir.root, sessions=(worker.pid,), waits=False)
    record_ended(supervisor, [f"{entry.pid} {entry.command}" for entry in ended], worker.name)


def record_ended(supervisor: Supervisor, ended: list[str], whose: str) -> None:
    """Say which processes had to be ended that should have ended by themselves."""
    if ended:
        body = {"text": "processes that outlived their worker were ended", "worker": whose}
        supervisor.recorder.record("annotation", body={**body, "processes": ended})
