"""docs/cli.md is what `--help` says, for every command: `make docs` writes it again."""

from pathlib import Path

import click
import pytest

from lastgood.cli.main import lastgood

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
HEAD = """# Command line

This page is written from `--help` by `make docs`; a test compares the two.
Every reading command has `--json`; data goes to stdout and messages to stderr.
Exit codes: 0 held, 1 did not hold, 2 bad input, 3 could not tell or refused, 70 internal error.
`run` returns the script's code; 75 means requeue me, 93 means do not.
"""


def sections(command: click.Command, *, path: str, parent: click.Context | None):
    # click keeps the first help option that it makes for a command: without the command's own settings
    # this test would take `-h` away from every later one.
    settings = {**command.context_settings, "max_content_width": 80, "terminal_width": 80}
    context = click.Context(command, info_name=path.rsplit(" ", 1)[-1], parent=parent, **settings)
    yield f"## {path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from sections(child, path=f"{path} {name}", parent=context)


def test_the_page_of_commands_is_what_help_says(request):
    expected = "\n".join([HEAD, *sections(lastgood, path="lastgood", parent=None)])
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected, "run: make docs"


def test_no_option_is_without_a_help_text():
    context = click.Context(lastgood, **lastgood.context_settings)
    pending, bare = [("lastgood", lastgood)], []
    while pending:
        path, command = pending.pop()
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.help and not parameter.hidden:
                bare.append(f"{path} {parameter.opts[-1]}")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                pending.append((f"{path} {name}", child))
    assert bare == []


@pytest.mark.parametrize(
    "words",
    [
        "demo",
        "report",
        "verify",
        "recompute",
        "record",
        "contract check",
        "contract explain",
        "doctor",
    ],
)
def test_every_command_that_reads_has_json(words):
    command: click.Command = lastgood
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command, **command.context_settings), word)
        assert found is not None
        command = found
    assert any("--json" in parameter.opts for parameter in command.params)
