"""A click group that knows its commands by name and imports one only when it is called.

Listing the commands for `--help` must not import them: rich alone would double the start-up time and
numpy triple it. The one-line helps are therefore constants beside the names, and a test checks that
every target of the table exists and has a help text of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class LazyCommand(NamedTuple):
    """Where a command lives and what the list of commands says about it."""

    target: str
    """`module:attribute`."""
    short_help: str


class LazyGroup(click.Group):
    """A group whose commands are `LazyCommand` entries."""

    def __init__(
        self, *args: Any, lazy_commands: Mapping[str, LazyCommand] | None = None, **kwargs: Any
    ) -> None:
        """Take the table of commands beside the arguments of `click.Group`."""
        super().__init__(*args, **kwargs)
        self.lazy_commands = dict(lazy_commands or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table, which is the order of use."""
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None for a name that is not in the table."""
        entry = self.lazy_commands.get(cmd_name)
        if entry is None:
            return None
        module, attribute = entry.target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{entry.target} is not a command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, and suggest the nearest name for one that does not exist."""
        name = args[0]
        if name not in self.lazy_commands and not ctx.resilient_parsing and name[:1].isalnum():
            import difflib

            near = difflib.get_close_matches(name, self.lazy_commands, n=1, cutoff=0.5)
            hint = f" Did you mean '{near[0]}'?" if near else " Run 'lastgood --help'."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table alone."""
        rows = [(name, entry.short_help) for name, entry in self.lazy_commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
