"""What a series of drills says while it runs: a bar on a terminal, and one line a drill when it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from lastgood.base.clock import SystemClock
from lastgood.base.units import format_duration
from lastgood.cli.live import describe

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from lastgood.ledger.event import Event
    from lastgood.training.drills.drill import Drill
    from lastgood.training.drills.verdict import Verdict

REFRESH_US = 200_000
NAME_WIDTH, TEXT_WIDTH = 24, 44


class DrillView:
    """Shows how far a series is; the lines go to standard output, the bar to standard error."""

    def __init__(self, count: int, *, is_quiet: bool) -> None:
        self._count, self._is_quiet = count, is_quiet
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._doing = ""
        self._next_us = 0

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), Elapsed(), TextColumn("{task.description}"))  # fmt: skip
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self._count)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def kept(self, name: str) -> None:
        """A drill held before and is not played again."""
        self._line("kept", name, "held before; --again plays it again")

    def begin_job(self, drills: Sequence[Drill]) -> None:
        """A job starts."""
        text = "starting a job for " + ", ".join(drill.name for drill in drills)
        self._say(text)
        if self._bar is None:
            click.echo(text, err=True)

    def begin_twin(self, steps: int) -> None:
        """The twin starts."""
        self._say(f"the undisturbed twin runs {steps:,} steps in plain torch")

    def show(self, event: Event) -> None:
        """Take one event of a job."""
        text = describe(event)
        if text:
            self._say(text)

    def turn(self) -> None:
        """Something still runs."""
        now_us = SystemClock().monotonic_us()
        if self._bar is not None and now_us >= self._next_us:
            self._next_us = now_us + REFRESH_US
            self._bar.refresh()

    def end_drill(self, verdict: Verdict) -> None:
        """Say what became of a drill."""
        if not verdict.has_held:
            first, *others = verdict.broken
            more = f" (and {len(others)} more)" if others else ""
            detail = f"{first.what}: expected {first.expected}, found {first.found}{more}"
            self._line("NOT HELD", verdict.drill, detail)
            return
        parts = [
            f"{name} {format_duration(value)}"
            for name, value in (("detected", verdict.detected_us), ("recovered", verdict.recovered_us))
            if value is not None
        ]  # fmt: skip
        if parts:
            parts[-1] += " after the injection"
        if verdict.lost_steps is not None:
            parts.append(f"lost {verdict.lost_steps}")
        self._line("held", verdict.drill, ", ".join(parts))

    def _line(self, word: str, name: str, detail: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)
        if self._is_quiet:
            return
        if self._bar is not None:
            self._bar.stop()
        click.echo(f"{word:<9} {name:<{NAME_WIDTH}} {detail}".rstrip())
        if self._bar is not None:
            self._bar.start()

    def _say(self, text: str) -> None:
        self._doing = text
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text[:TEXT_WIDTH], refresh=True)
