"""A number that is none passes no option of any command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from lastgood.cli.main import lastgood


def options(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Parameter]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from options(command, f"{path}{name} ")
        else:
            for param in command.params:
                yield f"{path}{name} {param.opts[0]}", param


FLOATS = {
    name: param
    for name, param in options(lastgood)
    if isinstance(param.type, click.types.FloatParamType)
}


def test_there_are_options_to_look_at():
    assert {"compare --at-least", "compare --level"} <= set(FLOATS)


@pytest.mark.parametrize("text", ["nan", "-nan", "NaN", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("name", sorted(FLOATS))
def test_no_option_takes_a_number_that_is_none(name, text):
    with pytest.raises(click.BadParameter, match="range"):
        FLOATS[name].type.convert(text, FLOATS[name], None)


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "a", "b", "--claim", "ettr", "--at-least", "nan"],
        ["compare", "a", "b", "--claim", "ettr", "--level", "nan"],
        ["compare", "a", "b", "--claim", "ettr", "--level", "1"],
        ["plan", "--checkpoint-cost", "1min", "--mtti", "nan"],
        ["plan", "--checkpoint-cost", "1min", "--mtti", "infh"],
        ["plan", "--mtti", "3h", "--checkpoint-cost", "1min", "--work", "30d", "--half-width", "nan"],
        ["what-if", "--mtti", "3h", "--checkpoint-cost", "1min", "--change", "mtti=xnan"],
    ],
)  # fmt: skip
def test_the_command_line_names_the_option_of_a_number_that_cannot_be(cli, words):
    result = cli(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    option = [word for word in words if word.startswith("--")][-1]
    assert option in result.stderr
    assert words[words.index(option) + 1] in result.stderr
