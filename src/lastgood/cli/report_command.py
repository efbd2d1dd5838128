"""`lastgood report`: what happened, from a ledger, or from log files that are imported for the moment.

A path that is a ledger (or an export of one) is read as it is. Any other files go into a temporary ledger first, which
is said, so that a look at a log takes one command.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood import __version__
from lastgood.base.errors import EXIT_HELD, BadInput
from lastgood.cli.evidence_commands import (
    CONTEXT,
    chosen_contract,
    ledger_path,
    section_builders,
    stages,
)
from lastgood.cli.rate_options import (
    mapping_files,
    rate_options,
    rates_question,
    refuse_rate_options,
)
from lastgood.cli.verified_ledger import check_ledgers
from lastgood.evidence.folder_words import is_bundle, is_bundle_file, is_export, refuse_folder
from lastgood.evidence.output_file import Output, check_output, write_output

if TYPE_CHECKING:
    from lastgood.evidence.rates_records import RatesQuestion
    from lastgood.evidence.report import Report

SQLITE = b"SQLite format 3\x00"
"""How the file of a database begins."""
NO_CHARTS = "charts: none; this report has nothing that can be drawn"


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[LEDGER | FILE...]")
@click.option("--ledger", type=click.Path(path_type=Path), metavar="PATH", help="The ledger, named by an option.")  # fmt: skip
@click.option("--run", metavar="NAME", help="Which run; the newest when left out.")
@click.option("--contract", type=click.Path(path_type=Path), metavar="FILE", help="The failure contract [default: the run's own, else assumed defaults].")  # fmt: skip
@rate_options
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write one self-contained page (no script, no network).")  # fmt: skip
@click.option("--charts", type=click.Path(path_type=Path), metavar="DIR", help="Also write every chart as a file.")  # fmt: skip
@click.option("--chart-format", type=click.Choice(["svg", "pdf"]), help="Kind of the chart files of --charts [default: svg].")  # fmt: skip
@click.option("--full", "is_full", is_flag=True, help="Print every part of a run's report, not only the first screen.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(
    paths: tuple[Path, ...],
    *,
    ledger: Path | None,
    run: str | None,
    contract: Path | None,
    mappings: tuple[str, ...],
    html: Path | None,
    charts: Path | None,
    chart_format: str | None,
    is_full: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Show what happened, from a ledger or from log files.

    LEDGER is a ledger file or an export of one; when left out it is $LASTGOOD_LEDGER or this machine's default. Any
    other FILE is imported into a temporary ledger first. Nothing is written unless --html or --charts asks for it.
    """
    _check_options(charts, chart_format, is_full=is_full, as_json=as_json)
    question = rates_question(**asked)
    stored = _stored(paths, ledger)
    named_mappings = mapping_files(mappings)
    if html is not None:
        check_output(html, Output.PAGE, inputs=[stored, contract, *paths, *named_mappings.values()])
    if stored is not None:
        check_ledgers([stored])
    with stages(3 if html or charts else 2) as on_stage, _opened(stored, paths, on_stage) as (path, named, code):  # fmt: skip
        on_stage("reading the ledger")
        made = _make_report(
            path,
            named=named,
            source=shlex.join(map(str, [stored] if stored is not None else paths)),
            run=run,
            contract=contract,
            question=question,
            mappings=named_mappings,
        )
        if html is not None or charts is not None:
            on_stage("drawing")
        if html is not None:
            from lastgood.evidence.html import render_html

            write_output(html, render_html(made).encode(), Output.PAGE)
        drawn = []
        if charts is not None:
            from lastgood.evidence.chart_files import write_charts

            drawn = write_charts(made, charts, format_name=chart_format or "svg")
    _print_report(made, as_json=as_json, is_full=is_full)
    if html is not None:
        click.echo(f"page: {html}", err=True)
    if charts is not None:
        click.echo(f"charts: {len(drawn)} in {charts}" if drawn else NO_CHARTS, err=True)
    return code


def _check_options(
    charts: Path | None, chart_format: str | None, *, is_full: bool, as_json: bool
) -> None:
    """Refuse an option whose partner is missing, and two that contradict each other."""
    if chart_format is not None and charts is None:
        raise BadInput(
            "there are no chart files to have a kind",
            where="--chart-format",
            needs="--charts DIR",
            next=f"lastgood report ... --charts DIR --chart-format {chart_format}",
        )
    if is_full and as_json:
        raise BadInput(
            "JSON always holds every part", where="--full", needs="--full or --json, not both",
            next="leave out --full",
        )  # fmt: skip


def _print_report(made: Report, *, as_json: bool, is_full: bool) -> None:
    if as_json:
        from lastgood.evidence.report import plain

        click.echo(json.dumps(plain(made), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from lastgood.evidence.brief import is_brief, print_brief
    from lastgood.evidence.terminal import print_report

    draw = print_brief if is_brief(made) and not is_full else print_report
    draw(made, Console(highlight=False, markup=False, emoji=False))


# --- what is read -------------------------------------------------------------------------------------------


def _stored(paths: Sequence[Path], ledger: Path | None) -> Path | None:
    """The ledger or export that is meant; None for files that have to be imported first.

    Raises:
        BadInput: a ledger beside files, two ledgers, or no such path.
    """
    named = [*([ledger] if ledger is not None else []), *paths]
    for path in named:
        if is_bundle(path) or is_bundle_file(path):
            refuse_folder(path)
    stored = [path for path in named if is_ledger(path) or is_export(path)]
    if len(paths) == 1 and not stored and _is_empty_file(paths[0]):
        # No log either: it is taken for a ledger, and whoever opens it says that it is none.
        stored = [*paths]
    if len(named) <= 1 and (not named or stored or ledger or not os.path.exists(named[0])):
        return named[0] if stored and is_export(named[0]) else ledger_path(named[0] if named else None)  # fmt: skip
    if stored or ledger is not None:
        raise BadInput(
            "a report is about one ledger, or about files",
            where="lastgood report",
            found=", ".join(str(path) for path in named[:4]),
            needs="one ledger, or only files",
            next="bring files into a ledger with: lastgood import FILE... --ledger LEDGER",
        )
    return None


@contextmanager
def _opened(
    stored: Path | None, paths: Sequence[Path], on_stage: Any
) -> Generator[tuple[Path, str, int]]:
    """The ledger to read, how the report names it, and the exit code of what was read.

    Files are imported into a ledger that is gone afterwards.
    """
    if stored is not None:
        yield stored, str(stored), EXIT_HELD
        return
    with tempfile.TemporaryDirectory(prefix="lastgood-report-") as folder:
        place = Path(folder) / "temporary.db"
        on_stage("importing")
        code = _import(paths, place)
        more = " and more" if len(paths) > 4 else ""
        yield place, f"temporary, from {', '.join(path.name for path in paths[:4])}{more}", code


def is_ledger(path: Path) -> bool:
    """True for a file that can only be a ledger, whatever its name.

    Not the application id: of a ledger that is being written, or whose writer was killed, it may still stand in the
    log beside the file. Whether a database is a ledger is said by whoever opens it.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(SQLITE))
    except OSError:
        return False
    return head == SQLITE or (not head and path.with_name(path.name + "-wal").exists())


def _is_empty_file(path: Path) -> bool:
    return os.path.isfile(path) and not os.path.getsize(path)


def _import(paths: Sequence[Path], place: Path) -> int:
    from lastgood.ledger.importers.driver import import_files

    result = import_files(list(paths), ledger=place)
    total = result.total
    for file in result.files[:8]:
        click.echo(f"{file.name}: {file.format or ('left out' if file.left_out else 'empty')}{' (detected)' if file.is_detected else ''}", err=True)  # fmt: skip
    click.echo(
        f"imported into a temporary ledger: {total.read:,} rows read, {total.accepted:,} accepted, "
        f"{total.ignored_count:,} ignored, {total.rejected_count:,} rejected",
        err=True,
    )
    for reason, rejection in list(total.rejected.items())[:8]:
        first = rejection.examples[0].locator if rejection.examples else ""
        click.echo(f"rejected: {reason} ({rejection.count:,}, first at {first})", err=True)
    for loss in [file.loss for file in result.files if file.loss is not None][:8]:
        click.echo(f"! {loss}", err=True)
    return result.exit_code


# --- the report ---------------------------------------------------------------------------------------------


def _make_report(
    path: Path,
    *,
    named: str,
    source: str,
    run: str | None,
    contract: Path | None,
    question: RatesQuestion,
    mappings: dict[str, Path],
) -> Report:
    from lastgood.base.clock import SystemClock
    from lastgood.evidence.assemble import (
        Question,
        build_report,
        events_of_run,
        recorded_contract,
        report_instant_us,
        reported_run,
    )
    from lastgood.evidence.rates_report import fleet_part
    from lastgood.ledger.store import read_store

    if path.is_dir():
        _refuse_run_options(path, run, contract)
        return _export_report(path, question=question, mappings=mappings)
    with read_store(path) as store:
        head = store.head()
        chosen = reported_run(store, run)
        events = events_of_run(store, chosen)
    fleet = fleet_part(path, question, mappings)
    if fleet is None:
        refuse_rate_options(named, question, mappings)
    declared = chosen_contract(contract, recorded_contract(events))
    as_of_us = report_instant_us(
        events,
        chosen,
        now_us=SystemClock().wall_us(),
        records_end_us=fleet.end_us if fleet else None,
    )
    asked = Question(
        run=chosen,
        as_of_us=as_of_us,
        ledger=named,
        command=_command(source, chosen, contract, question if fleet else None, mappings),
        version=__version__,
        rates=question if fleet else None,
    )
    return build_report(
        events,
        declared,
        question=asked,
        head=head,
        builders=section_builders(),
        fleet=fleet.section if fleet else None,
    )


def _refuse_run_options(path: Path, run: str | None, contract: Path | None) -> None:
    """An export holds columns of all runs and the contract of none."""
    for name, given in (("--run", run), ("--contract", contract)):
        if given is not None:
            raise BadInput(
                "an export has no run to look at event by event",
                where=name,
                found=f"{name} {given} for the export {path}",
                needs="the ledger itself",
                next=f"lastgood report LEDGER {name} {given}",
            )


def _export_report(path: Path, *, question: RatesQuestion, mappings: dict[str, Path]) -> Report:
    """The fleet's report from an export, which holds no run to look at event by event."""
    from lastgood.evidence.assemble import Question
    from lastgood.evidence.computed import compute_export

    asked = Question(
        run=None,
        as_of_us=0,
        ledger=str(path),
        command=_command(shlex.quote(str(path)), None, None, question, mappings),
        version=__version__,
    )
    return compute_export(path, asked, question, mappings)


def _command(
    source: str,
    run: str | None,
    contract: Path | None,
    question: RatesQuestion | None,
    mappings: Mapping[str, Path],
) -> str:
    """The command that gives this report again, from where this one was typed."""
    from lastgood.evidence.wording import instant_text
    from lastgood.ledger.grouping import REPORT_RULE

    words = [("--run", run), ("--contract", contract)]
    if question is not None:
        fixed = question.interval_method if question.interval_method != "auto" else None
        times = [
            None if t is None else instant_text(t).removesuffix(" UTC").replace(" ", "T")
            for t in (question.since_us, question.until_us)
        ]
        words += [
            ("--nodes", question.nodes),
            ("--devices", question.devices),
            ("--group", None if question.rule == REPORT_RULE.spec else question.rule),
            ("--interval", fixed),
            ("--since", times[0]),
            ("--until", times[1]),
            *(("--mapping", f"{name}={file}") for name, file in mappings.items()),
        ]
    given = (f"{option} {shlex.quote(str(value))}" for option, value in words if value is not None)
    return " ".join(["lastgood report", source, *given])
