"""A bar that counts events, for commands that read or write a whole ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

QUIET_US = 1_000_000
"""How long a command may be silent before the bar appears."""


@contextmanager
def event_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """A function of (events so far, events in all) that draws on stderr: on a terminal only, after the first second."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from lastgood.base.clock import SystemClock

    clock = SystemClock()
    begin_us = clock.monotonic_us()
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.completed:,} events"), TimeRemainingColumn())  # fmt: skip
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)

    def show(done: int, of: int) -> None:
        if not bar.live.is_started:
            if clock.monotonic_us() - begin_us < QUIET_US:
                return
            bar.start()
        bar.update(task, completed=done, total=of)

    try:
        yield show
    finally:
        bar.stop()
