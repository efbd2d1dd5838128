"""`lastgood drill training`: play the catalogue of faults, and hold what was found against what was expected."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood import __version__
from lastgood.base.errors import (
    EXIT_HELD,
    EXIT_INTERRUPTED,
    EXIT_NOT_HELD,
    EXIT_REFUSED,
    BadInput,
    LedgerCorrupt,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.training.drills.drill import Drill
    from lastgood.training.drills.series import Series

CONTEXT = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=CONTEXT)
def drill() -> None:
    """Break a small job on purpose, by a catalogue, and judge from records whether it held."""


@drill.command(context_settings=CONTEXT)
@click.option(
    "--faults",
    metavar="NAMES",
    help="Drills or groups to play, such as kill-rank,hangs [default: all].",
)
@click.option("--list", "is_list", is_flag=True, help="List the drills and play none.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the evidence; drills that held there are not played again [default: lastgood-drills/<made up>].",
)
@click.option("--again", "is_again", is_flag=True, help="Play also what held before.")
@click.option(
    "--contract",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Failure contract of the jobs; it may name who owns evidence that failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def training(
    *,
    faults: str | None,
    is_list: bool,
    output: Path | None,
    is_again: bool,
    contract: Path | None,
    as_json: bool,
) -> int:
    """Break a training job by every fault of the catalogue.

    A job of four ranks and a spare is killed, stopped, confused and starved by another process; afterwards the records
    are held against what each drill expects: detected in time, the right rank named, recovered, verified, nothing
    lost that need not be. Ctrl-C keeps what was played, and the same -o goes on from there.
    Exits 0 when every drill held, 1 when one did not, 3 when one could not be played.
    """
    from lastgood.training.drills.catalogue import chosen_drills

    drills = chosen_drills(faults)
    if is_list:
        _print_list(drills, as_json=as_json)
        return EXIT_HELD
    from lastgood.cli.demo import need_torch

    need_torch("lastgood drill training")
    folder = _folder(output)
    series = _play(drills, folder, contract=contract, is_again=is_again, is_quiet=as_json)
    page = _write_page(folder, series)
    if as_json:
        click.echo(json.dumps(_plain(series, folder, page), indent=1, ensure_ascii=False))
    else:
        _print_end(series, folder, page, faults=faults)
    if series.is_interrupted:
        return EXIT_INTERRUPTED
    if series.has_held:
        return EXIT_HELD
    return EXIT_NOT_HELD if any(not v.has_held for v in series.verdicts) else EXIT_REFUSED


def _folder(output: Path | None) -> Path:
    folder = output or Path("lastgood-drills") / secrets.token_hex(3)
    is_ours = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_ours and not (folder / "jobs").is_dir():  # a ledger alone is somebody's own
        raise BadInput(
            "this is no folder of drills", where=f"-o {folder}",
            found="a folder with other things in it" if folder.is_dir() else "a file",
            needs="a new folder, or one that lastgood drill training made",
        )  # fmt: skip
    _require_held(folder)
    return folder


def _require_held(folder: Path) -> None:
    """What held before is read from the ledger of the folder, and what is played goes into it."""
    from lastgood.ledger.appendable import require_appendable

    ledger = folder / "ledger.db"
    try:
        note = require_appendable(ledger)
    except LedgerCorrupt as error:
        error.next = f"run: lastgood verify {ledger}; keep {folder} as it is, and play into a new one: -o DIR"
        raise
    if note is not None:
        click.echo(f"lastgood: {note}", err=True)


def _play(
    drills: Sequence[Drill], folder: Path, *, contract: Path | None, is_again: bool, is_quiet: bool
) -> Series:
    from lastgood.cli.drill_view import DrillView
    from lastgood.training.drills.series import Watcher, play_series

    with DrillView(len(drills), is_quiet=is_quiet) as view:
        return play_series(
            drills,
            folder,
            contract=contract,
            is_again=is_again,
            watcher=Watcher(
                on_job=view.begin_job,
                on_event=view.show,
                on_turn=view.turn,
                on_twin=view.begin_twin,
                on_verdict=view.end_drill,
                on_kept=view.kept,
            ),
        )


def _write_page(folder: Path, series: Series) -> Path | None:
    """The page over everything in the folder, also over drills that this call did not choose."""
    from lastgood.base.clock import SystemClock
    from lastgood.evidence.html import render_html
    from lastgood.evidence.output_file import Output, write_output
    from lastgood.ledger.store import open_store
    from lastgood.training.drills.page import build_page
    from lastgood.training.drills.series import verdicts_in

    ledger = folder / "ledger.db"
    if not ledger.is_file():
        return None
    with open_store(ledger, create=False) as store:
        verdicts, head = verdicts_in(store.events()), store.head()
    report = build_page(
        verdicts,
        not_played=series.not_played,
        subject=folder.name,
        head=head,
        version=__version__,
        as_of_us=SystemClock().wall_us(),
    )
    page = folder / "report.html"
    write_output(page, render_html(report).encode(), Output.PAGE)
    return page


def _print_list(drills: Sequence[Drill], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": d.name, "group": d.group, "title": d.title, "expected": d.expected_in_words,
                "owner": d.owner, "about_s": d.about_s,
            }
            for d in drills
        ]  # fmt: skip
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    from lastgood.training.drills.catalogue import about_s, jobs_of

    group = None
    for d in drills:
        if d.group != group:
            click.echo(f"{'' if group is None else chr(10)}{d.group}")
            group = d.group
        click.echo(f"  {d.name:<24} {d.title}")
        click.echo(f"  {'':<24} {d.expected_in_words}; owner {d.owner}; about {d.about_s} s")
    minutes = max(1, round(about_s(drills) / 60))
    count, jobs = len(drills), len(jobs_of(drills))
    click.echo(
        f"\n{count} drill{'' if count == 1 else 's'} in {jobs} job{'' if jobs == 1 else 's'}, "
        f"about {minutes} min on a quiet machine"
    )


def _print_end(series: Series, folder: Path, page: Path | None, *, faults: str | None) -> None:
    broken = [v for v in series.verdicts if not v.has_held]
    held = len(series.verdicts) - len(broken)
    word = "drill" if held == 1 else "drills"
    click.echo(f"\n{held} {word} held, {len(broken)} did not, {len(series.not_played)} not played.")
    click.echo("Faults were injected, on this machine, n=1 each: they say nothing about a fleet.")
    for verdict in broken:
        click.echo(
            f"  {verdict.drill}: evidence in {folder / verdict.folder}; owner {verdict.owner}"
        )
    if page is not None:
        click.echo(f"page    {page}", err=True)
        click.echo(f"ledger  {folder / 'ledger.db'}", err=True)
    if broken or series.not_played:
        chosen = "" if faults is None else f" --faults {faults}"
        click.echo(f"next: lastgood drill training{chosen} -o {folder}", err=True)


def _plain(series: Series, folder: Path, page: Path | None) -> dict[str, Any]:
    import msgspec

    return {
        "held": series.has_held,
        "interrupted": series.is_interrupted,
        "drills": [{**msgspec.to_builtins(v), "held": v.has_held} for v in series.verdicts],
        "kept": list(series.kept),
        "not_played": list(series.not_played),
        "ledger": str(folder / "ledger.db"),
        "page": None if page is None else str(page),
    }
