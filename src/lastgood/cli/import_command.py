"""`lastgood import`: the logs that a site already has, as events of a ledger, with a table of what became of every row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.base.errors import EXIT_HELD, BadInput
from lastgood.evidence.folder_words import refuse_folder

if TYPE_CHECKING:
    from lastgood.ledger.importers.importer import Options
    from lastgood.ledger.importers.result import ImportResult, Progress

CONTEXT = {"help_option_names": ["-h", "--help"]}
LOSSES_MAX = 10
QUIET_US = 1_000_000
"""An import that is over within a second shows no bar."""


@click.command(name="import", context_settings=CONTEXT)
@click.argument("words", nargs=-1, metavar="[FORMAT] PATH...")
@click.option("--ledger", type=click.Path(path_type=Path), metavar="FILE", help="The ledger; default as for verify.")  # fmt: skip
@click.option("--host", metavar="NAME", help="The host of the files, where the lines do not name one.")  # fmt: skip
@click.option("--zone", metavar="ZONE", help="Time zone of times without one, such as Europe/Berlin or +02:00 [default: UTC, marked inferred].")  # fmt: skip
@click.option("--year", type=click.IntRange(1990, 2099), metavar="YEAR", help="Year of the first line, where times have none [default: from the file's own time, marked inferred].")  # fmt: skip
@click.option("--boot", metavar="TIME", help="When the host was started, for lines that count seconds from there.")  # fmt: skip
@click.option("--run", "run_id", metavar="NAME", help="The run that all of it belongs to.")
@click.option("--cluster", metavar="NAME", help="The cluster, where the files do not name one.")
@click.option("--devices-per-node", type=click.IntRange(1, 1024), metavar="N", help="Accelerators of a node, where the files do not say.")  # fmt: skip
@click.option("--map", "column_map", type=click.Path(path_type=Path), metavar="FILE", help="What the columns of a table mean (format table), or a preset: acme-seren, acme-kalos, helios, philly.")  # fmt: skip
@click.option("--guess", "is_guess", is_flag=True, help="Print a proposed column map for one table, with what is unsure in it, and stop.")  # fmt: skip
@click.option("--mapping", "mappings", multiple=True, metavar="NAME=FILE", help="Use this table instead of the shipped one, such as xid=my-xid.json.")  # fmt: skip
@click.option("--keep-raw", is_flag=True, help="Keep the rows as they were read in LEDGER.raw; not masked.")  # fmt: skip
@click.option("--strict", "is_strict", is_flag=True, help="Stop at the first row that cannot be taken.")  # fmt: skip
@click.option("--formats", "is_list", is_flag=True, help="List the formats and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_(
    *,
    words: tuple[str, ...],
    ledger: Path | None,
    host: str | None,
    zone: str | None,
    year: int | None,
    boot: str | None,
    run_id: str | None,
    cluster: str | None,
    devices_per_node: int | None,
    column_map: Path | None,
    is_guess: bool,
    mappings: tuple[str, ...],
    keep_raw: bool,
    is_strict: bool,
    is_list: bool,
    as_json: bool,
) -> int:
    """Import logs into a ledger and say what became of every row.

    PATH is a file, a folder of files, or - for standard input; .gz is unpacked. FORMAT is one of --formats; when it
    is left out it is detected and said. Importing twice changes nothing, and overlapping files merge. Exit 0: every
    file gave rows or was read whole; rejected rows are in the table. 1: something of the files was lost: one is
    damaged, has no known format, or gave no row. 2: nothing of any file was taken, no such file or format, or
    --strict met a bad row or file.
    """
    if is_list:
        click.echo(_formats_json() if as_json else _formats_text())
        return EXIT_HELD
    if run_id is not None and not run_id.strip():
        raise BadInput(
            "a run needs a name", where="--run", found="nothing", needs="a name, or no --run at all"
        )
    if is_guess:
        return _guess(words, as_json=as_json)
    from lastgood.ledger.importers.importer import Options

    options = Options(
        host=host,
        year=year,
        zone=zone,
        run=run_id,
        cluster=cluster,
        devices_per_node=devices_per_node,
        boot_us=None if boot is None else _boot_us(boot, zone),
        column_map=column_map,
        keep_raw=keep_raw,
        is_strict=is_strict,
        mappings=parse_mappings(mappings),
    )
    result = run_import(words, ledger=ledger, options=options)
    if as_json:
        click.echo(json.dumps(result.to_plain(), indent=1, ensure_ascii=False))
    else:
        from lastgood.cli.import_view import print_result

        print_result(result)
    _say_losses(result)
    return result.exit_code


def _say_losses(result: ImportResult) -> None:
    """Says on stderr, file by file, what is not in the ledger."""
    is_partial = any(file.is_taken for file in result.files)
    begin = "not all of it was taken" if is_partial else "nothing was taken"
    losses = result.losses
    for loss in losses[:LOSSES_MAX]:
        click.echo(f"lastgood: {begin}: {loss}", err=True)
    if len(losses) > LOSSES_MAX:
        click.echo(f"lastgood: and {len(losses) - LOSSES_MAX:,} more files", err=True)


def run_import(words: Sequence[str], *, ledger: Path | None, options: Options) -> ImportResult:
    """Imports `[FORMAT] PATH...` with a progress bar; an interrupt says what is already in the ledger."""
    from lastgood.ledger.appendable import require_appendable
    from lastgood.ledger.importers.driver import import_files
    from lastgood.ledger.place import check_place, default_ledger

    format_name, paths = split_words(words)
    refuse_folder(ledger or default_ledger())
    place = default_ledger() if ledger is None else check_place(ledger)
    if note := require_appendable(place):
        click.echo(note, err=True)
    done: list[Progress] = []
    try:
        with _bar() as show:

            def on_progress(progress: Progress) -> None:
                done[:] = [progress]
                show(progress)

            return import_files(
                paths, ledger=place, format=format_name, options=options, on_progress=on_progress
            )
    except KeyboardInterrupt:
        count = done[0].events_new if done else 0
        click.echo(
            f"lastgood: interrupted in {done[0].name if done else 'the first file'}; at least {count:,} new events are "
            f"in {place}. Run the same command again: what is there is not added twice.",
            err=True,
        )
        raise


def split_words(words: Sequence[str]) -> tuple[str | None, list[Path]]:
    """Format and paths: the first word is a format when it has the name of one and something follows.

    Raises:
        BadInput: Nothing is named, or the first word is neither a format nor a file.
    """
    from lastgood.ledger.importers.registry import FORMATS, importer

    if not words:
        raise BadInput(
            "nothing to import",
            where="PATH",
            needs="at least one file, or - for standard input",
            next="run: lastgood import --formats",
        )
    first, rest = words[0], words[1:]
    if first in FORMATS and (rest or not os.path.exists(first)):
        if not rest:
            raise BadInput(
                "a format without a file", where="PATH", found=repr(first), needs="a file, or -"
            )
        return first, [Path(word) for word in rest]
    if (
        rest
        and first != "-"
        and not os.path.exists(first)
        and os.sep not in first
        and "." not in first
    ):
        importer(first)  # says which formats there are
    return None, [Path(word) for word in words]


def parse_mappings(words: Sequence[str]) -> dict[str, Path]:
    """`NAME=FILE` words as a table of files.

    Raises:
        BadInput: A word of another form.
    """
    found: dict[str, Path] = {}
    for word in words:
        name, sign, file = word.partition("=")
        if not sign or not name or not file:
            from lastgood.ledger.importers.mapping import mapping_names

            raise BadInput(
                "not a mapping",
                where="--mapping",
                found=repr(word),
                needs=f"NAME=FILE with NAME one of {' | '.join(mapping_names())}",
                next="write --mapping xid=my-xid.json",
            )
        found[name] = Path(file)
    return found


def _guess(words: Sequence[str], *, as_json: bool) -> int:
    """Prints the proposed map on stdout, so that it can be kept as a file, and what is unsure on stderr."""
    from lastgood.ledger.importers.table_guess import guess_file

    _, paths = split_words(words)
    if len(paths) != 1:
        raise BadInput(
            "a guess is made for one table", found=f"{len(paths)} files", needs="one file"
        )
    guess = guess_file(paths[0])
    if as_json:
        click.echo(
            json.dumps({"map": guess.text, "unsure": guess.unsure, "rows_seen": guess.rows_seen})
        )
        return EXIT_HELD
    click.echo(guess.text, nl=False)
    click.echo(
        f"lastgood: guessed from {guess.rows_seen} rows; nothing was imported. Unsure:", err=True
    )
    for sentence in guess.unsure or ("nothing; read it all the same",):
        click.echo(f"  - {sentence}", err=True)
    click.echo(f"Then: lastgood import table {paths[0]} --map map.yaml", err=True)
    return EXIT_HELD


def _boot_us(text: str, zone: str | None) -> int:
    from lastgood.ledger.importers.times import RowProblem, Times

    try:
        return Times(zone=zone).parse(text).t_us
    except RowProblem as problem:
        raise BadInput(
            "not a time",
            where="--boot",
            found=repr(text),
            needs="such as 2026-11-02T03:14:07Z (uptime -s prints it)",
        ) from problem


def _formats_text() -> str:
    from lastgood.ledger.importers.registry import FORMATS, importer

    width = max(map(len, FORMATS))
    return "\n".join(f"{name:<{width}}  {importer(name).title}" for name in FORMATS)


def _formats_json() -> str:
    from lastgood.ledger.importers.registry import FORMATS, importer

    formats = [importer(name) for name in FORMATS]
    return json.dumps([{"name": f.name, "version": f.version, "title": f.title} for f in formats])


@contextmanager
def _bar() -> Generator[Callable[[Progress], None]]:
    """A progress bar on stderr, on a terminal only, from the second second on."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    from lastgood.base.clock import SystemClock

    clock = SystemClock()
    begin_us = clock.monotonic_us()
    columns = (
        TextColumn("{task.description:<24.24}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[events]:,} events"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None, events=0)

    def show(done) -> None:  # noqa: ANN001 - a Progress of the driver
        if not bar.live.is_started and clock.monotonic_us() - begin_us < QUIET_US:
            return
        total = done.size if done.size is None else max(done.size, done.position)
        events = done.events_new + done.events_merged
        bar.update(task, description=done.name, completed=done.position, total=total, events=events)
        bar.start()  # nothing happens when it is on

    try:
        yield show
    finally:
        bar.stop()
