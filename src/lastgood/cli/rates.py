"""`lastgood rates`: how often what fails, with intervals that hold when failures come in bursts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood.base.errors import EXIT_HELD, BadInput, Refused
from lastgood.cli.evidence_commands import stages
from lastgood.cli.rate_options import instant_us, mapping_files, rate_options, rates_question
from lastgood.cli.verified_ledger import check_ledgers
from lastgood.evidence.folder_words import is_export, refuse_folder

if TYPE_CHECKING:
    from lastgood.evidence.rates_records import RatesQuestion
    from lastgood.evidence.rates_study import FleetStudies
    from lastgood.evidence.report import Section

BY = ("class", "cause", "domain", "label", "host")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ledger", type=click.Path(path_type=Path), metavar="PATH", help="A ledger, or a folder that export wrote [default: as for verify].")  # fmt: skip
@click.option("--by", multiple=True, type=click.Choice(BY), help="Which tables [default: all that say anything].")  # fmt: skip
@rate_options
@click.option("--compare", nargs=2, metavar="A B", help="Compare two ledgers, or two windows BEGIN..END of --ledger.")  # fmt: skip
@click.option("--format", "format_name", type=click.Choice(["text", "csv", "latex", "json"]), help="How to print it [default: text].")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def rates(
    *,
    ledger: Path | None,
    by: tuple[str, ...],
    compare: tuple[str, str] | None,
    mappings: tuple[str, ...],
    format_name: str | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Count the failures of a ledger and give their rates, trends and intervals.

    Exposure comes from join and leave records, else from --devices or --nodes; without it there are counts and no
    rate. Injected faults are never counted.
    """
    question = rates_question(**asked)
    files = mapping_files(mappings)
    form = _form(format_name, as_json=as_json)
    if compare:
        return _compare(compare, ledger=ledger, question=question, by=by, files=files, form=form)
    path = ledger_or_export(ledger)
    check_ledgers([path])
    studies = _studies(path, question, by, files)
    if form == "text":
        _print_section(_rates_section(studies))
        return EXIT_HELD
    from lastgood.evidence.rates_rows import rate_rows, rates_csv, rates_latex

    rows = rate_rows(studies)
    if form == "csv":
        click.echo(rates_csv(rows), nl=False)
    elif form == "latex":
        click.echo(rates_latex(rows, studies), nl=False)
    else:
        click.echo(json.dumps(_document(studies, rows, str(path)), indent=1, ensure_ascii=False))
    return EXIT_HELD


def _form(named: str | None, *, as_json: bool) -> str:
    """The one form that is asked for.

    Raises:
        BadInput: two forms at once.
    """
    if as_json and named not in {None, "json"}:
        raise BadInput(
            "one form at a time",
            where="--format, --json",
            found=f"--format {named} and --json",
            needs="one of them",
            next=f"leave out --json, or --format {named}",
        )
    return "json" if as_json else named or "text"


def ledger_or_export(named: Path | None) -> Path:
    """The ledger file or export folder that is meant.

    Raises:
        BadInput: there is none.
    """
    from lastgood.ledger.place import default_ledger

    path = named if named is not None else default_ledger()
    if path.is_dir() and not is_export(path):
        refuse_folder(path)
    if path.exists():
        return path
    raise BadInput(
        "no such ledger",
        where=str(path),
        found="nothing",
        needs="a ledger file, or a folder that lastgood export wrote",
        next="make one with: lastgood import PATH... --ledger LEDGER",
    )


def _studies(
    path: Path,
    question: RatesQuestion,
    by: tuple[str, ...],
    files: dict[str, Path],
    name: str = "all",
) -> FleetStudies:
    from lastgood.evidence.rates_report import read_records
    from lastgood.evidence.rates_study import study_fleet
    from lastgood.ledger.life import PROGRESS_FORMATS

    with stages(1) as on_stage:
        on_stage("reading the records")
        records = read_records(path, question, files)
    formats = {said.format for said in records.coverage}
    if formats and formats <= PROGRESS_FORMATS:
        raise Refused(
            "a rate of failures cannot come from a log of steps, which holds none by its nature",
            where=str(path),
            found=" and ".join(sorted(map(str, formats))),
            needs="a log that tells of failures: a kernel's, a scheduler's, an incident log",
            next=f"for the run itself: lastgood report --ledger {path}",
        )
    with stages(1) as on_stage:
        on_stage("computing")
        return study_fleet(records, by=by or None, name=name)


def _rates_section(studies: FleetStudies) -> Section:
    """Counts and trends under one head, for the terminal."""
    from lastgood.evidence.rates_answers import fleet_headline
    from lastgood.evidence.rates_nodes_part import durations_section
    from lastgood.evidence.rates_part import counts_section, trend_section
    from lastgood.evidence.report import Section

    parts = [counts_section(studies), trend_section(studies), durations_section(studies)]
    return Section(
        name="rates",
        title="Rates",
        headline=fleet_headline(studies),
        parts=tuple(part for part in parts if part is not None),
    )


def _print_section(section: Section) -> None:
    from rich.console import Console

    from lastgood.evidence.terminal import print_section

    print_section(section, Console(highlight=False, markup=False, emoji=False))


def _document(studies: FleetStudies, rows: list[dict[str, Any]], ledger: str) -> dict[str, Any]:
    from lastgood.evidence.rates_plain import studies_plain

    return {"schema": "lastgood.rates/1", "ledger": ledger, **studies_plain(studies), "rows": rows}


def _compare(
    pair: tuple[str, str],
    *,
    ledger: Path | None,
    question: RatesQuestion,
    by: tuple[str, ...],
    files: dict[str, Path],
    form: str,
) -> int:
    from lastgood.evidence.rates_compare_part import compare_section, comparison_plain

    _check_words(pair, ledger, question)
    sides = [_side(word, ledger, question) for word in pair]
    check_ledgers(path for path, _ in sides)
    a, b = (
        _studies(path, own, by, files, name=name)
        for (path, own), name in zip(sides, ("A", "B"), strict=True)
    )
    _refuse_overlap(sides, (a, b), pair)
    if form == "json":
        document = comparison_plain(a, b, names=pair)
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    elif form == "text":
        _print_section(compare_section(a, b, names=pair))
    else:
        raise BadInput(
            "a comparison has no such form",
            where="--format",
            found=form,
            needs="text | json",
        )
    return EXIT_HELD


def _is_window(word: str) -> bool:
    return ".." in word and not Path(word).exists()


def _check_words(pair: tuple[str, str], ledger: Path | None, question: RatesQuestion) -> None:
    """Refuse an option that a side of the comparison would set aside in silence.

    Raises:
        BadInput: --ledger beside two ledgers, or --since and --until beside windows.
    """
    shown = f"--compare {pair[0]} {pair[1]}"
    if ledger is not None and not any(_is_window(word) for word in pair):
        raise BadInput(
            "both sides name their ledger themselves",
            where="--ledger",
            found=f"--ledger {ledger} beside {shown}",
            needs="no --ledger, or a window BEGIN..END of it",
        )
    for name, given, at in (("--since", question.since_us, 0), ("--until", question.until_us, 2)):
        if given is not None and any(
            _is_window(word) and word.partition("..")[at] for word in pair
        ):
            raise BadInput(
                "the windows say this themselves",
                where=name,
                found=f"{name} beside {shown}",
                needs="one of them",
                next=f"leave out {name}, or the same end of the windows",
            )


def _refuse_overlap(
    sides: list[tuple[Path, RatesQuestion]],
    found: tuple[FleetStudies, FleetStudies],
    pair: tuple[str, str],
) -> None:
    """One incident on both sides makes them alike by construction: what is compared has to be apart.

    Raises:
        BadInput: two windows of one ledger that share time.
    """
    from lastgood.evidence.wording import instant_text

    if sides[0][0].resolve() != sides[1][0].resolve():
        return
    shared = [
        (max(a[0], b[0]), min(a[1], b[1]))
        for a in found[0].records.windows
        for b in found[1].records.windows
        if max(a[0], b[0]) < min(a[1], b[1])
    ]
    if shared:
        first, last = (instant_text(t)[:16] for t in (shared[0][0], shared[-1][1]))
        raise BadInput(
            "the two sides of a comparison share incidents",
            where=f"--compare {pair[0]} {pair[1]}",
            found=f"{first} to {last} UTC of one ledger on both sides",
            needs="windows that do not overlap, or two ledgers",
            next="cut at one time: --compare ..TIME TIME..",
        )


def _side(word: str, ledger: Path | None, question: RatesQuestion) -> tuple[Path, RatesQuestion]:
    """One side of a comparison: `BEGIN..END` is a window of the ledger, anything else a ledger of its own."""
    import msgspec

    if _is_window(word):
        begin, _, end = word.partition("..")
        window = msgspec.structs.replace(
            question,
            since_us=instant_us(begin, where="--compare") if begin else question.since_us,
            until_us=instant_us(end, where="--compare") if end else question.until_us,
        )
        return ledger_or_export(ledger), window
    return ledger_or_export(Path(word)), question
