"""The options of everything that computes rates, once: what is at risk, what belongs together, which window."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood.base.errors import BadInput

if TYPE_CHECKING:
    from lastgood.evidence.rates_records import RatesQuestion

METHODS = ("auto", "exact", "quasi-poisson", "block-bootstrap", "by-node")
_OPTIONS = (
    click.option("--devices", type=int, metavar="N", help="Accelerators at risk, when no record says so; the rate is then assumed. Refused when records say otherwise."),
    click.option("--nodes", type=int, metavar="N", help="Nodes at risk, those without a failure included. Refused when records say otherwise."),
    click.option("--group", metavar="RULE", help="The grouping rule, such as gap:10min@host or links+merge:30min@site."),
    click.option("--interval", "interval_method", type=click.Choice(METHODS), default="auto", show_default=True, help="Fix the method of the interval in advance; auto lets a test choose."),
    click.option("--since", metavar="TIME", help="Count from this time on (ISO 8601, UTC unless it says otherwise)."),
    click.option("--until", metavar="TIME", help="Count up to this time."),
)  # fmt: skip
_MAPPING = click.option("--mapping", "mappings", multiple=True, metavar="NAME=FILE", help="Read codes through this table, such as xid=my-xid.json; nothing is written.")  # fmt: skip


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a question keeps, so that whoever recomputes asks the same."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def rate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a question, and the mapping tables of a view that is not kept."""
    return question_options(_MAPPING(command))


def rates_question(
    *,
    devices: int | None,
    nodes: int | None,
    group: str | None,
    interval_method: str,
    since: str | None,
    until: str | None,
) -> RatesQuestion:
    """What the options ask.

    Raises:
        BadInput: a rule or a time that is none.
    """
    from lastgood.evidence.rates_records import RatesQuestion
    from lastgood.ledger.grouping import REPORT_RULE, parse_rule

    rule = REPORT_RULE if group is None else parse_rule(group)
    return RatesQuestion(
        rule=rule.spec,
        interval_method=interval_method,
        devices=devices,
        nodes=nodes,
        since_us=None if since is None else instant_us(since, where="--since"),
        until_us=None if until is None else instant_us(until, where="--until"),
    )


def refuse_rate_options(
    ledger: str, question: RatesQuestion, mappings: Mapping[str, Path] | None = None
) -> None:
    """Refuse what was asked about rates of a report that has none: a flag without an effect would pass for one.

    Raises:
        BadInput: an option about rates was given.
    """
    from lastgood.evidence.rates_records import RatesQuestion

    usual = RatesQuestion()
    flags = {
        "--devices": question.devices,
        "--nodes": question.nodes,
        "--group": question.rule if question.rule != usual.rule else None,
        "--interval": question.interval_method
        if question.interval_method != usual.interval_method
        else None,
        "--since": question.since_us,
        "--until": question.until_us,
        "--mapping": mappings or None,
    }
    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise BadInput(
            "a report gives rates of imported failures only, and this ledger holds none",
            where=ledger,
            found=", ".join(given),
            needs="none of these options",
            next=f"for the rates of what is recorded there: lastgood rates --ledger {shlex.quote(ledger)}",
        )


def instant_us(text: str, *, where: str) -> int:
    """A time as a person writes it, in microseconds UTC.

    Raises:
        BadInput: it is none.
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput(
            "not a time",
            where=where,
            found=repr(text),
            needs="such as 2026-11-02 or 2026-11-02T03:14:07Z",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since_epoch = moment - dt.datetime.fromtimestamp(0, dt.UTC)
    return since_epoch // dt.timedelta(microseconds=1)


def mapping_files(words: Sequence[str]) -> dict[str, Path]:
    """`NAME=FILE` words as a table of files."""
    if not words:
        return {}
    from lastgood.cli.import_command import parse_mappings

    return parse_mappings(words)
