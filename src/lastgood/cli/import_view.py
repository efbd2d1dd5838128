"""The table of an import for a terminal: what each file was, what became of its rows, and what nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lastgood.ledger.importers.quality import Quality
    from lastgood.ledger.importers.result import FileResult, ImportResult

FILE_COUNT_MAX = 40
NAME_CHARS_MAX = 24


def print_result(result: ImportResult, console: Console | None = None) -> None:
    """Prints the files, the rows that were left out with the reason, and the rest that one has to know."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    total = result.total
    console.print(_files(result))
    if len(result.files) > FILE_COUNT_MAX:
        console.print(f"and {len(result.files) - FILE_COUNT_MAX:,} more files (--json lists all)")
    if total.rejected:
        console.print(_rejected(total))
    if total.ignored:
        console.print(_counts("Ignored: whole rows that are not about failures", "why", dict(total.ignored)))  # fmt: skip
    facts = _facts(result, total)
    if facts:
        console.print(_counts("What else there is to know", "what", facts))
    for problem in total.file_problems:
        console.print(f"! {problem}")
    for note in total.notes:
        console.print(f"- {note}")
    new, merged = total.events_new, total.events_merged
    console.print(f"{new:,} new event{_s(new)}, {merged:,} already there: {result.ledger}")


def _files(result: ImportResult) -> Table:
    table = Table(title="Rows of each file (counted)", title_justify="left", box=None, pad_edge=False)  # fmt: skip
    table.add_column("file", overflow="fold", max_width=NAME_CHARS_MAX)
    table.add_column("format", overflow="fold", max_width=14)
    for name in ("read", "taken", "ignored", "rejected", "new", "known"):
        table.add_column(name, justify="right", no_wrap=True)
    for file in result.files[:FILE_COUNT_MAX]:
        table.add_row(file.name, _format(file), *_row(file.quality))
    if len(result.files) > 1:
        table.add_row("total", "", *_row(result.total), style="bold")
    return table


def _format(file: FileResult) -> str:
    if file.format is None:
        return "none"
    return f"{file.format} (detected)" if file.is_detected else file.format


def _row(quality: Quality) -> tuple[str, ...]:
    counts = (
        quality.read,
        quality.accepted,
        quality.ignored_count,
        quality.rejected_count,
        quality.events_new,
        quality.events_merged,
    )
    return tuple(f"{count:,}" for count in counts)


def _rejected(total: Quality) -> Table:
    table = Table(title="Rejected: rows that could not be taken", title_justify="left", box=None, pad_edge=False)  # fmt: skip
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("reason and first places", overflow="fold")
    for reason, rejection in sorted(total.rejected.items(), key=lambda item: -item[1].count):
        table.add_row(f"{rejection.count:,}", reason)
        for example in rejection.examples[:3]:
            detail = f" ({example.detail})" if example.detail else ""
            table.add_row("", f"  {example.locator}{detail}: {_printable(example.raw[:60])}")
    return table


def _counts(title: str, what: str, counts: dict[str, object]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column(what, overflow="fold")
    for name, count in counts.items():
        table.add_row(f"{count:,}" if isinstance(count, int) else str(count), name)
    return table


def _facts(result: ImportResult, total: Quality) -> dict[str, object]:
    facts: dict[str, object] = {}
    if total.failures:
        share = f"{total.unknown_causes / total.failures:.1%}"
        facts[
            f"of {total.failures:,} failures (incidents, and signals one by one) have no known cause"
        ] = share
    if total.unplaced:
        facts["signals with no class and no cause that a table knows: no failures until one does (--mapping)"] = total.unplaced  # fmt: skip
    if total.inferred_times:
        facts["times rest on an assumed zone, year or boot (clock.source: inferred)"] = total.inferred_times  # fmt: skip
    if total.clock_corrections:
        shifted = total.clock_corrected_us / 1_000_000
        facts[f"clock corrections, {shifted:,.1f} s in all"] = total.clock_corrections
    if total.damaged_lines:
        facts["lines with bytes that are no UTF-8 (read with U+FFFD)"] = total.damaged_lines
    if total.cut_lines:
        facts["lines longer than a megabyte, cut there"] = total.cut_lines
    facts |= total.unusable
    for what, count in total.known_losses.items():
        facts[f"known to be missing: {what}"] = count
    begins = [f.coverage_begin_us for f in result.files if f.coverage_begin_us is not None]
    ends = [f.coverage_end_us for f in result.files if f.coverage_end_us is not None]
    if begins and ends:
        facts[f"{_when(min(begins))} to {_when(max(ends))}"] = "covered"
    return facts


def _when(t_us: int) -> str:
    return f"{datetime.fromtimestamp(t_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _s(count: int) -> str:
    return "" if count == 1 else "s"
