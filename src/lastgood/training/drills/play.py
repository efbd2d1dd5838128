"""Play the drills of one job: start it, break it by a process that it knows nothing of, keep what everybody wrote.

A job of drills that recover runs under a supervisor of this process and ends when the last of them has settled.
A job that ends by itself, or whose supervisor dies, is `lastgood run` in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.base.clock import SystemClock
from lastgood.base.errors import LastgoodError, RecoveryError
from lastgood.base.figures import FigureKind
from lastgood.base.units import format_duration
from lastgood.faults.in_step import LOG_NAME
from lastgood.faults.spec import IN_STEP, Fault
from lastgood.faults.tape import Provenance, Tape, write_tape
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.store import open_store
from lastgood.signals.limits import Limits
from lastgood.training import examples
from lastgood.training.drills.attached import AttachedJob
from lastgood.training.drills.drill import SETTLE_STEPS, Drill
from lastgood.training.drills.live import DrillOptions, Injecting, start_injector
from lastgood.training.drills.verdict import Records, fault_id
from lastgood.training.options import RunOptions
from lastgood.training.rundir import default_root
from lastgood.training.supervising.session import run_training

if TYPE_CHECKING:
    from lastgood.ledger.event import Event
    from lastgood.training.drills.twin import Twins
    from lastgood.training.supervising.supervisor import Supervisor

SCRIPT = Path(examples.__path__[0]) / "drill_job.py"
ENDLESS_STEPS = 1_000_000
POLL_US = 20_000
LEDGER, TAPE, INJECTOR_LOG = "ledger.db", "tape.jsonl", "injector.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all jobs of a catalogue share."""

    folder: Path
    contract: Path | None
    twins: Twins
    listener: Callable[[Event], None] | None = None
    on_turn: Callable[[], None] | None = None


def tape_of(drills: Sequence[Drill]) -> Tape:
    """The faults of all drills of a job on one tape: each drill begins once the one before has settled."""
    faults: list[Fault] = []
    for number, drill in enumerate(drills):
        for place, fault in enumerate(drill.faults):
            faults.append(_placed(drill, fault, is_begin=place == 0, is_first=number == 0))
    source = "drills " + ", ".join(drill.name for drill in drills)
    return Tape(
        faults=tuple(faults), seed=0, provenance=Provenance(kind=FigureKind.ASSUMED, source=source)
    )


def _placed(drill: Drill, fault: Fault, *, is_begin: bool, is_first: bool) -> Fault:
    when = fault.when
    if is_begin and not is_first:
        when = msgspec.structs.replace(when, after_recovered=True, settle_steps=SETTLE_STEPS)
    if when.step is not None and when.step < SETTLE_STEPS:
        when = msgspec.structs.replace(when, step=SETTLE_STEPS)
    return msgspec.structs.replace(fault, id=fault_id(drill, fault.id), when=when)


def play_job(drills: Sequence[Drill], *, name: str, stage: Stage) -> Records:
    """Play the drills of one job in the folder `name` and return all records of it."""
    folder = stage.folder / "jobs" / name
    folder.mkdir(parents=True)
    run_id = f"drill-{name}"[:64].rstrip("-.")
    tape = tape_of(drills)
    play = _play_here
    if drills[0].needs_process:
        play = _play_attached if drills[0].run.is_attached else _play_child
    exit_code, errors = play(drills[0], folder, run_id, tape, stage)
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    injected, missed = _what_happened(folder)
    events, unread = _events(folder / LEDGER)
    return Records(
        run=run_id,
        folder=str(Path("jobs") / name),
        events=events,
        injected_us=injected,
        not_injected=missed,
        exit_code=exit_code,
        errors=errors,
        is_bitwise_equal=_is_equal(drills[0], folder, stage),
        unread=unread,
        load=load,
        last_words="" if exit_code == 0 else _last_words(folder / "logs"),
    )


# --- under a supervisor of this process ---------------------------------------------------------------


def _play_here(
    drill: Drill, folder: Path, run_id: str, tape: Tape, stage: Stage
) -> tuple[int | None, str]:
    options = _run_options(drill, folder, run_id, stage)
    write_tape(tape, folder / TAPE)  # the ranks read it when they start
    limit_us = drill.run.limit_us + 30_000_000 * len(tape.faults)
    clock, root = SystemClock(), default_root(run_id)
    deadline_us = clock.monotonic_us() + limit_us

    def turn(_: Supervisor) -> None:
        _keep_log_of_ranks(root, folder)
        if stage.on_turn is not None:
            stage.on_turn()
        if clock.monotonic_us() > deadline_us:
            raise RecoveryError(
                "the job of a drill did not end", where=str(folder),
                found="it still runs", needs=f"an end within {format_duration(limit_us)}",
            )  # fmt: skip

    injecting = Injecting(DrillOptions(run=options, tape=tape, folder=folder), turn)
    try:
        result = run_training(options, listener=stage.listener, on_turn=injecting.turn)
    except RecoveryError as error:
        return None, str(error)
    except LastgoodError as error:
        return error.exit_code, str(error)
    finally:
        injecting.close()
    return result.exit_code, ""


def _run_options(drill: Drill, folder: Path, run_id: str, stage: Stage) -> RunOptions:
    run = drill.run
    checkpoints = {}
    if run.checkpoint_every_us is not None:
        checkpoints = {
            "checkpoint_dir": folder / "checkpoints",
            "checkpoint_every_us": run.checkpoint_every_us,
        }
    return RunOptions(
        script=SCRIPT,
        arguments=_arguments(drill, folder, ENDLESS_STEPS),
        ranks=run.ranks,
        spares=run.spares,
        run_id=run_id,
        ledger=(folder / LEDGER).resolve(),
        contract=_contract(drill, folder, stage),
        limits=Limits(step_floor_us=run.hang_after_us, warmup_floor_us=run.warmup_us),
        mode="drill",
        tape=(folder / TAPE).resolve(),
        log_dir=folder / "logs",
        **checkpoints,  # type: ignore[arg-type]
    )


def _arguments(drill: Drill, folder: Path, steps: int) -> tuple[str, ...]:
    run = drill.run
    return (
        "--steps", str(steps), "--pace-ms", str(run.pace_ms), "--out", str(folder.resolve()), *run.arguments,
    )  # fmt: skip


def _contract(drill: Drill, folder: Path, stage: Stage) -> Path | None:
    """The contract that the drill needs, else the one that a person gave."""
    if drill.run.contract is None:
        return stage.contract
    path = folder / "contract.yaml"
    path.write_text(drill.run.contract, encoding="utf-8")
    return path


# --- under a launcher that is not lastgood's ------------------------------------------------------------


def _play_attached(
    drill: Drill, folder: Path, run_id: str, tape: Tape, stage: Stage
) -> tuple[int | None, str]:
    """Start the ranks of two hosts as a launcher would, and import the spools that they leave."""
    write_tape(tape, folder / TAPE)
    job = AttachedJob(
        [str(SCRIPT), *_arguments(drill, folder, drill.run.steps)],
        folder, run_id=run_id, ranks=drill.run.ranks, on_turn=stage.on_turn,
    )  # fmt: skip
    injector = start_injector(job.live, tape=folder / TAPE, log=folder / INJECTOR_LOG)
    try:
        code = job.finish(limit_us=drill.run.limit_us)
    finally:
        injector.kill()
        injector.wait()
        job.close()
    import_files([job.spool], ledger=folder / LEDGER, format="spool")
    return code, job.said


# --- in a process of its own --------------------------------------------------------------------------


def _play_child(
    drill: Drill, folder: Path, run_id: str, tape: Tape, stage: Stage
) -> tuple[int | None, str]:
    """Start `lastgood run` and, when it ends other than well, start it again as often as the drill says."""
    write_tape(tape, folder / TAPE)
    injector: subprocess.Popen[bytes] | None = None
    deadline_us = SystemClock().monotonic_us() + drill.run.limit_us
    code: int | None = None
    try:
        for start in range(drill.run.starts):
            try:
                if drill.run.prepare is not None:
                    drill.run.prepare(folder, start)
            except Exception as error:  # noqa: BLE001 - one drill that cannot be set up does not end the series
                return None, f"start {start + 1} could not be prepared: {error!r}"
            with (folder / "errors.txt").open("ab") as errors:
                child = subprocess.Popen(
                    _command(drill, folder, run_id, stage),
                    env={**os.environ, **dict(drill.run.env)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,  # a Ctrl-C here is passed on by us, once
                )
            if injector is None and tape.faults:
                injector = start_injector(
                    default_root(run_id), tape=folder / TAPE, log=folder / INJECTOR_LOG
                )
            code = _wait(child, folder, run_id, stage, deadline_us)
            if code in {0, None}:
                break
    finally:
        if injector is not None:
            injector.kill()
            injector.wait()
    return code, (folder / "errors.txt").read_text(errors="replace")


def _command(drill: Drill, folder: Path, run_id: str, stage: Stage) -> list[str]:
    run = drill.run
    contract = _contract(drill, folder, stage)
    command = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--drill", "--run-id", run_id,
        "--nproc-per-node", str(run.ranks), "--spares", str(run.spares),
        "--ledger", str((folder / LEDGER).resolve()), "--log-dir", str(folder / "logs"),
        "--hang-after", f"{run.hang_after_us // 1000}ms", "--fault-tape", str((folder / TAPE).resolve()),
    ]  # fmt: skip
    if contract is not None:
        command += ["--contract", str(contract)]
    if run.checkpoint_every_us is not None:
        command += ["--checkpoint-dir", str(folder / "checkpoints")]
        command += ["--checkpoint-every", f"{run.checkpoint_every_us // 1000}ms"]
    return [*command, *run.options, str(SCRIPT), *_arguments(drill, folder, run.steps)]


def _wait(
    child: subprocess.Popen[bytes], folder: Path, run_id: str, stage: Stage, deadline_us: int
) -> int | None:
    """The exit code of the child; None when it took too long and was killed."""
    clock, root = SystemClock(), default_root(run_id)
    try:
        while child.poll() is None and clock.monotonic_us() < deadline_us:
            _keep_log_of_ranks(root, folder)
            if stage.on_turn is not None:
                stage.on_turn()
            clock.sleep_us(POLL_US)
        return child.returncode
    finally:
        if child.poll() is None:
            child.terminate()  # the supervisor ends its workers
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=10)
            child.kill()
            child.wait()


# --- the records --------------------------------------------------------------------------------------


def _keep_log_of_ranks(root: Path, folder: Path) -> None:
    """Copy what the ranks wrote about faults of their own: it lies among the live files, which go with the run."""
    source, kept = root / "faults" / LOG_NAME, folder / LOG_NAME
    with suppress(OSError):
        size = source.stat().st_size
        if not kept.exists() or kept.stat().st_size != size:
            shutil.copyfile(source, kept)


def _what_happened(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Fault -> wall time of its injection, and fault -> why it was not injected."""
    injected: dict[str, int] = {}
    missed: dict[str, str] = {}
    for record in (*_log(folder / INJECTOR_LOG), *_log(folder / LOG_NAME)):
        fault = record.get("fault")
        if fault is None or (record["kind"] in IN_STEP and record["outcome"] != "fired"):
            continue
        if record["outcome"] == "fired":
            injected.setdefault(fault, record["wall_us"])
        else:
            reason = record.get("detail", {}).get("reason")
            missed[fault] = str(reason or record["outcome"])
    return injected, missed


def _log(path: Path) -> list[dict[str, Any]]:
    # The injector is ended by SIGKILL: what stands behind the last line break is no record.
    *lines, _ = path.read_text().split("\n") if path.exists() else [""]
    return [json.loads(line) for line in lines]


def _last_words(logs: Path) -> str:
    """The last line of the first worker that said anything."""
    for path in sorted(logs.glob("*.log")):
        lines = path.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
    return ""


def _events(ledger: Path) -> tuple[list[Event], str | None]:
    if not ledger.exists():
        return [], None
    try:
        with open_store(ledger, create=False) as store:
            return list(store.events()), None
    except LastgoodError as error:
        return [], str(error)


def _is_equal(drill: Drill, folder: Path, stage: Stage) -> bool | None:
    """Whether every rank ended with the weights that an undisturbed run has after as many steps."""
    found = []
    for rank in range(drill.run.ranks):
        path = folder / f"weights-rank{rank}.json"
        if not path.exists():
            return None
        found.append(json.loads(path.read_text()))
    steps = {weights["steps"] for weights in found}
    digests = {weights["weights_sha256"] for weights in found}
    if len(steps) != 1 or len(digests) != 1:
        return False
    twin = stage.twins.digest(ranks=drill.run.ranks, step=steps.pop())
    return digests == {twin}
