"""Inputs of a plan from the command line: a ledger, a scenario file and flags, the later in place of the earlier."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lastgood.base.errors import BadInput

if TYPE_CHECKING:
    from lastgood.base.figures import Figure
    from lastgood.budget.scenario import Scenario
    from lastgood.evidence.plan_records import LedgerInputs
    from lastgood.evidence.rates_records import RatesQuestion

FLAGS: Final = {
    "mtti": "Mean time between job-stopping interruptions, such as 3.09h.",
    "checkpoint_cost": "Time for which a checkpoint blocks the job.",
    "detection": "Detection and diagnosis time.",
    "recovery": "Recovery time.",
    "work": "Useful work of the whole job, such as 30d.",
    "devices": "Devices of the job.",
}
"""Inputs with a flag of their own; `--set` takes any."""


LEDGER_OPTIONS: Final = (
    click.option("--group", metavar="RULE", help="Grouping rule of the ledger's incidents, such as gap:10min@host."),
    click.option("--since", metavar="TIME", help="Count the ledger's failures from this time on."),
    click.option("--until", metavar="TIME", help="Count them up to this time."),
)  # fmt: skip
"""What is counted in a ledger; the same words as in `lastgood rates`."""


def plan_input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name the inputs of a plan."""
    options = [
        click.argument("scenario", required=False, type=click.Path(path_type=Path), metavar="[SCENARIO]"),
        click.option("--ledger", type=click.Path(path_type=Path), metavar="LEDGER", help="Take rates and costs from this ledger."),
        *LEDGER_OPTIONS,
        *(
            click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", help=text)
            for name, text in FLAGS.items()
        ),
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any other input of a plan; may be repeated."),
        click.option("--seed", type=click.IntRange(0, 2**53), default=0, show_default=True, help="Replays every random number."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The scenario with where it came from."""

    scenario: Scenario
    ledger: LedgerInputs | None
    is_rate_of_ledger: bool = False
    """The mean time to interruption is the ledger's, as it stands or carried to the number of devices."""
    arguments: tuple[str, ...]
    """The arguments that name the inputs, for the command that replays them."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """Input -> the option that gave it."""

    def require_used(self) -> None:
        """Refuse a typed input that changes nothing because what it belongs to is not there.

        Raises:
            BadInput: there is one.
        """
        from lastgood.budget.unused import lacking

        for name, option in self.typed.items():
            if needs := lacking(self.scenario, name):
                raise BadInput(
                    "this input alone changes nothing",
                    where=option,
                    found=f"{name} without {' and '.join(needs)}",
                    needs=" and ".join(_option(one) for one in needs),
                )
        self.require_scaled()

    def require_only(self, names: Sequence[str], *, why: str) -> None:
        """Refuse a typed input that a command does not use.

        Raises:
            BadInput: there is one.
        """
        for name, option in self.typed.items():
            if name not in (*names, "devices"):
                raise BadInput(why, where=option, found=name, needs=f"one of: {', '.join(names)}")
        self.require_scaled()

    def require_scaled(self) -> None:
        """Refuse typed devices when no rate of a ledger is there to be carried to them.

        Raises:
            BadInput: they were typed for nothing.
        """
        # Without any mean time the missing one is named later, with how to give it.
        if "devices" in self.typed and self.scenario.has("mtti") and not self.is_rate_of_ledger:
            raise BadInput(
                "only the rate of a ledger is carried to another number of devices",
                where=self.typed["devices"],
                found="a mean time to interruption that was given",
                needs="--ledger LEDGER and no other mean time",
                next="lastgood project carries a given one",
            )


def ledger_question(flags: dict[str, str | None], *, devices: int | None = None) -> RatesQuestion:
    """What to count, taken out of the flags.

    Raises:
        BadInput: a rule or a time that is none.
    """
    from lastgood.cli.rate_options import rates_question

    named = {name: flags.pop(name, None) for name in ("group", "since", "until")}
    return rates_question(devices=devices, nodes=None, interval_method="auto", **named)


def counting_arguments(flags: dict[str, str | None]) -> list[str]:
    """The options of `ledger_question` that were given, as arguments."""
    named = ((name, flags.get(name)) for name in ("group", "since", "until"))
    return [part for name, text in named if text is not None for part in (f"--{name}", text)]


def gather(
    scenario: Path | None,
    ledger: Path | None,
    *,
    flags: dict[str, str | None],
    settings: Sequence[str],
    seed: int,
) -> Gathered:
    """Put the inputs together.

    Raises:
        Problems, BadInput: something that a person wrote cannot be used.
        Refused: the rate of a ledger would have to be scaled without a known exposure.
    """
    from lastgood.budget.scenario import Scenario

    made = Scenario()
    records = None
    counting = counting_arguments(flags)
    question = ledger_question(flags)
    arguments: list[str] = []
    if ledger is not None:
        from lastgood.cli.verified_ledger import check_ledgers
        from lastgood.evidence.plan_records import ledger_inputs

        check_ledgers([ledger])
        with spinner("reading the ledger"):
            records = ledger_inputs(ledger, question)
        made = records.scenario
        arguments += ["--ledger", str(ledger), *counting]
    elif counting:
        raise BadInput("there is nothing to count", where=counting[0], needs="--ledger LEDGER")
    if scenario is not None:
        from lastgood.budget.scenario_file import load_scenario

        made = _over(made, load_scenario(scenario))
        arguments.insert(0, str(scenario))
    typed, options = _typed(flags, settings)
    for option, text in options.values():
        arguments += [option, text]
    made = made.with_given(typed)
    mean = made.given.get("mtti")
    is_own = records is not None and mean is not None and mean is records.scenario.given.get("mtti")
    if records is not None and is_own and made.has("devices"):
        made = _scaled(made, records)
    if seed:
        arguments += ["--seed", str(seed)]
    return Gathered(
        scenario=made,
        ledger=records,
        is_rate_of_ledger=is_own,
        arguments=tuple(arguments),
        typed={name: _told(*given) for name, given in options.items()},
    )


def _typed(
    flags: dict[str, str | None], settings: Sequence[str]
) -> tuple[dict[str, Figure], dict[str, tuple[str, str]]]:
    """What was typed: the inputs, and the option and its text for each of them; a later one replaces an earlier."""
    from lastgood.budget.scenario import quantity_of, read_value

    asked: dict[str, tuple[str, str, str]] = {
        name: (f"--{name.replace('_', '-')}", text, text)
        for name, text in flags.items()
        if text is not None
    }
    for setting in settings:
        name, equals, text = setting.partition("=")
        where = f"--set {setting}"
        if not equals:
            raise BadInput("not a setting", where=where, found=setting, needs="NAME=VALUE")
        asked[quantity_of(name.strip(), where=where).name] = ("--set", setting, text.strip())
    figures = {
        name: read_value(name, text, where=_told(option, written))
        for name, (option, written, text) in asked.items()
    }
    return figures, {name: (option, written) for name, (option, written, _) in asked.items()}


def _told(option: str, written: str) -> str:
    """An option as a message names it."""
    return f"{option} {written}" if option == "--set" else option


@contextmanager
def spinner(title: str) -> Generator[None]:
    """Say on a terminal that something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def command_line(*parts: str) -> str:
    """A command that a person can paste."""
    return shlex.join(["lastgood", *parts])


def _over(base: Scenario, top: Scenario) -> Scenario:
    """The file's inputs in place of the ledger's."""
    from dataclasses import replace

    given = dict(base.given)
    if top.stops:
        given.pop("mtti", None)
    return replace(
        top,
        given={**given, **top.given},
        stops=top.stops or ({} if "mtti" in top.given else base.stops),
        notes=(*base.notes, *top.notes),
        free_checkpoints=base.free_checkpoints,
    )


def _scaled(scenario: Scenario, records: LedgerInputs) -> Scenario:
    """The ledger's rate at the job's number of devices: a projection, unless it is the number of the records."""
    from lastgood.budget.projection import project_mean_time
    from lastgood.evidence.plan_records import rate_source

    devices = scenario.value("devices")
    source = rate_source(records.records, injected_count=records.injected_count)
    if source.devices_min == source.devices_max == devices:
        return scenario
    projection = project_mean_time(
        source,
        devices=devices,
        where=scenario.figure("devices").source,
        consent="lastgood project --accept extrapolation, and give what it prints as --mtti",
    )
    return scenario.with_given({"mtti": projection.mean_time})


def _option(name: str) -> str:
    """How a person gives this input."""
    return f"--{name.replace('_', '-')}" if name in FLAGS else f"--set {name}=..."
