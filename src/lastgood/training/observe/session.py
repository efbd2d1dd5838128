"""One observed run with its ledger: open, run, close, whatever happens in between."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from lastgood.base.clock import SystemClock
from lastgood.base.errors import EXIT_INTERNAL, LastgoodError
from lastgood.contract.load import default_contract, load_contract
from lastgood.contract.model import contract_digest
from lastgood.fleet.topology import topology_digest
from lastgood.ledger.writer import LedgerWriter
from lastgood.training.machine import machine_versions, run_topology
from lastgood.training.observe.folder import take_over
from lastgood.training.observe.supervisor import ObserveSupervisor
from lastgood.training.recorder import Recorder
from lastgood.training.resuming.interrupted import Resumption, closing_entries
from lastgood.training.resuming.owned import owned_folder
from lastgood.training.resuming.same_run import identity_of, refuse_other_run
from lastgood.training.resuming.unwatched import find_unwatched, unwatched_words
from lastgood.training.resuming.unwritten import put_unwritten
from lastgood.training.supervising.session import RunResult, close_ledger, history_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood.contract.model import FailureContract
    from lastgood.fleet.topology import Topology
    from lastgood.ledger.event import Event
    from lastgood.training.metrics.page import RunMetrics
    from lastgood.training.options import RunOptions
    from lastgood.training.resuming.owned import OwnedFolder
    from lastgood.training.rundir import RunDir


def run_observed(
    options: RunOptions,
    *,
    is_acting: bool,
    listener: Callable[[Event], None] | None = None,
    on_turn: Callable[[ObserveSupervisor], None] | None = None,
    metrics: RunMetrics | None = None,
) -> RunResult:
    """Run a script that is not changed; with `is_acting` a fault starts all ranks again, else nothing is done about it.

    Raises:
        LastgoodError: what is wrong with the ledger, the contract or the live folder.
    """
    contract = (
        load_contract(options.contract)
        if options.contract is not None
        else default_contract("training")
    )
    with owned_folder(options) as folder:
        return _record_all(
            options,
            contract,
            folder,
            is_acting=is_acting,
            listener=listener,
            on_turn=on_turn,
            metrics=metrics,
        )


def _record_all(
    options: RunOptions,
    contract: FailureContract,
    folder: OwnedFolder,
    *,
    is_acting: bool,
    listener: Callable[[Event], None] | None,
    on_turn: Callable[[ObserveSupervisor], None] | None,
    metrics: RunMetrics | None,
) -> RunResult:
    """Open the ledger, record the run, and close it, while the folder is this start's."""
    writer = LedgerWriter(options.ledger, may_hold=True)
    if metrics is not None:
        metrics.watch_ledger(lambda: writer.backlog_count)
        on_turn = on_turn or metrics.take_turn  # type: ignore[assignment]
    try:
        put_unwritten(options.ledger, writer)
        # Before anything is recorded: a refusal must not look like another start of that run.
        history = history_of(options)
        refuse_other_run(history, identity_of(options, contract_digest=contract_digest(contract)))
        take_over(folder)
        # Also in a folder that is new: a start in between has deleted the one that they had.
        unwatched = find_unwatched(options, root=folder.run_dir.root)
        topology = run_topology(options.ranks)
        recorder = Recorder(
            writer,
            clock=SystemClock(),
            run_id=options.run_id,
            versions=machine_versions(),
            topology=topology_digest(topology),
            listener=listener,
            metrics=metrics,
        )
        # What a killed supervisor left open would count its devices twice.
        before = Resumption(last_attempt=history.last_attempt, alive_us=history.alive_us)
        for entry in closing_entries(history, before):
            recorder.record(entry.kind, **entry.fields)
        recorder.attempt = history.last_attempt + 1
        body = _description(options, contract, topology, is_acting=is_acting)
        recorder.record("run.start", body=body)
        for words in unwatched_words(unwatched, run_id=options.run_id):
            recorder.record("annotation", body=words)
        code = _watch(
            options, contract, recorder, folder.run_dir, is_acting=is_acting, on_turn=on_turn
        )
    except BaseException:
        close_ledger(writer, options, EXIT_INTERNAL)
        raise
    return close_ledger(writer, options, code)


def _watch(
    options: RunOptions,
    contract: FailureContract,
    recorder: Recorder,
    run_dir: RunDir,
    *,
    is_acting: bool,
    on_turn: Callable[[ObserveSupervisor], None] | None,
) -> int:
    """Run to the end; the end is recorded whatever it is."""
    code = EXIT_INTERNAL
    try:
        code = ObserveSupervisor(
            options, contract, recorder, run_dir=run_dir, is_acting=is_acting, on_turn=on_turn
        ).run()
    except LastgoodError as error:
        code = error.exit_code
        body = {"text": "the run ended with an error", "error": str(error)}
        recorder.record("annotation", body=body)
        raise
    finally:
        recorder.close_chunk()
        recorder.record("attempt.end", body={"reason": "run ended"})
        recorder.record("run.end", body={"exit_code": code})
    return code


def _description(
    options: RunOptions, contract: FailureContract, topology: Topology, *, is_acting: bool
) -> dict[str, object]:
    declared = options.contract
    return {
        "command": [str(options.script), *options.arguments],
        "world": options.ranks,
        "spares": 0,
        "contract_digest": contract_digest(contract),
        "contract_assumed": declared is None,
        "contract": None if declared is None else declared.read_text(encoding="utf-8"),
        "topology": msgspec.to_builtins(topology),
        "mode": "act" if is_acting else "observe",
        **({"injected": True} if options.mode == "drill" else {}),
        "host": os.uname().nodename,
        "hang_floor_us": options.limits.step_floor_us,
    }
