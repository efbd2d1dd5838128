"""The report of a run in a terminal, short: what an on-call engineer reads first, on one screen.

Verdict, headline figures, where the time went, each incident in a few lines, what is not known, and where the rest is.
Everything else (tables, charts, contract, checkpoints, spares, every figure's source) is in the full text, on the page
and in the JSON. The report of a fleet alone has no short form: its answers already stand on top.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from lastgood.base.figures import Figure
from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import CountedClass
from lastgood.evidence import wording
from lastgood.evidence.incident_card import WHOLE
from lastgood.evidence.incident_part import CLASS_TITLES
from lastgood.evidence.report import IncidentCard, Note, Report, Section, Table
from lastgood.evidence.terminal import Page, draw_to

if TYPE_CHECKING:
    from rich.console import Console

RUNS: Final = ("training", "run")
"""Sections of a run, the ones that have a short form."""
CARD_COUNT_MAX: Final = 8
EVIDENCE_COUNT_MAX: Final = 3
NOTE_COUNT_MAX: Final = 10
PLANNED: Final = CLASS_TITLES[CountedClass.PLANNED]
TEMPORARY: Final = "temporary"
"""How the name of a ledger begins that is gone when the report is printed."""
_ABSENT: Final = re.compile(r"(\w+) (?:was|were) not observed:")
"""A part of which nothing is on record; their names fit one line."""
_LAST_STEP: Final = "last step"
"""The moment of a card before its onset, where the run had made no step for a while."""
_PHASES: Final = ("detection", "diagnosis", "isolation", "recovery", "verification", WHOLE)
_COSTS: Final = ("lost steps", "blast radius")


def is_brief(report: Report) -> bool:
    """True when the report has a short form, because it is about a run."""
    return any(section.name in RUNS for section in report.sections)


def print_brief(report: Report, console: Console) -> None:
    """Write the short form to a rich console, at most 80 columns wide."""
    draw_to(console, lambda: _print(report, Page(console)))


def _print(report: Report, page: Page) -> None:
    page.title(report)
    for section in report.sections:
        if section.name not in RUNS:
            page.heading(section.title)
        _section(section, page)
    command = report.reproduction.command
    ledger = report.reproduction.ledger
    check = [("check it", f"lastgood verify {shlex.quote(ledger)}")]
    page.heading("More")
    page.pairs(
        [
            ("everything", f"{command} --full"),
            ("as a page", "the same with --html FILE in place of --full"),
            *(check if not ledger.startswith(TEMPORARY) else ()),
            ("records", f"{report.reproduction.size:,} events measured"),
            ("root", report.reproduction.root),
        ]
    )


def _section(section: Section, page: Page) -> None:
    if section.headline:
        page.headline(section.headline, is_injected=section.is_injected)
    for words in section.answers:
        page.words(words)
    rows = [row for row in section.figures if row.is_key]
    page.line()
    width = max((len(row.label) for row in rows), default=0)
    for row in rows:
        page.line(f"{row.label:<{width}}  {_value(row.figure)}")
        if told := _certainty(row.figure):
            page.line(told, "dim", indent=4)
    if section.name not in RUNS:
        return
    for chart in (c for c in section.charts if c.form == "strip"):
        page.chart(chart, has_caption=False)
    for note in (n for n in section.notes if n.level == "info"):
        page.line(note.text, "dim")
    parts = {part.name: part for part in section.parts}
    _objectives(parts.get("objectives"), page)
    _incidents(parts.get("incidents"), _places(parts.get("stacks")), page)
    _unknown(section, page)


def _value(figure: Figure) -> str:
    return f"{wording.value_text(figure)} {wording.kind_text(figure)}".rstrip()


def _certainty(figure: Figure) -> str:
    """The interval and the count that it rests on: a value of a few incidents without them reads as if it were sure."""
    if figure.interval is None or figure.value is None:
        return ""
    interval = wording.interval_text(figure).removesuffix(f", {figure.interval.method}")
    return interval + ("" if figure.n is None else f"; n = {figure.n:,}")


# --- objectives -------------------------------------------------------------------------------------------


def _objectives(part: Section | None, page: Page) -> None:
    """Each declared objective and budget with its answer."""
    tables = part.tables if part else ()
    if not any(table.rows for table in tables):
        return
    page.heading("Objectives")
    for table in tables:
        titles = [column.title for column in table.columns]
        if "Answer" not in titles:
            continue
        for cells in wording.table_texts(table):
            page.line(f"{cells[0].text}: {cells[titles.index('Answer')].text}", indent=2)


# --- incidents --------------------------------------------------------------------------------------------


def _incidents(part: Section | None, places: dict[int, str], page: Page) -> None:
    """The newest ones, each with what was seen of whom, its times, and how it ended."""
    cards = part.cards if part else ()
    if not cards:
        return
    page.heading("Incidents (durations measured)")
    rest = len(cards) - CARD_COUNT_MAX
    if rest > 0:
        page.line(f"{rest} earlier {'one' if rest == 1 else 'ones'}: --full", "dim")
    for card in cards[-CARD_COUNT_MAX:]:
        _card(card, places.get(card.number, ""), page)


def _card(card: IncidentCard, place: str, page: Page) -> None:
    tag = "injected, " if card.is_injected else ""
    page.line(f"{card.number}. {card.title} ({tag}{card.outcome})", "bold")
    for words in card.evidence[:EVIDENCE_COUNT_MAX]:
        page.line(f"seen: {words}", indent=3)
    if place:
        page.line(place, indent=3)
    more = len(card.evidence) - EVIDENCE_COUNT_MAX
    if more > 0:
        page.line(f"and {more} more: --full", "dim", indent=3)
    page.line(_times(card), indent=3)
    for words in _uncounted(card):
        page.line(words, indent=3)
    if card.verification:
        check = card.verification
        page.line(f"verified by {check.test}: {check.result.replace('_', ' ')}", indent=3)
    facts = dict(card.facts)
    told = [] if facts.get("Class") == PLANNED else [f"{label.lower()}: {facts[label]}" for label in ("Ranks at fault", "Fault domain", "Cause") if label in facts]  # fmt: skip
    if told:
        page.line("; ".join(told), "dim", indent=3)


def _times(card: IncidentCard) -> str:
    """When it began, the durations that are known, and what it cost; lost work that no record tells says so."""
    begins = (m.at_us for m in card.moments if m.name == "onset" and m.at_us is not None)
    shown = [f"began {wording.instant_text(at_us, with_date=False)}" for at_us in begins]
    shown += [
        f"{row.label.lower()} {wording.value_text(row.figure)}"
        for row in card.figures
        if row.figure.value is not None and row.figure.name in (*_PHASES, *_COSTS)
    ]
    known = {row.figure.name for row in card.figures if row.figure.value is not None}
    if dict(card.facts).get("Class") != PLANNED:
        shown += [f"{name} not observed" for name in _COSTS[:1] if name not in known]
    return "; ".join(shown)


def _uncounted(card: IncidentCard) -> Iterable[str]:
    """Why the lane of `down.detect` is longer than the detection: no step was made before the onset either."""
    for moment in card.moments:
        if moment.name == _LAST_STEP and moment.since_onset_us is not None:
            yield f"last step {format_duration(-moment.since_onset_us)} before the onset; {moment.detail}"


def _places(stacks: Section | None) -> dict[int, str]:
    """Incident -> where the rank stood that stood elsewhere than the others."""
    found: dict[int, str] = {}
    for table in stacks.tables if stacks else ():
        number = table.name.removeprefix("stacks-")
        titles = [column.title for column in table.columns]
        if not number.isdecimal() or "Standing" not in titles:
            continue
        odd = [row for row in table.rows if row[titles.index("Standing")] == "outlier"]
        told = [_stood(row, table) for row in odd]
        if told:
            found[int(number)] = "; ".join(told)
    return found


def _stood(row: Sequence[object], table: Table) -> str:
    cells = dict(zip((column.title for column in table.columns), row, strict=True))
    ranks = cells["Ranks"]
    place = cells.get("Innermost of the job's own code") or cells.get("Innermost frame") or "nowhere"  # fmt: skip
    return f"rank {ranks} stood in {place}, apart from the others"


# --- what is not known --------------------------------------------------------------------------------------


def _unknown(section: Section, page: Page) -> None:
    """What the parts warn of or miss, each sentence once; what a card says of its own incident stays there."""
    told = list(dict.fromkeys(note.text for note in _warnings(section)))
    absent = [found.group(1).lower() for text in told if (found := _ABSENT.match(text))]
    texts = [text for text in told if not _ABSENT.match(text)]
    if absent:
        texts.append(f"Nothing is on record of: {', '.join(absent)}.")
    if not texts:
        return
    page.heading("What is not known, or needs a look")
    for text in texts[:NOTE_COUNT_MAX]:
        page.item(text)
    if len(texts) > NOTE_COUNT_MAX:
        page.line(f"{len(texts) - NOTE_COUNT_MAX} more: --full", "dim")


def _warnings(section: Section) -> Iterable[Note]:
    yield from (note for note in section.notes if note.level != "info")
    for part in section.parts:
        if (
            part.name != "duties"
        ):  # what layers owe is a table of its own, and no finding about the run
            yield from _warnings(part)
