"""`lastgood key`: make a key that signs tree heads, and show the line that checks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.base.errors import EXIT_HELD

if TYPE_CHECKING:
    from lastgood.ledger.signing_key import Verifier

CONTEXT = {"help_option_names": ["-h", "--help"]}
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings=CONTEXT)
def key() -> None:
    """Make a key that signs tree heads, and show the line that checks it.

    `lastgood verify LEDGER --save-head FILE --sign-key KEY` signs; `lastgood verify LEDGER --head FILE
    --verifier LINE` checks. Keep the key away from the ledger: whoever has both can sign another history.
    """


@key.command(context_settings=CONTEXT)
@click.option("--name", required=True, help="Who signs; it stands in each signature.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it (mode 0600); nothing is overwritten.",
)
@_JSON
def new(*, name: str, output: Path, as_json: bool) -> int:
    """Make an Ed25519 key and print its verifier line."""
    from lastgood.ledger.signing_key import new_key, write_key

    made = new_key(name)
    write_key(made, output)
    click.echo(f"key written to {output}: keep it secret, and off the ledger's machine", err=True)
    _print(made.verifier, as_json=as_json)
    return EXIT_HELD


@key.command(context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path), metavar="KEY")
@_JSON
def show(file: Path, *, as_json: bool) -> int:
    """Print the verifier line of KEY, which is not secret.

    Hand it to whoever checks: with `lastgood verify LEDGER --head FILE --verifier LINE`.
    """
    from lastgood.ledger.signing_key import read_key

    _print(read_key(file).verifier, as_json=as_json)
    return EXIT_HELD


def _print(verifier: Verifier, *, as_json: bool) -> None:
    line = verifier.to_line()
    told = {"name": verifier.name, "id": verifier.id_hex, "verifier": line}
    click.echo(json.dumps(told) if as_json else line)
