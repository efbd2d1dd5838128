"""`lastgood plan`, `what-if` and `project`: what to expect of a checkpoint plan, and what not to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lastgood.base.errors import EXIT_HELD, EXIT_REFUSED, BadInput
from lastgood.cli.plan_inputs import (
    LEDGER_OPTIONS,
    command_line,
    counting_arguments,
    gather,
    ledger_question,
    plan_input_options,
)
from lastgood.cli.plan_view import as_report, progress_bar, show, write_pictures
from lastgood.evidence.output_file import Output, check_output

if TYPE_CHECKING:
    from lastgood.budget.plan import Plan
    from lastgood.budget.plan_finite import FinitePlan
    from lastgood.budget.scenario import Scenario
    from lastgood.evidence.report import Section

CONTEXT = {"help_option_names": ["-h", "--help"]}
DEVICES_MAX = 1_000_000_000
RULES = ("exact", "daly", "daly-first-order", "young", "young-period")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _counting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what is counted in a ledger."""
    for option in reversed(LEDGER_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings=CONTEXT)
@plan_input_options
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default="exact",
    show_default=True,
    help="Formula for the interval.",
)
@click.option(
    "--first-order",
    is_flag=True,
    help="Insist on the first-order budget; refused where it means nothing.",
)
@click.option(
    "--jobs",
    type=click.IntRange(2, 1_000_000),
    default=1_000,
    show_default=True,
    help="Jobs to simulate when --work is given.",
)
@click.option(
    "--half-width",
    metavar="SHARE",
    help="Simulate until the interval of p90 is this narrow, such as 1%.",
)
@click.option(
    "--engine",
    type=click.Choice(("auto", "compiled", "interpreted")),
    default="auto",
    show_default=True,
    help="How to simulate.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write one self-contained page.",
)
@click.option(
    "--charts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write every chart as SVG.",
)
@_JSON
def plan(
    scenario: Path | None, *, ledger: Path | None, settings: tuple[str, ...], seed: int, rule: str, first_order: bool,
    jobs: int, half_width: str | None, engine: str, html: Path | None, charts: Path | None, as_json: bool, **flags: str | None,
) -> int:  # fmt: skip
    """Plan checkpoints: the interval, the useful fraction with its interval, where the time goes.

    Inputs come from --ledger, from a SCENARIO file and from flags; the later wins. A bare number is assumed. A value
    may carry its 95 % interval: --mtti 2.8h..3.09h..3.4h. With --work the job's wall time is simulated: p50, p90, p99.

    \b
    lastgood plan --mtti 3.09h --checkpoint-cost 1min --detection 1min --recovery 1min
    """
    from lastgood.budget.closed.interval import IntervalRule
    from lastgood.budget.plan import make_plan

    if html is not None:
        check_output(html, Output.PAGE, inputs=[scenario, ledger])
    inputs = gather(scenario, ledger, flags=flags, settings=settings, seed=seed)
    inputs.require_used()
    if not inputs.scenario.has("work"):
        _refuse_simulating("jobs", "half_width", "engine")
    if rule == "exact" and not first_order and (free := _free_section(inputs.scenario)):
        report = as_report(free, inputs, command_line("plan", *inputs.arguments))
        write_pictures(report, html=html, charts=charts)
        show(report, as_json=as_json, schema="lastgood.plan/1")
        return EXIT_HELD
    made = make_plan(
        inputs.scenario, rule=IntervalRule(rule), is_first_order=first_order, seed=seed
    )
    finite = None
    if inputs.scenario.has("work"):
        finite = _simulate(made, seed=seed, jobs=jobs, half_width=half_width, engine=engine)
    section = _section(made, finite)
    extra = [
        *(["--rule", rule] if rule != "exact" else []),
        *(["--first-order"] if first_order else []),
        *(["--jobs", str(jobs)] if finite and jobs != 1_000 else []),
        *(["--half-width", half_width] if finite and half_width else []),
    ]
    report = as_report(section, inputs, command_line("plan", *inputs.arguments, *extra))
    write_pictures(report, html=html, charts=charts)
    show(report, as_json=as_json, schema="lastgood.plan/1")
    is_wide = finite is not None and finite.runs.is_narrow is False
    if is_wide:
        click.echo("lastgood: the interval of p90 is wider than asked for; raise --jobs", err=True)
    return EXIT_REFUSED if is_wide else EXIT_HELD


@click.command("what-if", context_settings=CONTEXT)
@plan_input_options
@click.option(
    "--change",
    "changes",
    multiple=True,
    required=True,
    metavar="NAME=VALUE",
    help="checkpoint_cost=30s, mtti=x2 or recovery=-50%; may be repeated.",
)
@_JSON
def what_if(
    scenario: Path | None, *, ledger: Path | None, settings: tuple[str, ...], seed: int, changes: tuple[str, ...],
    as_json: bool, **flags: str | None,
) -> int:  # fmt: skip
    """Compare changes of a plan's inputs: the difference, and how sure its sign and the order are.

    \b
    lastgood what-if --mtti 2.8h..3.09h..3.4h --checkpoint-cost 1min --change checkpoint_cost=30s --change mtti=x2
    """
    from lastgood.budget.whatif import EXACT_ONLY, WHAT_IF_INPUTS, parse_change
    from lastgood.budget.whatif import what_if as compare
    from lastgood.evidence.plan_whatif import what_if_section

    inputs = gather(scenario, ledger, flags=flags, settings=settings, seed=seed)
    inputs.require_only(WHAT_IF_INPUTS, why=EXACT_ONLY)
    answer = compare(inputs.scenario, [parse_change(text) for text in changes], seed=seed)
    asked = [part for text in changes for part in ("--change", text)]
    report = as_report(
        what_if_section(answer), inputs, command_line("what-if", *inputs.arguments, *asked)
    )
    show(report, as_json=as_json, schema="lastgood.what_if/1")
    return EXIT_HELD


@click.command(context_settings=CONTEXT)
@click.argument("scenario", required=False, type=click.Path(path_type=Path), metavar="[SCENARIO]")
@click.option(
    "--devices",
    required=True,
    type=click.IntRange(1, DEVICES_MAX),
    metavar="N",
    help="Devices to project to.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="LEDGER",
    help="Project the rate of this ledger.",
)
@click.option(
    "--preset", type=click.Choice(("rsc-1", "rsc-2", "llama3")), help="Project a published rate."
)
@click.option(
    "--events", type=click.IntRange(1), metavar="N", help="Interruptions that were counted,"
)
@click.option("--window", metavar="DURATION", help="in this window,")
@click.option(
    "--source-devices",
    type=click.IntRange(1, DEVICES_MAX),
    metavar="N",
    help="while this many devices were at risk.",
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.Choice(("extrapolation",)),
    help="Take what is refused otherwise.",
)
@_counting
@_JSON
def project(
    scenario: Path | None, *, devices: int, ledger: Path | None, preset: str | None, events: int | None,
    window: str | None, source_devices: int | None, accepted: tuple[str, ...], as_json: bool, **counting: str | None,
) -> int:  # fmt: skip
    """Carry a rate to another number of devices, with the condition under which it would hold.

    Refused (exit 3): a factor above 10 without --accept extrapolation, a count without exposure, injected faults and
    simulated figures. The source is a ledger, a published preset, a SCENARIO file, or --events in a --window.

    \b
    lastgood project --preset rsc-1 --devices 1024
    """
    from lastgood.budget.projection import project_mean_time
    from lastgood.cli.plan_sources import source_for
    from lastgood.evidence.plan_projection import projection_section

    counted = counting_arguments(counting)
    if counted and ledger is None:
        raise BadInput("there is nothing to count", where=counted[0], needs="--ledger LEDGER")
    found = source_for(
        question=ledger_question(counting, devices=source_devices),
        scenario=scenario,
        ledger=ledger,
        preset=preset,
        events=events,
        window=window,
        source_devices=source_devices,
    )
    projection = project_mean_time(
        found.source,
        devices=devices,
        accepted=accepted,
        back_tests=found.back_tests,
        no_back_test=found.no_back_test,
    )
    asked = [part for name in accepted for part in ("--accept", name)]
    command = command_line("project", *found.arguments, *counted, "--devices", str(devices), *asked)
    report = as_report(projection_section(projection), found.inputs, command)
    show(report, as_json=as_json, schema="lastgood.projection/1")
    return EXIT_HELD


def _refuse_simulating(*names: str) -> None:
    """Refuse options of the simulation when there is nothing to simulate.

    Raises:
        BadInput: one was typed.
    """
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise BadInput(
                "there is nothing to simulate",
                where=f"--{name.replace('_', '-')}",
                found="no amount of work",
                needs="--work, such as 30d",
            )


def _simulate(
    made: Plan, *, seed: int, jobs: int, half_width: str | None, engine: str
) -> FinitePlan:
    from lastgood.budget.montecarlo.engine import Engine
    from lastgood.budget.plan_finite import plan_finite

    width = None
    if half_width is not None:
        text = half_width.strip()
        try:
            width = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            width = 0.0
        if not 0 < width < 1:
            raise BadInput(
                "not a half-width",
                where="--half-width",
                found=half_width,
                needs="a share such as 1%",
            )
    with progress_bar("simulating jobs") as on_progress:
        return plan_finite(
            made,
            seed=seed,
            count=jobs,
            half_width=width,
            engine=Engine(engine),
            on_progress=on_progress,
        )


def _free_section(scenario: Scenario) -> Section | None:
    """The answer where the ledger has measured that checkpoints cost nothing, and no cost was typed."""
    from lastgood.evidence.plan_free_part import free_section

    free = scenario.free_checkpoints
    if free is None or scenario.has("checkpoint_cost") or scenario.has("work"):
        return None
    return free_section(scenario, free)


def _section(made: Plan, finite: FinitePlan | None) -> Section:
    from lastgood.evidence.plan_part import plan_section

    return plan_section(made, finite)
