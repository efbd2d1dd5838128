"""The start of a run: every worker imports, checks itself and runs the script up to `lastgood.start`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput, RecoveryError, Refused
from lastgood.base.units import format_duration
from lastgood.training.processes import WorkerProcess, describe_exit
from lastgood.training.supervising.shutdown import wait_for

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor


REPLACED_COUNT_MAX = 3
"""Workers that may be killed before they are ready; more, and something kills them all."""


def start_worker(supervisor: Supervisor, *, is_spare: bool) -> WorkerProcess:
    """Start one more worker."""
    name = f"w{supervisor.started_count}"
    supervisor.started_count += 1
    worker = WorkerProcess(
        name, options=supervisor.options, run=supervisor.run_dir, is_spare=is_spare
    )
    supervisor.workers[name] = worker
    supervisor.recorder.record(
        "inventory", body={"worker": name, "state": "launching", "pid": worker.pid}
    )
    return worker


def launch_workers(supervisor: Supervisor) -> int | None:
    """Start all workers and wait until they are ready; an exit code when the run ended before that."""
    options = supervisor.options
    try:
        for _ in range(options.ranks + options.spares):
            start_worker(supervisor, is_spare=False)
    except OSError as error:
        raise Refused(
            "the workers cannot be started",
            where=str(error.filename or supervisor.run_dir.root),
            found=error.strerror or str(error),
            needs="room in shared memory, and processes and descriptors for every worker",
            next="type: lastgood doctor",
        ) from error
    began_us = supervisor.now_us()
    replaced_count = 0
    while not all(worker.is_ready for worker in supervisor.workers.values()):
        supervisor.wait_for_input()
        supervisor.hear_workers()
        supervisor.raise_refusal()
        if supervisor.ending.is_noticed:
            return supervisor.ending.code
        for worker in list(supervisor.workers.values()):
            code = worker.exit_code
            if code is not None:
                supervisor.hear_all(worker)
                supervisor.raise_refusal()
            if code is not None and code >= 0:
                return _ended_before_start(supervisor, worker, code)
            if code is not None:
                replaced_count += 1
                _replace_killed(supervisor, worker, code, replaced_count=replaced_count)
        if supervisor.now_us() - began_us > options.launch_limit_us:
            raise RecoveryError(
                "the workers did not reach lastgood.start",
                where=str(options.script),
                found=f"{sum(not w.is_ready for w in supervisor.workers.values())} of {len(supervisor.workers)} "
                f"still before it after {format_duration(options.launch_limit_us)}",
                needs="a script that calls lastgood.start",
                next="raise --launch-limit if it only needs longer",
            )
    _choose_ranks(supervisor)
    return None


def _replace_killed(
    supervisor: Supervisor, worker: WorkerProcess, code: int, *, replaced_count: int
) -> None:
    """A worker was killed before it was ready: nobody waits for it yet, so another one is started."""
    _record_gone(supervisor, worker, code)
    if replaced_count > REPLACED_COUNT_MAX:
        raise RecoveryError(
            "workers are killed before they reach lastgood.start",
            where=worker.name,
            found=f"{describe_exit(code)}, and {replaced_count - 1} others before",
            needs="workers that live that long",
            next="look for the kernel's out-of-memory killer: type dmesg | tail",
        )
    wait_for(supervisor, worker)
    worker.close()
    del supervisor.workers[worker.name]
    start_worker(supervisor, is_spare=False)


def _record_gone(supervisor: Supervisor, worker: WorkerProcess, code: int) -> None:
    body = {"worker": worker.name, "state": "gone", "exit": describe_exit(code), "before": "start"}
    supervisor.recorder.record("inventory", body=body)


def hear_script_error(supervisor: Supervisor, worker: WorkerProcess, text: str) -> None:
    """A script raised before lastgood.start: said once, since every worker runs the same one.

    In a run that goes on it is a spare that did not come up; it ends by itself, and the run does not.
    """
    if text in supervisor.script_errors:
        return
    supervisor.script_errors.add(text)
    supervisor.recorder.record(
        "annotation",
        body={
            "text": "the script failed before lastgood.start",
            "worker": worker.name,
            "error": text,
        },
    )


def _ended_before_start(supervisor: Supervisor, worker: WorkerProcess, code: int) -> int:
    """Nothing was trained yet: this is the script's own end, not a fault to recover from."""
    _record_gone(supervisor, worker, code)
    if code:
        return code
    raise BadInput(
        "the script ended without calling lastgood.start",
        where=str(supervisor.options.script),
        found="exit code 0",
        needs="a training loop around run.batches() and run.step()",
        next="see docs/quickstart.md for the ten lines",
    )


def _choose_ranks(supervisor: Supervisor) -> None:
    """The workers whose check agrees with most others serve; the rest of those are spares."""
    workers = list(supervisor.workers.values())
    usual = golden_majority([worker.golden or "" for worker in workers])
    healthy = [worker for worker in workers if worker.golden == usual]
    if len(healthy) < supervisor.options.ranks:
        raise RecoveryError(
            "too few workers passed their check",
            where="golden output",
            found=f"{len(healthy)} of {len(workers)} agree",
            needs=f"{supervisor.options.ranks} that compute the same bits",
            next="type: lastgood doctor",
        )
    for worker in workers:
        if worker not in healthy:
            refuse_worker(supervisor, worker, usual=usual)
    supervisor.serving = tuple(worker.name for worker in healthy[: supervisor.options.ranks])
    supervisor.spares = [worker.name for worker in healthy[supervisor.options.ranks :]]
    supervisor.recorder.versions |= healthy[0].versions
    for name in supervisor.spares:
        supervisor.recorder.record("inventory", body={"worker": name, "state": "parked"})


def golden_majority(digests: list[str]) -> str:
    """Return the digest that most workers computed."""
    return Counter(digests).most_common(1)[0][0]


def refuse_worker(supervisor: Supervisor, worker: WorkerProcess, *, usual: str) -> None:
    """End a worker that computed other bits than its peers."""
    supervisor.recorder.record(
        "inventory",
        symptom="replica_divergence",
        body={"worker": worker.name, "state": "refused", "golden": worker.golden, "usual": usual},
    )
    worker.kill()
