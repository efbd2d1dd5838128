"""Entry of the `lastgood` command: knows the names of the commands and imports one when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from lastgood import __version__
from lastgood.cli.lazy import LazyCommand, LazyGroup
from lastgood.cli.standard_output import prepare_standard_output

COMMANDS = {
    "demo": LazyCommand("lastgood.cli.demo:demo", "Break a small training job on purpose and watch it recover."),
    "drill": LazyCommand("lastgood.cli.drill:drill", "Play a catalogue of faults against a job, and judge it."),
    "run": LazyCommand("lastgood.cli.run:run", "Run a training script under supervision, with spares."),
    "import": LazyCommand("lastgood.cli.import_command:import_", "Import the logs that a site has into a ledger."),
    "report": LazyCommand("lastgood.cli.report_command:report", "Show what happened, from the ledger."),
    "rates": LazyCommand("lastgood.cli.rates:rates", "Count failures and give rates, trends and intervals."),
    "compare": LazyCommand("lastgood.cli.compare:compare", "Judge the claim that one ledger is better than another."),
    "verify": LazyCommand("lastgood.cli.ledger_commands:verify", "Re-read and re-hash a whole ledger."),
    "key": LazyCommand("lastgood.cli.key_commands:key", "Make and show keys that sign tree heads."),
    "export": LazyCommand("lastgood.cli.export_command:export", "Write a ledger as Parquet files, one a month."),
    "bundle": LazyCommand("lastgood.cli.evidence_commands:bundle", "Pack ledger, contract and report for a stranger."),
    "recompute": LazyCommand("lastgood.cli.evidence_commands:recompute", "Recompute every figure of a bundle."),
    "plan": LazyCommand("lastgood.cli.plan_commands:plan", "Plan checkpoints: interval, useful fraction, wall time."),
    "what-if": LazyCommand("lastgood.cli.plan_commands:what_if", "Compare changes of a plan, with how sure they are."),
    "project": LazyCommand("lastgood.cli.plan_commands:project", "Carry a rate to another size, under its condition."),
    "reproduce": LazyCommand("lastgood.cli.reproduce:reproduce", "Compute published numbers again."),
    "record": LazyCommand("lastgood.cli.ledger_commands:record", "Append one event, from a prolog or a health check."),
    "contract": LazyCommand("lastgood.cli.contract_commands:contract", "Check, explain or start a failure contract."),
    "doctor": LazyCommand("lastgood.cli.doctor:doctor", "Check this machine, and say what to do."),
}  # fmt: skip

EPILOG = "Exit codes: 0 held, 1 did not hold, 2 bad input, 3 could not tell or refused, 70 internal error."


@click.group(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="lastgood")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def lastgood(*, debug: bool) -> None:
    """Keep a training run producing accepted work while parts of it fail, and prove it."""
    if debug:
        os.environ["LASTGOOD_DEBUG"] = "1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never show a traceback for a person's mistake.

    A command returns its exit code as an int (None is 0) or calls `ctx.exit(code)`.
    """
    prepare_standard_output()
    try:
        result = lastgood.main(
            args=None if arguments is None else list(arguments),
            prog_name="lastgood",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - every way out of a command is decided in one place
        from lastgood.cli.failure import exit_code_of

        return exit_code_of(error)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
