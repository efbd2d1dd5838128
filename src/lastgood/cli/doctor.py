"""`lastgood doctor`: is this machine fit for a supervised run, and what to do where it is not."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from lastgood.base.clock import SystemClock, boot_id, read_clock_sync
from lastgood.base.errors import EXIT_HELD, EXIT_NOT_HELD, LedgerError
from lastgood.base.figures import Figure
from lastgood.base.units import format_bytes, parse_size
from lastgood.cli import checks, machine
from lastgood.cli.checks import Condition, Row, count_figure, size_figure
from lastgood.ledger.place import VARIABLE, default_ledger, storage_kind

STATE_DEFAULT = "1GiB"
NPROC_DEFAULT = 4
_WIDTH = 80
_COLOURS = {
    Condition.OK: "green",
    Condition.WARN: "yellow",
    Condition.FAILED: "red",
    Condition.UNKNOWN: "magenta",
}


@click.command()
@click.option(
    "--state", metavar="SIZE", help=f"State of one rank, such as 10GiB. [assumed: {STATE_DEFAULT}]"
)
@click.option(
    "--nproc", type=click.IntRange(1), help=f"Ranks on this machine. [assumed: {NPROC_DEFAULT}]"
)
@click.option("--ledger", metavar="PATH", help=f"Place of the ledger. [default: ${VARIABLE}]")
@click.option("--clean", is_flag=True, help="First remove what killed runs left in shared memory.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def doctor(
    *, state: str | None, nproc: int | None, ledger: str | None, clean: bool, as_json: bool
) -> int:
    """Check this machine: memory, stack dumps, storage, clock, torch, versions.

    Each line says ok, warn, failed or unknown, and what to do. Exits 1 when a check failed, else 0.
    With --clean a run that was killed cannot be taken up from shared memory any more.
    """
    if clean:
        for folder, size_bytes in machine.clean_abandoned_runs(machine.SHM).items():
            click.echo(f"removed {folder}: {format_bytes(size_bytes)}", err=True)
    rows = _examine(
        state=size_figure(
            value_bytes=parse_size(state or STATE_DEFAULT, where="--state"),
            is_typed=state is not None,
        ),
        nproc=count_figure(count=nproc or NPROC_DEFAULT, is_typed=nproc is not None),
        ledger=ledger,
        environment=os.environ,
    )
    if as_json:
        click.echo(
            json.dumps({"held": _held(rows), "rows": [asdict(row) for row in rows]}, indent=1)
        )
    else:
        for row in rows:
            click.echo(_lines(row))
        click.echo(_summary(rows))
    return EXIT_HELD if _held(rows) else EXIT_NOT_HELD


def _examine(
    *, state: Figure, nproc: Figure, ledger: str | None, environment: Mapping[str, str]
) -> list[Row]:
    py_spy = machine.find_py_spy()
    return [
        checks.check_shared_memory(
            shm_free_bytes=machine.read_free_bytes(machine.SHM),
            memory_free_bytes=machine.read_memory_free_bytes(),
            state=state,
            nproc=nproc,
        ),
        checks.check_abandoned_runs(machine.find_abandoned_runs(machine.SHM)),
        checks.check_supervisors(machine.find_silent_supervisors(SystemClock(), machine.SHM)),
        checks.check_stack_dumps(
            py_spy=py_spy,
            ptrace_scope=machine.read_ptrace_scope(),
            probe_error=machine.probe_stack_dump(py_spy) if py_spy else "no py-spy",
        ),
        _storage_row(ledger),
        checks.check_clock(
            sync=read_clock_sync(),
            drift_us=machine.read_clock_drift_us(SystemClock()),
            boot=boot_id(),
        ),
        checks.check_shared_store(
            torch_version=machine.read_version("torch"), environment=environment
        ),
        checks.check_sqlite(machine.read_sqlite_version()),
        checks.check_versions(machine.read_versions()),
    ]


def _storage_row(typed: str | None) -> Row:
    try:
        path = Path(typed).expanduser() if typed else default_ledger()
    except LedgerError as error:  # what other commands refuse, the doctor describes
        return checks.refused_storage(error)
    return checks.check_ledger_file(
        checks.check_storage(storage_kind(path)), machine.read_ledger_file(path)
    )


def _held(rows: Sequence[Row]) -> bool:
    return all(row.condition is not Condition.FAILED for row in rows)


def _lines(row: Row) -> str:
    indent = " " * 9
    head = click.style(f"{row.condition:<8} ", fg=_COLOURS[row.condition])
    if os.environ.get("NO_COLOR"):
        head = click.unstyle(head)
    body = textwrap.fill(
        f"{row.check}: {row.found}",
        _WIDTH - len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = head + textwrap.indent(body, indent).lstrip()
    if row.action:
        action = textwrap.fill(
            f"-> {row.action}", _WIDTH - len(indent), break_long_words=False, break_on_hyphens=False
        )
        lines += "\n" + textwrap.indent(action, indent)
    return lines


def _summary(rows: Sequence[Row]) -> str:
    counts = {c: sum(row.condition is c for row in rows) for c in Condition}
    return ", ".join(f"{count} {condition}" for condition, count in counts.items() if count)
