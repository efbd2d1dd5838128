"""`lastgood reproduce chapter`: the source chapter's failure budget, printed beside exact."""

from __future__ import annotations

import json

import click

from lastgood.base.errors import EXIT_HELD


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def chapter(*, as_json: bool) -> int:
    """Recompute the failure budget of the source chapter.

    What is printed there, the same formulas computed again, and what the exact formulas give: the interval, the useful
    fraction, and the projection to 100,000 devices under its condition.
    """
    from lastgood.budget.published.chapter import read_chapter
    from lastgood.evidence.plan_chapter import chapter_section

    found = read_chapter()
    section = chapter_section(found)
    if as_json:
        import msgspec

        document = {
            "schema": "lastgood.reproduced/1",
            "table": found.facts.id,
            "source": found.facts.source,
            "section": msgspec.to_builtins(section),
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return EXIT_HELD
    from rich.console import Console

    from lastgood.evidence.terminal import print_section

    print_section(section, Console(highlight=False, markup=False, emoji=False))
    click.echo(f"\nfacts: {found.facts.id}\nsource: {found.facts.source}")
    return EXIT_HELD
