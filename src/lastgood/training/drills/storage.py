"""Drills of disks, shared memory, checkpoints, loaders and the supervisor itself."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.training.drills.drill import (
    Drill,
    Expectation,
    JobSettings,
    Outcome,
    Seen,
    a_fault,
)
from lastgood.training.rundir import default_root
from lastgood.training.states.checkpoints import list_checkpoints

_drill = partial(Drill, group="storage")
_INTERRUPTED = Seen(
    kind="run.end",
    body=(("result", "interrupted"),),
    words="the first start is closed as interrupted",
)
_COMMITTED = Seen(kind="checkpoint.commit", words="a checkpoint is written")
_CHECKPOINTS = JobSettings(checkpoint_every_us=500_000, steps=480, is_own_process=True)
"""Long enough for a helper that has to import torch, and for another one after it."""
_ONE_CHECKPOINT = JobSettings(checkpoint_every_us=600_000_000, steps=480, is_own_process=True)
"""None is due before the end: the one that is written is the last."""
_RESTARTED = JobSettings(starts=2, steps=120, is_own_process=True)


def _failed(reason: str) -> Seen:
    return Seen(
        kind="checkpoint.fail",
        body=(("reason", reason),),
        words=f"one fails, with the reason: {reason}",
    )


def _untouched(*seen: Seen) -> Expectation:
    return Expectation(outcome=Outcome.FINISHED, incidents=0, seen=seen)


def _interrupted(*seen: Seen, lost_steps_max: int | None = 0) -> Expectation:
    return Expectation(
        outcome=Outcome.RECOVERED,
        symptom="process_exit",
        class_="fail_stop",
        ranks=(),
        incidents=1,
        lost_steps_max=lost_steps_max,
        seen=(_INTERRUPTED, *seen),
    )


def _lose_memory_and_damage(folder: Path, start: int) -> None:
    """Before the second start: the shared memory is gone, and a byte of the newest checkpoint changed."""
    if start == 0:
        return
    name = folder.name
    shutil.rmtree(default_root(f"drill-{name}"[:64].rstrip("-.")), ignore_errors=True)
    found = list_checkpoints(folder / "checkpoints", world=JobSettings().ranks)
    if not found:
        return  # the records will say that no checkpoint was restored
    newest = found[0]
    largest = max(newest.path.glob("*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0x10
    largest.write_bytes(content)


DRILLS: tuple[Drill, ...] = (
    _drill(
        name="kill-supervisor",
        title="the supervisor is killed, and the run is started again",
        faults=(a_fault(FaultKind.KILL_SUPERVISOR, 0, when=When(step=40)),),
        expect=_interrupted(
            Seen(kind="restore", body=(("tier", "slot"),), words="it goes on from shared memory")
        ),
        run=_RESTARTED,
    ),
    _drill(
        name="ctrl-c",
        title="a person presses Ctrl-C, once",
        faults=(a_fault(FaultKind.INTERRUPT, 0, when=When(step=100)),),
        expect=Expectation(
            outcome=Outcome.FINISHED,
            incidents=0,
            exit_code=130,
            is_bitwise_equal=False,
            says="SIGINT: stopping behind the present step",
            seen=(
                Seen(
                    kind="planned.begin", body=(("reason", "SIGINT"),), words="a planned end begins"
                ),
                Seen(kind="checkpoint.commit", words="the last step is in a checkpoint"),
                Seen(
                    kind="run.end", body=(("exit_code", 130),), words="the run is closed with 130"
                ),
            ),
            never=(
                Seen(kind="incident.open", words="an incident"),
                Seen(kind="isolate", words="a rank is ended for it"),
            ),
        ),
        run=_ONE_CHECKPOINT,
    ),
    _drill(
        name="stop-supervisor",
        title="the supervisor is stopped for three limits, and goes on",
        faults=(a_fault(FaultKind.STOP_SUPERVISOR, 0, duration_us=3_000_000),),
        expect=_untouched(
            Seen(
                kind="annotation",
                body=(("text", "the supervisor did not turn"),),
                words="the pause is on record",
            )
        ),
        run=JobSettings(steps=80, is_own_process=True),
    ),
    _drill(
        name="torn-checkpoint",
        title="the supervisor is killed, shared memory is lost and the newest checkpoint is damaged",
        faults=(a_fault(FaultKind.KILL_SUPERVISOR, 0, when=When(step=250)),),
        expect=_interrupted(
            Seen(
                kind="state.trust",
                body=(("state", "suspect"), ("tier", "checkpoint")),
                words="the damaged checkpoint is suspect",
            ),
            Seen(kind="restore", body=(("tier", "checkpoint"),), words="an older one is restored"),
            lost_steps_max=None,
        ),
        run=JobSettings(
            starts=2,
            steps=280,
            is_own_process=True,
            checkpoint_every_us=500_000,
            prepare=_lose_memory_and_damage,
        ),
    ),
    _drill(
        name="kill-helper",
        title="the checkpoint helper is killed",
        faults=(a_fault(FaultKind.KILL_HELPER, 0, when=When(step=150)),),
        expect=_untouched(_COMMITTED),
        run=_CHECKPOINTS,
    ),
    _drill(
        name="stop-helper",
        title="the checkpoint helper is stopped and stays so",
        faults=(a_fault(FaultKind.STOP_HELPER, 0, when=When(step=150)),),
        expect=_untouched(_failed("was stopped"), _COMMITTED),
        run=_CHECKPOINTS,
    ),
    _drill(
        name="full-disk",
        title="the disk under the checkpoints is full for a while",
        faults=(
            a_fault(FaultKind.FULL_CHECKPOINTS, 0, when=When(step=260), duration_us=5_000_000),
        ),
        expect=_untouched(_failed("File too large"), _COMMITTED),
        run=_CHECKPOINTS,
    ),
    _drill(
        name="full-memory",
        title="shared memory is full in the middle of the run, and the state grows",
        faults=(a_fault(FaultKind.FULL_MEMORY, 0),),
        expect=Expectation(
            outcome=Outcome.REFUSED,
            incidents=0,
            says="there is no room for a snapshot",
            seen=(
                Seen(
                    kind="annotation",
                    body=(("error", "there is no room for a snapshot"),),
                    words="the refusal names the snapshot",
                ),
                Seen(kind="checkpoint.commit", words="what was trained until then is kept"),
                Seen(
                    kind="run.end", body=(("exit_code", 3),), words="the run is closed with code 3"
                ),
            ),
            never=(Seen(kind="isolate", words="a rank is blamed for it"),),
        ),
        run=replace(_ONE_CHECKPOINT, arguments=("--grow-at", "100")),
    ),
    _drill(
        name="full-ledger",
        title="the disk under the ledger is full for a while",
        faults=(a_fault(FaultKind.FULL_LEDGER, 0, duration_us=7_000_000),),
        expect=_untouched(
            Seen(
                kind="annotation",
                body=(("text", "the ledger cannot be written"),),
                words="the outage is on record",
            ),
            Seen(
                kind="annotation",
                body=(("text", "the ledger is written again"),),
                words="and so is its end, with every event that had waited",
            ),
        ),
        run=JobSettings(steps=320, is_own_process=True),
    ),
    _drill(
        name="kill-loader",
        title="a data loader process of a rank is killed",
        faults=(a_fault(FaultKind.KILL_LOADER, 1),),
        expect=Expectation(
            outcome=Outcome.RECOVERED,
            symptom="exception",
            class_="fail_stop",
            ranks=(1,),
            incidents=1,
            lost_steps_max=0,
            seen=(
                Seen(
                    kind="observation",
                    body=(("message", "DataLoader worker"),),
                    words="the trace names the loader",
                ),
            ),
        ),
        run=JobSettings(arguments=("--workers", "1")),
        is_alone=True,
    ),
    _drill(
        name="remove-store",
        title="a rank is killed, and the file through which the next generation meets vanishes",
        faults=(
            a_fault(FaultKind.SIGKILL, 2, name="kill"),
            Fault(
                id="remove",
                kind=FaultKind.REMOVE_STORE,
                target=Target(rank=0),
                when=When(t_us=0, phase="verifying"),
            ),
        ),
        expect=Expectation(
            outcome=Outcome.RECOVERED, incidents=1, lost_steps_max=0, class_="fail_stop"
        ),
        is_alone=True,
    ),
)
