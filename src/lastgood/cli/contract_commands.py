"""`lastgood contract`: check a contract file, explain it, print its schema, write a starter."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lastgood.base.errors import EXIT_BAD_INPUT, EXIT_HELD, BadInput, Problems
from lastgood.evidence.output_file import Output, check_output, write_output

CONTEXT = {"help_option_names": ["-h", "--help"]}
_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings=CONTEXT)
def contract() -> None:
    """Check, explain or start a failure contract.

    A contract names the workload's boundary, what counts as failure, the window, the objectives and budgets,
    who does what by when after a failure, and the evidence that is owed.
    """


@contract.command(context_settings=CONTEXT)
@_FILE
@_JSON
def check(file: Path, *, as_json: bool) -> int:
    """Check FILE and report every problem at once.

    Exits 0 when the contract is complete, evidence duties included, and 2 when it is not.
    """
    from lastgood.contract.explain import assumed_paths
    from lastgood.contract.load import contract_digest, load_contract

    try:
        loaded = load_contract(file, needs_duties=True)
    except Problems as error:
        _print_problems(error, file=file, as_json=as_json)
        return EXIT_BAD_INPUT
    digest, assumed = contract_digest(loaded), assumed_paths(loaded)
    if as_json:
        answer = {
            "ok": True,
            "file": str(file),
            "digest": digest,
            "assumed": assumed,
            "problems": [],
        }
        click.echo(json.dumps(answer, indent=2))
        return EXIT_HELD
    click.echo(f"{file}: complete, digest {digest[:12]}")
    for path in assumed:
        click.echo(f"  assumed: {path}")
    return EXIT_HELD


def _print_problems(error: Problems, *, file: Path, as_json: bool) -> None:
    if as_json:
        rows = [
            {"where": p.where, "what": p.what, "found": p.found, "needs": p.needs, "next": p.next}
            for p in error.problems
        ]
        click.echo(json.dumps({"ok": False, "file": str(file), "problems": rows}, indent=2))
        return
    click.echo(str(error), err=True)
    count = len(error.problems)
    click.echo(f"{file}: refused, {count} problem{'s' if count > 1 else ''}", err=True)


@contract.command(context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE]", required=False)
@click.option(
    "--kind",
    type=click.Choice(["training", "serving", "agents"]),
    default="training",
    show_default=True,
    help="Workload whose defaults are explained when there is no FILE.",
)
@_JSON
def explain(file: Path | None, *, kind: str, as_json: bool) -> int:
    """Say in plain words what FILE promises, and which values are assumed.

    Without FILE: the defaults that apply when no contract was declared.
    """
    from lastgood.contract.explain import assumed_paths
    from lastgood.contract.explain import explain as explain_contract
    from lastgood.contract.load import contract_digest, default_contract, load_contract
    from lastgood.contract.recovery_table import LAYERS

    layer = next(name for name in LAYERS if name == kind)
    loaded = load_contract(file) if file is not None else default_contract(layer)
    paragraphs = explain_contract(loaded)
    if as_json:
        answer = {
            "name": loaded.metadata.name,
            "digest": contract_digest(loaded),
            "is_assumed": loaded.is_assumed,
            "assumed": assumed_paths(loaded),
            "paragraphs": [{"title": p.title, "sentences": p.sentences} for p in paragraphs],
            "contract": loaded.model_dump(mode="json", by_alias=False),
        }
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return EXIT_HELD
    click.echo(f"Failure contract {loaded.metadata.display_name or loaded.metadata.name}")
    for paragraph in paragraphs:
        click.echo(f"\n{paragraph.title}")
        for sentence in paragraph.sentences:
            click.echo(
                click.wrap_text(sentence, width=78, initial_indent="  ", subsequent_indent="    ")
            )
    return EXIT_HELD


@contract.command(context_settings=CONTEXT)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (a schema is always JSON).")
def schema(*, as_json: bool) -> int:
    """Print the JSON Schema of a contract file, for editors and other tools."""
    del as_json  # every read command takes --json; a schema has no other form
    from lastgood.contract.load import contract_schema

    click.echo(json.dumps(contract_schema(), indent=2))
    return EXIT_HELD


@contract.command(context_settings=CONTEXT)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write here instead of to stdout."
)
@click.option("--force", is_flag=True, help="Overwrite a contract that is there.")
def init(*, output: Path | None, force: bool) -> int:
    """Write a commented starter contract that passes `check`."""
    from lastgood.contract.starter import starter_text

    text = starter_text()
    if output is None:
        click.echo(text, nl=False)
        return EXIT_HELD
    check_output(output, Output.CONTRACT)
    if output.is_file() and not force:
        raise BadInput(
            "a contract is there already",
            where=str(output),
            needs="another name, or --force to overwrite it",
            next=f"type: lastgood contract init --force -o {output}",
        )
    write_output(output, text.encode(), Output.CONTRACT)
    click.echo(f"{output}: written; check it with: lastgood contract check {output}", err=True)
    return EXIT_HELD
