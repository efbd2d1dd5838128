"""`lastgood bundle` and `recompute`: what happened, packed for a stranger and computed again by a stranger.

This is the one place that knows every workload's section builder and passes them to `evidence`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood import __version__
from lastgood.base.errors import EXIT_HELD, EXIT_NOT_HELD, BadInput
from lastgood.cli.rate_options import question_options, rates_question, refuse_rate_options
from lastgood.cli.verified_ledger import check_ledgers
from lastgood.evidence.folder_words import refuse_folder

if TYPE_CHECKING:
    from lastgood.contract.model import FailureContract
    from lastgood.evidence.assemble import Builders
    from lastgood.evidence.manifest import Share
    from lastgood.evidence.recompute import Recomputed

CONTEXT = {"help_option_names": ["-h", "--help"]}
_LEDGER = click.argument(
    "ledger", required=False, type=click.Path(path_type=Path), metavar="[LEDGER]"
)
_RUN = click.option("--run", metavar="NAME", help="Which run; the newest when left out.")
_CONTRACT = click.option(
    "--contract",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The failure contract [default: the run's own, else assumed defaults].",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(context_settings=CONTEXT)
@_LEDGER
@_RUN
@_CONTRACT
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to write it: a folder, or one file when the name ends in .tar.",
)
@click.option(
    "--share",
    "is_shared",
    is_flag=True,
    help="For strangers: hosts, users, paths, runs and addresses become pseudonyms, in a ledger with a root of its own.",
)
@question_options
def bundle(
    ledger: Path | None,
    *,
    run: str | None,
    contract: Path | None,
    output: Path,
    is_shared: bool,
    **asked: Any,
) -> int:
    """Pack ledger, contract, report and figures so that a stranger can recompute them.

    PATH must not exist yet: evidence is never overwritten. The report is about one run; the ledger goes in whole,
    with all its runs, because only a whole ledger can be verified. The options about rates are kept in the bundle.
    """
    from lastgood.base.clock import SystemClock
    from lastgood.evidence.bundle import write_bundle
    from lastgood.evidence.rates_report import files_of

    path, asked_rates = ledger_path(ledger), rates_question(**asked)
    check_ledgers([path])
    if not files_of(path):
        refuse_rate_options(str(path), asked_rates)
    with stages(4) as on_stage:
        made = write_bundle(
            path,
            output,
            contract=contract,
            run=run,
            now_us=SystemClock().wall_us(),
            version=__version__,
            builders=section_builders(),
            rates=asked_rates,
            share_key=secrets.token_bytes(32) if is_shared else None,
            on_stage=on_stage,
        )
    click.echo(
        f"bundle: {made.path} ({made.figure_count} figures, {made.head.size:,} events, root {made.head.root_hex})"
    )
    click.echo(f"next: lastgood recompute {made.path}")
    if made.share is not None:
        _print_share(made.share)
    if run is not None or made.run_count > 1:
        click.echo(
            f"the bundle holds the whole ledger: {made.head.size:,} events of "
            f"{made.run_count} run{'' if made.run_count == 1 else 's'}",
            err=True,
        )
    return EXIT_HELD


@click.command(context_settings=CONTEXT)
@click.argument("bundle_path", type=click.Path(path_type=Path), metavar="BUNDLE")
@_JSON
def recompute(bundle_path: Path, *, as_json: bool) -> int:
    """Compute every figure of BUNDLE again from its ledger and compare.

    Exits 0 when all are equal, 1 with the first difference when one is not, 2 when BUNDLE cannot be read.
    """
    from lastgood.evidence.recompute import recompute_bundle

    with stages(4) as on_stage:
        result = recompute_bundle(
            bundle_path, builders=section_builders(), version=__version__, on_stage=on_stage
        )
    if as_json:
        import msgspec

        click.echo(json.dumps(msgspec.to_builtins(result), indent=1, ensure_ascii=False))
    else:
        _print_result(result, bundle_path)
    return EXIT_HELD if result.is_equal else EXIT_NOT_HELD


def section_builders() -> Builders:
    """The section builder of every workload under the name that a contract gives it."""
    from lastgood.training.report.section import build_section

    return {"training": build_section}


def chosen_contract(path: Path | None, recorded: str | None) -> FailureContract:
    """The named contract, else the one that the run was started with, else the assumed defaults."""
    from lastgood.contract.load import default_contract, load_contract, parse_contract

    if path is not None:
        return load_contract(path)
    if recorded is not None:
        return parse_contract(recorded.encode(), source="contract of the run")
    return default_contract()


def ledger_path(named: Path | None) -> Path:
    """The ledger file that is meant: the named one, else the default.

    Raises:
        BadInput: there is no such file.
    """
    from lastgood.ledger.place import default_ledger

    path = named if named is not None else default_ledger()
    if not os.path.isfile(
        path
    ):  # unlike Path.is_file it does not raise for a name that is too long
        refuse_folder(path)
        raise BadInput(
            "no such ledger",
            where=str(path),
            found="nothing",
            needs="a ledger file",
            next="name the file, set LASTGOOD_LEDGER, or make one: from logs with lastgood import PATH..., "
            "from nothing with lastgood demo",
        )
    return path


def _print_share(share: Share) -> None:
    """What left the house, on stderr: a person reads it before the file is sent."""
    given = ", ".join(f"{count:,} {kind}" for kind, count in sorted(share.distinct.items()))
    places = sum(share.replaced.values())
    click.echo(f"shared: {places:,} places now hold pseudonyms of {given or 'nothing'}", err=True)
    for what, count in share.removed.items():
        click.echo(f"removed: {what}, {count:,} times", err=True)
    click.echo(
        f"note: the root above is not the root of the original, {share.original.root}; "
        "times, numbers, versions and words of failures are as they were",
        err=True,
    )


def _print_result(result: Recomputed, bundle_path: Path) -> None:
    if result.is_equal:
        click.echo(
            f"equal: {result.figure_count} figures ({result.value_count:,} values) of "
            f"{'the fleet' if result.run is None else f'run {result.run}'}, "
            f"recomputed from {result.size:,} events"
        )
    else:
        difference: Any = result.first_difference
        click.echo(f"different: {bundle_path}")
        click.echo(f"  first difference: {difference.where}")
        click.echo(f"  stored:           {difference.stored}")
        click.echo(f"  recomputed:       {difference.recomputed}")
    click.echo(f"root: {result.root}")
    for note in result.notes:
        click.echo(f"note: {note}")


@contextmanager
def stages(count: int) -> Generator[Callable[[str], None]]:
    """A progress bar on stderr, on a terminal only; each call names the stage that begins."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<22}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=count)
        is_first = True

        def begin(stage: str) -> None:
            nonlocal is_first
            progress.update(task, description=stage, advance=0 if is_first else 1)
            is_first = False

        yield begin
