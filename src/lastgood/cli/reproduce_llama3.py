"""`lastgood reproduce llama3`: a published table, reported beside recomputed, with an interval on every rate."""

from __future__ import annotations

import json

import click

from lastgood.base.errors import EXIT_HELD


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def llama3(*, as_json: bool) -> int:
    """Recompute Table 5 of the Llama 3 paper from its own counts.

    The table ships as typed-in facts with their source. What was printed and what the counts give stand side by side;
    a row that does not agree is named.
    """
    from lastgood.budget.published.facts import published_digest, read_published
    from lastgood.evidence.published_part import published_section

    name = "llama3_table5"
    table = read_published(name)
    section = published_section(table)
    if as_json:
        import msgspec

        document = {
            "schema": "lastgood.reproduced/1",
            "table": table.id,
            "source": table.source,
            "sha256": published_digest(name),
            "section": msgspec.to_builtins(section),
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return EXIT_HELD
    from rich.console import Console

    from lastgood.evidence.terminal import print_section

    print_section(section, Console(highlight=False, markup=False, emoji=False))
    click.echo(f"\nfacts: {table.id}, sha256 {published_digest(name)}")
    return EXIT_HELD
