"""The report in a terminal: fits 80 columns, and says everything without colour.

A table that is too wide is turned (its columns become rows); what is still too wide is printed as records.
Text from the ledger goes out as plain text, never as markup, and control characters are made visible.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from lastgood.base.units import format_number
from lastgood.evidence import wording
from lastgood.evidence.charts import LANES
from lastgood.evidence.report import (
    Chart,
    FigureRow,
    Headline,
    IncidentCard,
    Note,
    Report,
    Section,
    Table,
    Words,
)

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_MAX: Final = 80
BAR_CELLS: Final = 48
SQUEEZED_ROWS_MIN: Final = 5
"""A table of fewer rows is easier to read as records than with folded words."""
HEAD_CHARS: Final = 10
WORDS_CHARS_MIN: Final = 18
STYLES: Final = {"held": "green", "not_held": "bold red", "unknown": "yellow", "nothing": "dim"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_report(report: Report, console: Console) -> None:
    """Write the whole report to a rich console, at most 80 columns wide.

    Rich fills its lines with blanks; what goes to a file or a pipe has none at its line ends.
    """
    draw_to(console, lambda: _print(report, console))


def print_section(section: Section, console: Console) -> None:
    """Write one section that belongs to no report, such as a published table, in the same way."""
    draw_to(console, lambda: Page(console).section(section, level=1))


def draw_to(console: Console, draw: Callable[[], None]) -> None:
    """Draw at most 80 columns wide, without blanks at the line ends of a file or pipe."""
    console.width = min(console.width, WIDTH_MAX)
    if console.is_terminal:
        draw()
        return
    with console.capture() as captured:
        draw()
    text = "\n".join(line.rstrip() for line in captured.get().split("\n"))
    console.out(text, end="", highlight=False)


def _print(report: Report, console: Console) -> None:
    page = Page(console)
    page.title(report)
    for section in report.sections:
        page.section(section, level=0)
    page.heading("Reproduce it")
    reproduction = report.reproduction
    page.pairs(
        [
            ("command", reproduction.command),
            ("root", reproduction.root),
            ("events", f"{reproduction.size:,} measured"),
            ("origin", reproduction.origin),
            ("ledger", reproduction.ledger),
            ("tool", f"lastgood {reproduction.version}"),
        ]
    )


class Page:
    """Writes the parts of a report one below the other."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """One paragraph, wrapped, with a hanging indent."""
        from rich.padding import Padding
        from rich.text import Text

        self.console.print(Padding(Text(visible(text), style=style), (0, 0, 0, indent)))

    def item(self, text: str) -> None:
        """One point of a list, its further lines under its words."""
        # A command in it can be copied: no name is cut at its hyphens.
        wrapped = textwrap.wrap(visible(text), self.width - 2, break_on_hyphens=False)
        for at, line in enumerate(wrapped):
            self.line(f"{'  ' if at else '- '}{line}")

    def title(self, report: Report) -> None:
        """What the report is about, and as of when."""
        self.line(f"{report.title}: {report.subject}", "bold")
        self.line(f"records up to {wording.instant_text(report.as_of_us)}", "dim")

    def heading(self, title: str) -> None:
        """The title of a part, underlined."""
        self.line()
        self.line(title, "bold")
        self.line("─" * min(self.width, len(title)), "dim")

    def section(self, section: Section, *, level: int) -> None:
        """A section with all that is in it."""
        if level:
            self.heading(section.title)
        if section.headline:
            self.headline(section.headline, is_injected=section.is_injected)
        for words in section.answers:
            self.words(words)
        if section.lead:
            self.line(section.lead, "dim")
        self.figures(section.figures)
        for chart in section.charts:
            self.chart(chart)
        for words in section.words:
            self.words(words)
        for table in section.tables:
            self.table(table)
        for card in section.cards:
            self.card(card)
        self.notes(section.notes)
        for part in section.parts:
            self.section(part, level=level + 1)

    def words(self, words: Words) -> None:
        """A small title with its sentences below it."""
        self.line(words.title, "bold")
        for sentence in words.sentences:
            self.line(sentence, indent=2)

    def headline(self, headline: Headline, *, is_injected: bool) -> None:
        """The answer, that faults were injected, and the checks."""
        self.line()
        self.line(headline.sentence, "bold")
        if is_injected:
            self.line(
                "INJECTED FAULTS: caused on purpose. They show how recovery behaves; they say nothing "
                "about how often any machine fails.",
                "yellow",
            )
        for check in headline.checks:
            sign, word = wording.SIGNS[check.state], wording.STATES[check.state]
            self.line(f"{sign} {check.question:<22} {word}: {check.detail}", STYLES[check.state])

    def figures(self, rows: Iterable[FigureRow]) -> None:
        """Label, value, kind; what a reader must know on the next line."""
        rows = list(rows)
        if not rows:
            return
        self.line()
        label_width = min(34, max(len(row.label) for row in rows))
        for row in rows:
            self.line(f"{row.label:<{label_width}}  {_value(row)}")
            told = (
                wording.interval_text(row.figure) if row.is_key else wording.detail_text(row.figure)
            )
            detail = "; ".join(part for part in (row.note, told) if part)
            if detail:
                self.line(detail, "dim", indent=4)

    def pairs(self, pairs: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Labels and words in two columns."""
        pairs = list(pairs)
        width = max((len(label) for label, _ in pairs), default=0)
        for label, words in pairs:
            self.line(f"{label:<{width}}  {words}", indent=indent)

    def notes(self, notes: Iterable[Note]) -> None:
        """Sentences, those that warn marked."""
        for note in notes:
            prefix = "" if note.level == "info" else f"{note.level}: "
            self.line(
                prefix + note.text, {"missing": "yellow", "warning": "red"}.get(note.level, "dim")
            )

    def table(self, table: Table) -> None:
        """A table as it is, turned, or as records: the first form that fits. One kind for all goes to the title."""
        self.line()
        kinds = {kind for i in range(len(table.columns)) if (kind := wording.column_kind(table, i))}
        shared = kinds.pop() if len(kinds) == 1 else ""
        self.line(f"{table.title} ({shared})" if shared else table.title, "bold")
        heads = [_head(table, index, shared) for index in range(len(table.columns))]
        body = [[_with_kind(cell) for cell in row] for row in wording.table_texts(table)]
        numbers = [column.is_number for column in table.columns]
        flat = [", ".join(part for part in head if part) for head in heads]
        turned = [list(column) for column in zip(flat, *body, strict=True)]
        if _grid_width([[max(head, key=len) for head in heads], *body]) <= self.width:
            self._grid(["\n".join(part for part in head if part) for head in heads], body, numbers)
        elif _grid_width(turned) <= self.width:
            self._grid(turned[0], turned[1:], [False] + [True] * (len(turned[0]) - 1))
        elif len(body) >= SQUEEZED_ROWS_MIN and _squeezed_width(heads, body, numbers) <= self.width:
            self._grid([_stacked(head) for head in heads], body, numbers, is_squeezed=True)
        else:
            for row in body:
                self.line(row[0], "bold")
                self.pairs(zip(flat[1:], row[1:], strict=True), indent=2)
        if table.note:
            self.line(table.note, "dim")

    def _grid(
        self,
        heads: list[str],
        body: list[list[str]],
        numbers: list[bool],
        *,
        is_squeezed: bool = False,
    ) -> None:
        """A grid; a squeezed one folds its words and never a number."""
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
        for head, is_number in zip(heads, numbers, strict=True):
            grid.add_column(
                Text(visible(head)),
                justify="right" if is_number else "left",
                vertical="bottom",
                overflow="fold",
                no_wrap=is_squeezed and is_number,
            )
        for row in body:
            grid.add_row(*(Text(visible(cell)) for cell in row))
        self.console.print(grid)

    def chart(self, chart: Chart, *, has_caption: bool = True) -> None:
        """A strip as lanes of blocks, a waterfall as bars; a line chart only by its range."""
        self.line()
        self.line(f"{chart.title} ({chart.data.kind})", "bold")
        if chart.caption and has_caption:
            self.line(chart.caption, "dim")
        if not chart.data.rows:
            self.line("nothing recorded to draw", "dim")
        elif chart.form == "strip":
            self._strip(chart)
        elif chart.form == "waterfall":
            self._waterfall(chart)
        elif chart.form != "line":
            count = len(chart.data.rows)
            self.line(
                f"{count} row{'' if count == 1 else 's'} of data; drawn with --html or --charts"
            )
        else:
            y = chart.data.columns[1]
            values = [row[1] for row in chart.data.rows if row[1] is not None]
            self.line(
                f"{len(values)} points, {format_number(min(values))} to {format_number(max(values))} {y.unit}; "
                "drawn with --html"
            )

    def _strip(self, chart: Chart) -> None:
        rows = chart.data.rows
        last = max(row[2] for row in rows) or 1.0
        unit = chart.data.columns[1].unit
        seen = {row[0] for row in rows}
        for state in (lane for lane in LANES if lane in seen):
            cells = _lane([row for row in rows if row[0] == state], last)
            total = sum(row[2] - row[1] for row in rows if row[0] == state)
            self.line(f"{state:<19} {cells} {format_number(total):>6} {unit}")
        if chart.marks:
            cells = [" "] * BAR_CELLS
            for mark in chart.marks:
                cells[min(BAR_CELLS - 1, int(mark.at / last * BAR_CELLS))] = mark.label[:1]
            self.line(f"{'incident':<19} {''.join(cells)}")

    def _waterfall(self, chart: Chart) -> None:
        unit = chart.data.columns[1].unit
        largest = max(row[1] for row in chart.data.rows) or 1.0
        for label, amount, _ in (row[:3] for row in chart.data.rows):
            bar = "█" * round(amount / largest * (BAR_CELLS - 10)) or "▏"
            self.line(f"{label:<19} {bar} {format_number(amount)} {unit}")

    def card(self, card: IncidentCard) -> None:
        """One incident: title, timeline, verification, numbers, facts."""
        self.line()
        tag = "injected, " if card.is_injected else ""
        self.line(f"{card.number}. {card.title} ({tag}{card.outcome})", "bold")
        for moment in card.moments:
            detail = f"  {moment.detail}" if moment.detail else ""
            at = "" if moment.at_us is None else wording.instant_text(moment.at_us, with_date=False)
            self.line(
                f"{moment.name:<9} {wording.since_text(moment.since_onset_us):>12}  {at:>16}{detail}",
                indent=3,
            )
        check = card.verification
        self.line(
            f"verified by {check.test}: {check.result.replace('_', ' ')}"
            if check
            else "verification: none recorded",
            indent=3,
        )
        for words in card.evidence:
            self.line(f"seen: {words}", indent=3)
        numbers = "; ".join(f"{r.label} {_value(r)}" for r in card.figures)
        self.line(numbers, indent=3)
        self.line("; ".join(f"{label}: {words}" for label, words in card.facts), "dim", indent=3)
        self.notes(card.notes)


def visible(text: str) -> str:
    """The text with control characters spelled out: a ledger may hold what someone else wrote."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def _value(row: FigureRow) -> str:
    return f"{wording.value_text(row.figure)} {wording.kind_text(row.figure)}".rstrip()


def _head(table: Table, index: int, shared: str) -> tuple[str, str, str]:
    """Title, unit and kind of a column; the kind only where the title of the table does not say it."""
    column = table.columns[index]
    return column.title, column.unit, "" if shared else wording.column_kind(table, index) or ""


def _with_kind(cell: wording.CellText) -> str:
    return f"{cell.text} {cell.kind}" if cell.kind else cell.text


def _grid_width(grid: list[list[str]]) -> int:
    columns = zip(*grid, strict=True)
    return sum(max(len(cell) for cell in column) + 2 for column in columns)


def _stacked(head: tuple[str, str, str]) -> str:
    """A head with every part folded at its blanks, so that it is no wider than its numbers need."""
    return "\n".join(line for part in head if part for line in textwrap.wrap(part, HEAD_CHARS))


def _squeezed_width(
    heads: list[tuple[str, str, str]], body: list[list[str]], numbers: list[bool]
) -> int:
    """How narrow the grid can get when only its words fold."""
    width = 0
    for at, is_number in enumerate(numbers):
        head = max((len(line) for line in _stacked(heads[at]).split("\n")), default=0)
        cells = max((len(row[at]) for row in body), default=0)
        width += max(head, cells if is_number else min(cells, WORDS_CHARS_MIN)) + 2
    return width


def _lane(rows: list[tuple], last: float) -> str:
    """Blocks where the state holds, with at least one cell for each stretch, however short."""
    cells = ["·"] * BAR_CELLS
    for _, begin, end in (row[:3] for row in rows):
        first = min(BAR_CELLS - 1, int(begin / last * BAR_CELLS))
        for i in range(first, max(first + 1, round(end / last * BAR_CELLS))):
            cells[min(i, BAR_CELLS - 1)] = "█"
    return "".join(cells)
