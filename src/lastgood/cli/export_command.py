"""`lastgood export`: a ledger as monthly Parquet files, with a manifest that ties them to its root."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lastgood.base.errors import EXIT_HELD
from lastgood.cli.event_bar import event_bar
from lastgood.cli.verified_ledger import check_ledgers
from lastgood.evidence.folder_words import refuse_folder


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that is not there yet, or an older export of the same ledger.",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def export(*, ledger: Path | None, output: Path, is_json: bool) -> int:
    """Write a ledger as one Parquet file a month, for analysis.

    LEDGER is a file; without it $LASTGOOD_LEDGER, else the ledger of this user on this machine. The manifest
    names its origin, size and root, and the hash of each file. DuckDB and every other reader of Parquet can
    query the files. They hold the columns that statistics need, not the bytes that `verify` hashes: keep the ledger.
    """
    from lastgood.ledger.parquet_export import export_parquet
    from lastgood.ledger.place import default_ledger

    path = ledger or default_ledger()
    refuse_folder(path)
    check_ledgers([path])
    with event_bar("writing months") as on_progress:
        manifest = export_parquet(path, output, on_progress=on_progress)
    if is_json:
        click.echo(
            json.dumps(
                {
                    "ledger": str(path),
                    "folder": str(output),
                    "origin": manifest.origin,
                    "size": manifest.size,
                    "root": manifest.root,
                    "tree_head": manifest.tree_head,
                    "files": [
                        {"name": f.name, "sha256": f.sha256, "bytes": f.bytes, "rows": f.rows}
                        for f in manifest.files
                    ],
                }
            )
        )
        return EXIT_HELD
    count = len(manifest.files)
    click.echo(
        f"export  {output} ({manifest.size:,} events, {count} month{'' if count == 1 else 's'})"
    )
    click.echo(f"root    {manifest.root}")
    return EXIT_HELD
