"""`lastgood reproduce`: published numbers computed again, each by a subcommand of its own."""

from __future__ import annotations

import click

from lastgood.cli.lazy import LazyCommand, LazyGroup

SUBCOMMANDS = {
    "chapter": LazyCommand("lastgood.cli.reproduce_chapter:chapter", "The failure budget of the source chapter, beside the exact one."),
    "llama3": LazyCommand("lastgood.cli.reproduce_llama3:llama3", "Table 5 of the Llama 3 paper, beside its own counts."),
}  # fmt: skip


@click.group(
    cls=LazyGroup,
    lazy_commands=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def reproduce() -> None:
    """Compute published numbers again, and say where they do not agree."""
