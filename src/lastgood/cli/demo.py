"""`lastgood demo`: a small training job, five faults, and the proof that it held."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood import __version__
from lastgood.base.errors import EXIT_HELD, EXIT_NOT_HELD, BadInput, MissingExtra

if TYPE_CHECKING:
    from lastgood.training.drills.live import DrillOptions, DrillResult

RANKS, SPARES = 4, 1
HANG_AFTER_US = 1_000_000
WARMUP_US = 60_000_000
PACE_MS = 120
STEPS_MAX = 5_000


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the evidence [default: lastgood-demo/<run>].",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON; the live view goes away."
)
def demo(output: Path | None, *, as_json: bool) -> int:
    """Break a small training job on purpose and watch it recover.

    Four ranks and a spare train a byte-level transformer on the source files of Python's standard library, while
    another process kills a middle rank and rank 0, stops a rank, corrupts a snapshot and flips a parameter bit.
    Then the same job runs undisturbed in plain torch, and the weights are compared bit for bit.
    Exits 0 only if every fault was detected, contained, recovered and verified and the bundle recomputes.
    """
    need_torch("lastgood demo")
    from lastgood.cli.demo_view import DemoView
    from lastgood.training.drills.live import run_drill

    run_id = f"demo-{secrets.token_hex(3)}"
    folder = output or Path("lastgood-demo") / run_id
    if folder.exists():
        raise BadInput(
            "evidence is never overwritten",
            where=str(folder),
            found="it exists",
            needs="a new folder",
        )
    folder.mkdir(parents=True)
    options = _options(folder, run_id)
    with DemoView(is_quiet=as_json) as view:
        result = run_drill(
            options,
            listener=view.show,
            on_turn=view.turn,
            on_twin=view.begin_twin,
            on_twin_turn=view.twin_turn,
        )
        view.begin_evidence()
        summary = _evidence(options, result)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        view.summarise(result, summary)
    return EXIT_HELD if result.has_held and summary["recomputed_equal"] else EXIT_NOT_HELD


def need_torch(command: str) -> None:
    """Refuse a command that breaks a real job where none can run."""
    import importlib.util

    for name in ("torch", "xxhash"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(module=name, extra="torch", where=command)


def _options(folder: Path, run_id: str) -> DrillOptions:
    from lastgood.signals.limits import Limits
    from lastgood.training import examples
    from lastgood.training.drills.live import DrillOptions, demo_tape
    from lastgood.training.options import RunOptions

    script = Path(examples.__path__[0]) / "byte_transformer.py"
    return DrillOptions(
        run=RunOptions(
            script=script,
            arguments=("--steps", str(STEPS_MAX), "--pace-ms", str(PACE_MS), "--out", str(folder)),
            ranks=RANKS,
            spares=SPARES,
            run_id=run_id,
            ledger=(folder / "ledger.db").resolve(),
            limits=Limits(step_floor_us=HANG_AFTER_US, warmup_floor_us=WARMUP_US),
            mode="demo",
        ),
        tape=demo_tape(),
        folder=folder,
    )


def _evidence(options: DrillOptions, result: DrillResult) -> dict[str, Any]:
    """Write the page and the bundle, recompute the bundle, and sum up."""
    from lastgood.base.clock import SystemClock
    from lastgood.cli.evidence_commands import section_builders
    from lastgood.evidence.bundle import write_bundle
    from lastgood.evidence.recompute import recompute_bundle
    from lastgood.ledger.ettr import measure_run
    from lastgood.ledger.store import open_store

    folder, run = options.folder, options.run
    bundle = folder / "bundle.tar"
    write_bundle(
        run.ledger, bundle, contract=None, run=run.run_id, now_us=SystemClock().wall_us(), version=__version__,
        builders=section_builders(),
    )  # fmt: skip
    recomputed = recompute_bundle(bundle, builders=section_builders(), version=__version__)
    page = folder / "report.html"
    _copy_page(bundle, page)
    with open_store(run.ledger, create=False) as store:
        events = list(store.events(run=run.run_id))
    ended_us = max(e.t_observed_us or 0 for e in events if e.kind == "run.end")
    import msgspec

    ettr = measure_run(events, run=run.run_id, as_of_us=ended_us).ettr
    return {
        "faults": [_fault_summary(fault) for fault in result.faults],
        "bitwise_equal": result.is_bitwise_equal,
        "steps": result.steps,
        "ettr": msgspec.to_builtins(ettr),
        "recomputed_equal": recomputed.is_equal,
        "ledger": str(run.ledger),
        "report": str(page),
        "bundle": str(bundle),
    }


def _copy_page(bundle: Path, page: Path) -> None:
    import tarfile

    with tarfile.open(bundle) as archive:
        name = next(n for n in archive.getnames() if n.endswith(".html"))
        member = archive.extractfile(name)
        assert member is not None, "the bundle was written a moment ago"
        page.write_bytes(member.read())


def _fault_summary(fault: Any) -> dict[str, Any]:
    incident = fault.incident
    return {
        "kind": fault.kind,
        "name": fault.fault,
        "detected_s": None if fault.detected_us is None else fault.detected_us / 1e6,
        "recovered_s": None if fault.recovered_us is None else fault.recovered_us / 1e6,
        "culprit_right": fault.is_culprit_right,
        "lost_steps": None if incident is None else incident.lost_steps,
        "held": fault.has_held,
    }
