"""What a plan command leaves behind: text or JSON on stdout, a page and pictures where asked for, a bar meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood import __version__
from lastgood.evidence.output_file import Output, write_output

if TYPE_CHECKING:
    from lastgood.cli.plan_inputs import Gathered
    from lastgood.evidence.report import Report, Section


def as_report(section: Section, inputs: Gathered | None, command: str) -> Report:
    """The section with what a stranger needs to get it again."""
    from lastgood.evidence.report import Report, Reproduction

    ledger = inputs.ledger if inputs else None
    records = ledger.records if ledger else None
    return Report(
        title=f"Lastgood {section.title.lower()}",
        subject=inputs.scenario.name if inputs else "",
        as_of_us=records.end_us if records else 0,
        sections=(section,),
        reproduction=Reproduction(
            ledger=inputs.scenario.name if inputs and ledger else "",
            root=ledger.root if ledger else "",
            size=ledger.size if ledger else 0,
            origin="",
            version=__version__,
            command=command,
        ),
    )


def show(report: Report, *, as_json: bool, schema: str) -> None:
    """The section on stdout, as text or JSON, and the command that gives it again."""
    (section,) = report.sections
    made = report.reproduction
    if as_json:
        import msgspec

        from lastgood.evidence.report import figures_in

        document = {
            "schema": schema,
            "command": made.command,
            "version": made.version,
            "ledger_root": made.root,
            "figures": {path: msgspec.to_builtins(figure) for path, figure in figures_in(report)},
            "section": msgspec.to_builtins(section),
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from lastgood.evidence.terminal import print_section

    print_section(section, Console(highlight=False, markup=False, emoji=False))
    click.echo(f"\nagain: {made.command}")
    if made.root:
        click.echo(f"ledger root: {made.root}")


def write_pictures(report: Report, *, html: Path | None, charts: Path | None) -> None:
    """Write the page and the charts, and name them on stderr."""
    if html is not None:
        from lastgood.evidence.html import render_html

        write_output(html, render_html(report).encode(), Output.PAGE)
        click.echo(f"page: {html}", err=True)
    if charts is not None:
        from lastgood.evidence.chart_files import write_charts

        drawn = write_charts(report, charts)
        for path in drawn:
            click.echo(f"chart: {path}", err=True)
        if not drawn:
            click.echo("charts: none; this report has nothing that can be drawn", err=True)


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
