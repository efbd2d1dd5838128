"""One supervised run with its ledger: open, run, close, whatever happens in between."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lastgood.base.clock import Clock, RunClock, SystemClock
from lastgood.base.errors import EXIT_INTERNAL, LastgoodError, LedgerError
from lastgood.contract.load import default_contract, load_contract
from lastgood.contract.model import contract_digest
from lastgood.fleet.topology import topology_digest
from lastgood.ledger.store import read_store
from lastgood.ledger.writer import LedgerWriter
from lastgood.training.machine import machine_versions, run_topology
from lastgood.training.recorder import Recorder
from lastgood.training.resuming.interrupted import (
    History,
    Resumption,
    claim_folder,
    closing_entries,
    opening_entries,
    read_history,
    resumption_of,
)
from lastgood.training.resuming.owned import owned_folder
from lastgood.training.resuming.same_run import identity_of, refuse_other_run
from lastgood.training.resuming.unwatched import find_unwatched, unwatched_words
from lastgood.training.resuming.unwritten import put_unwritten, save_unwritten
from lastgood.training.supervising.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lastgood.contract.model import FailureContract
    from lastgood.fleet.topology import Topology
    from lastgood.ledger.event import Event
    from lastgood.ledger.tree_head import TreeHead
    from lastgood.signals.limits import Limits
    from lastgood.training.metrics.page import RunMetrics
    from lastgood.training.options import RunOptions
    from lastgood.training.resuming.owned import OwnedFolder


class RunResult(NamedTuple):
    """How a run ended, and the tree head over everything that it recorded."""

    exit_code: int
    head: TreeHead
    unwritten_count: int = 0
    """Events that the ledger could not take to the end."""
    unwritten: Path | None = None
    """Where they were saved."""


def run_training(
    options: RunOptions,
    *,
    listener: Callable[[Event], None] | None = None,
    on_turn: Callable[[Supervisor], None] | None = None,
    metrics: RunMetrics | None = None,
) -> RunResult:
    """Run a training script under supervision; every event goes to the ledger and to `listener`.

    Args:
        metrics: is told of every event, step and turn; the caller closes it.

    Raises:
        LastgoodError: what is wrong with the ledger, the contract or the start of the workers.
    """
    contract = (
        load_contract(options.contract)
        if options.contract is not None
        else default_contract("training")
    )
    options = replace(options, limits=_within_contract(options, contract))
    with owned_folder(options) as folder:
        writer = LedgerWriter(options.ledger, may_hold=True)
        if metrics is not None:
            metrics.watch_ledger(lambda: writer.backlog_count)
        try:
            put_unwritten(options.ledger, writer)
            exit_code = _supervise(
                options,
                contract,
                writer,
                folder,
                listener=listener,
                on_turn=on_turn,
                metrics=metrics,
            )
        except BaseException:
            close_ledger(writer, options, EXIT_INTERNAL)
            raise
        return close_ledger(writer, options, exit_code)


def _supervise(
    options: RunOptions,
    contract: FailureContract,
    writer: LedgerWriter,
    folder: OwnedFolder,
    *,
    listener: Callable[[Event], None] | None,
    on_turn: Callable[[Supervisor], None] | None,
    metrics: RunMetrics | None,
) -> int:
    """Take over what an earlier start left, close what it left open, and run to the end."""
    topology = run_topology(options.ranks)
    identity = identity_of(options, contract_digest=contract_digest(contract))
    # Before anything is recorded: a refusal must not look like another start of that run.
    history = history_of(options)
    refuse_other_run(history, identity)
    claim = claim_folder(folder, identity)
    resumption = resumption_of(history, claim, run_id=options.run_id)
    recorder = Recorder(
        writer,
        clock=_time_base(resumption),
        run_id=options.run_id,
        versions=machine_versions(),
        topology=topology_digest(topology),
        listener=listener,
        metrics=metrics,
    )
    for entry in closing_entries(history, resumption):
        recorder.record(entry.kind, **entry.fields)
    recorder.attempt = resumption.last_attempt + 1
    description = _description(options, contract, topology)
    recorder.record("run.start", body=description | _resumes(resumption))
    _record_before(recorder, options, resumption, root=folder.run_dir.root)
    exit_code = EXIT_INTERNAL
    supervisor: Supervisor | None = None
    try:
        supervisor = Supervisor(
            options,
            contract,
            recorder,
            run_dir=folder.lend(),
            resumption=resumption,
            on_turn=_each_turn(on_turn, metrics),
        )
        exit_code = supervisor.run()
    except LastgoodError as error:
        exit_code = error.exit_code
        recorder.record(
            "annotation", body={"text": "the run ended with an error", "error": str(error)}
        )
        raise
    finally:
        _record_end(recorder, supervisor, exit_code)
    return exit_code


def _record_before(
    recorder: Recorder, options: RunOptions, resumption: Resumption, *, root: Path
) -> None:
    """What is known of earlier starts: the interruption of this run, and ranks of a watched one that still work."""
    opening = opening_entries(resumption, now_us=recorder.clock.wall_us(), world=options.ranks)
    for entry in opening:
        recorder.record(entry.kind, **entry.fields)
    for words in unwatched_words(find_unwatched(options, root=root), run_id=options.run_id):
        recorder.record("annotation", body=words)


def close_ledger(writer: LedgerWriter, options: RunOptions, exit_code: int) -> RunResult:
    """Close the ledger; what it could not take to the end is saved where the next run finds it."""
    try:
        writer.close()
    except LedgerError:
        if not writer.unwritten:
            raise
    head = writer.head
    if not writer.unwritten:
        return RunResult(exit_code, head)
    saved = save_unwritten(writer.unwritten, ledger=options.ledger, run_id=options.run_id)
    return RunResult(exit_code, head, len(writer.unwritten), saved)


def _time_base(resumption: Resumption, clock: Clock | None = None) -> RunClock:
    """The time base of the run: that of its last supervisor where it is known, and never before its last sign of life."""
    clock = clock or SystemClock()
    sign = resumption.sign
    if sign is not None and sign.turn_us:  # its page lay in memory, so this is the same boot
        return RunClock(clock, sign.turn_wall_us - sign.turn_us)
    base = RunClock(clock)
    behind_us = (resumption.alive_us or 0) - base.wall_us()
    return RunClock(clock, base.offset_us + max(0, behind_us))


def history_of(options: RunOptions) -> History:
    """What this ledger knows of earlier starts of the run."""
    with read_store(options.ledger) as store:
        return read_history(store.events(run=options.run_id))


def _resumes(resumption: Resumption) -> dict[str, object]:
    """What `run.start` says about the start before; nothing in a new run."""
    if not resumption.last_attempt:
        return {}
    sign = resumption.sign
    return {
        "resumes": {
            "attempt": resumption.last_attempt,
            "was": "ended" if resumption.alive_us is None else "interrupted",
            "state_in_memory": None if sign is None else sign.assessed_step,
        }
    }


def _each_turn(
    on_turn: Callable[[Supervisor], None] | None, metrics: RunMetrics | None
) -> Callable[[Supervisor], None] | None:
    if metrics is None or on_turn is None:
        return on_turn if metrics is None else metrics.take_turn

    def both(supervisor: Supervisor) -> None:
        metrics.take_turn(supervisor)
        on_turn(supervisor)

    return both


def _record_end(recorder: Recorder, supervisor: Supervisor | None, exit_code: int) -> None:
    """Nothing is at risk any more; also when the run never came to life."""
    recorder.close_chunk()
    for rank, name in enumerate(supervisor.serving if supervisor is not None else ()):
        recorder.record(
            "exposure.leave", devices=1, ranks=(rank,), body={"worker": name, "rank": rank}
        )
    recorder.record("attempt.end", body={"reason": "run ended"})
    recorder.record("run.end", body={"exit_code": exit_code})


def _description(
    options: RunOptions, contract: FailureContract, topology: Topology
) -> dict[str, object]:
    """What `run.start` says about the run: enough to read every later event without any other file."""
    declared = options.contract
    return {
        "command": [str(options.script), *options.arguments],
        "world": options.ranks,
        "spares": options.spares,
        "contract_digest": contract_digest(contract),
        "contract_assumed": declared is None,
        "contract": None if declared is None else declared.read_text(encoding="utf-8"),
        "topology": msgspec.to_builtins(topology),
        "mode": options.mode,
        "host": os.uname().nodename,
        "hang_floor_us": options.limits.step_floor_us,
        "snapshots": options.snapshots.value,
    }


def _within_contract(options: RunOptions, contract: FailureContract) -> Limits:
    """A declared time to detect bounds every limit of a step; assumed defaults bound nothing that a person did not say."""
    if options.contract is None:
        return options.limits
    return replace(options.limits, step_ceiling_us=contract.spec.recovery.detect.timeout_us)
