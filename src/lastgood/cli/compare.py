"""`lastgood compare BEFORE AFTER`: is it better, by how much, and how sure is that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from lastgood.base.errors import EXIT_HELD, EXIT_NOT_HELD, EXIT_REFUSED, BadInput
from lastgood.base.units import format_duration
from lastgood.cli.event_bar import event_bar
from lastgood.cli.numbers import FiniteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.evidence.claim_records import ClaimResult, SideSummary
    from lastgood.evidence.claim_sides import Side

CONTEXT = {"help_option_names": ["-h", "--help"]}
CLAIMS = ("detection_latency", "recovery_time", "lost_work", "ettr")
WIDTH = 79


@click.command(context_settings=CONTEXT)
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    required=True,
    type=click.Choice(CLAIMS),
    help="What is claimed to be better in AFTER; may be given several times.",
)
@click.option(
    "--at-least",
    type=FiniteRange(1.0, 1000.0),
    default=1.0,
    show_default=True,
    metavar="RATIO",
    help="Claim an improvement of at least this factor.",
)
@click.option(
    "--level",
    type=FiniteRange(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Of intervals and tests.",
)
@click.option(
    "--changed",
    metavar="NAMES",
    help="Conditions that were changed on purpose or may differ, such as limits,machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    before: str,
    after: str,
    *,
    claims: tuple[str, ...],
    at_least: float,
    level: float,
    changed: str | None,
    as_json: bool,
) -> int:
    """Judge the claim that AFTER is better than BEFORE.

    Each side is a ledger, a bundle, or LEDGER#RUN. Like is compared with like: incidents of one fault or symptom whose
    runs differ in nothing but what --changed names. The answers are shown, not shown, worse and cannot
    tell; exit 0 when all are shown, 1 when one is not shown or worse, 3 when one cannot be told.
    """
    from lastgood.evidence.claim import judge_claims
    from lastgood.evidence.claim_records import Asked, ClaimName
    from lastgood.evidence.claim_sides import read_sides

    with event_bar("verifying") as on_progress:
        sides = read_sides(before, after, on_progress=on_progress)
    _refuse_shared(*sides)
    names = _changed(changed)
    chosen = [ClaimName(name) for name in dict.fromkeys(claims)]
    results = judge_claims(
        chosen, *sides, Asked(level=level, at_least=at_least, changed=frozenset(names))
    )
    if as_json:
        import msgspec

        plain = {
            "before": _plain_side(sides[0]), "after": _plain_side(sides[1]), "claims": msgspec.to_builtins(results)
        }  # fmt: skip
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        _print_sides(sides, results[0])
        for result in results:
            _print(result)
    return _exit_code(results)


def _exit_code(results: Sequence[ClaimResult]) -> int:
    answers = {result.answer for result in results}
    if answers == {"shown"}:
        return EXIT_HELD
    return EXIT_NOT_HELD if answers & {"not shown", "worse"} else EXIT_REFUSED


def _refuse_shared(before: Side, after: Side) -> None:
    """One incident on both sides makes them alike by construction."""
    if before.marks & after.marks:
        runs = sorted(set(before.runs) & set(after.runs))
        raise BadInput(
            "the two sides of a comparison share incidents", where=f"{before.name} {after.name}",
            found=f"the same records of {', '.join(runs[:4]) or 'an import'} on both",
            needs="two ledgers, or two runs of one: LEDGER#RUN",
        )  # fmt: skip


def _changed(text: str | None) -> list[str]:
    from lastgood.evidence.claim_conditions import NAMES

    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise BadInput(
                "no such condition",
                where="--changed",
                found=name,
                needs=f"one of: {', '.join(NAMES)}",
            )
    return names


def _plain_side(side: Side) -> dict[str, object]:
    return {
        "name": side.name, "runs": list(side.runs), "incidents": len(side.counted), "injected": side.is_injected,
        "conditions": {name: list(values) for name, values in side.conditions.items()}, "notes": list(side.notes),
    }  # fmt: skip


# --- in words -----------------------------------------------------------------------------------------


def _print_sides(sides: tuple[Side, Side], result: ClaimResult) -> None:
    """What holds for every claim: what the sides are, and in what they differ."""
    for word, side in zip(("before", "after"), sides, strict=True):
        injected = ", injected" if side.is_injected else ""
        runs, incidents = _count(len(side.runs), "run"), _count(len(side.counted), "incident")
        click.echo(f"{word:<7} {side.name}: {runs}, {incidents}{injected}")
        for note in side.notes:
            _say(f"note: {note}")
    for line in result.differing:
        _say(f"differs: {line}")
    if result.is_injected:
        _say("INJECTED: faults on purpose; how often they occur in the field is not in it")


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _print(result: ClaimResult) -> None:
    size = "" if result.at_least == 1 else f" by a factor of {result.at_least:g} at least"
    click.echo(f"\nclaim: {result.claim} is better after{size}: {result.answer.upper()}")
    _say(f"compared: {result.measure}")
    for word, summary in (("before", result.before), ("after", result.after)):
        click.echo(f"  {word:<7} {_side_words(summary, result)}")
    if result.before.n or result.after.n:
        _say(f"effect  {_effect_words(result)}")
    for row in result.strata if len(result.strata) > 1 else ():
        ends = f"{_value(row.before, result)} -> {_value(row.after, result)}"
        _say(f"  {row.kind:<24} n {row.n_before} and {row.n_after}, {result.statistic} {ends}")
    if result.before.n or result.after.n:
        _say(f"method: {result.method}")
    for line in result.left_out:
        _say(f"left out: {line}")
    for reason in result.reasons:
        if reason in result.differing:  # stands above, once for all claims
            continue
        _say(f"because: {reason}")
    if result.next:
        _say(f"next: {result.next}")
    if result.needed:
        _say(result.needed)


def _say(text: str) -> None:
    import textwrap

    click.echo(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    "))


def _side_words(summary: SideSummary, result: ClaimResult) -> str:
    if not summary.n:
        return "nothing to compare"
    value = _value(summary.value, result, is_never=summary.never > 0)
    words = f"n={summary.n}, {result.statistic} {value}"
    if summary.lo is not None and summary.hi is not None:
        ends = f"{_value(summary.lo, result)} to {_value(summary.hi, result)}"
        words += f" ({ends}, {result.level:.0%})"
    if summary.never:
        words += f", {summary.never} never"
    return f"{words}, {result.kind}{', injected' if result.is_injected else ''}"


def _value(value: float | None, result: ClaimResult, *, is_never: bool = True) -> str:
    if value is None or value == float("inf"):
        return "never" if is_never else "not observed"
    match result.unit:
        case "us":
            return format_duration(round(value))
        case "steps":
            return f"{value:.3g} steps"
        case _:
            return f"{value:.4f}"


def _effect_words(result: ClaimResult) -> str:
    has_values = result.before.n and result.after.n
    if result.effect is None and (result.effect_unit != "ratio" or not has_values):
        return "none to be had"
    ends = ["no bound" if end is None else _amount(end, result) for end in (result.lo, result.hi)]
    p = "" if result.p is None else f", {_p(result.p)}"
    adjusted = "" if result.p_adjusted is None else f", {_p(result.p_adjusted)} after Holm"
    way = {
        "ratio": "before over after", "steps": "before minus after", "share": "after minus before",
    }[result.effect_unit]  # fmt: skip
    amount = "no number" if result.effect is None else _amount(result.effect, result)
    return f"{amount} {way} ({ends[0]} to {ends[1]}, {result.level:.0%}){p}{adjusted}"


def _amount(value: float, result: ClaimResult) -> str:
    if result.effect_unit == "ratio":
        return f"{value:.3g}"
    return f"{value:+.3g}"


def _p(value: float) -> str:
    from lastgood.budget.finding import format_p

    return format_p(value)
