"""The live view of the demo: ranks on top, the course of incidents below, then the summary."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lastgood.base.clock import SystemClock
from lastgood.cli.live import describe

if TYPE_CHECKING:
    from lastgood.ledger.event import Event
    from lastgood.training.drills.live import DrillResult
    from lastgood.training.supervising.supervisor import Supervisor

REFRESH_US = 150_000
LINES_KEPT = 14
_STAGES = ("detect", "isolate", "restore", "verify")
_STAGE_OF = {"suspect": 0, "isolating": 1, "restoring": 2, "verifying": 3}


class DemoView:
    """Shows a drill while it runs; on a pipe it prints one line an event instead."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._console = Console(highlight=False, stderr=True)
        self._lines: list[str] = []
        self._supervisor: Supervisor | None = None
        self._stage = "starting four ranks and a spare (each imports torch)"
        self._began_us = SystemClock().monotonic_us()
        self._next_us = 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._is_quiet and self._console.is_terminal:
            self._live = Live(
                self._picture(), console=self._console, auto_refresh=False, transient=True
            )
            self._live.start()
        elif not self._is_quiet:
            self._say(self._stage)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: Event) -> None:
        """Take one event of the run."""
        if event.kind == "attempt.start" and event.attempt == 1:
            self._stage = "training, while another process breaks things"
        text = describe(event)
        if text:
            self._say(text)
        self._refresh(is_due=bool(text))

    def turn(self, supervisor: Supervisor) -> None:
        """Take the present state of the supervisor."""
        self._supervisor = supervisor
        self._refresh()

    def begin_twin(self, steps: int) -> None:
        """The job is over; the twin starts."""
        self._supervisor = None
        self._stage = f"the undisturbed twin runs the same {steps} steps in plain torch"
        self._say(self._stage)
        self._refresh(is_due=True)

    def twin_turn(self) -> None:
        """The twin is still running."""
        self._refresh()

    def begin_evidence(self) -> None:
        """The runs are over; the records are read."""
        self._stage = "writing the report and the bundle, and recomputing every figure"
        self._say(self._stage)
        self._refresh(is_due=True)

    def _say(self, text: str) -> None:
        elapsed_s = (SystemClock().monotonic_us() - self._began_us) / 1e6
        line = f"{elapsed_s:6.1f} s  {text}"
        self._lines = [*self._lines, line][-LINES_KEPT:]
        if self._live is None and not self._is_quiet:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def _refresh(self, *, is_due: bool = False) -> None:
        now_us = SystemClock().monotonic_us()
        if self._live is not None and (is_due or now_us >= self._next_us):
            self._next_us = now_us + REFRESH_US
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Group:
        elapsed_s = (SystemClock().monotonic_us() - self._began_us) / 1e6
        head = Text.assemble(("lastgood demo", "bold"), f"  {elapsed_s:5.1f} s  {self._stage}")
        parts: list[Any] = [head]
        if self._supervisor is not None and self._supervisor.state is not None:
            parts += [self._loop_line(), self._ranks()]
        parts += [Text(line, overflow="ellipsis", no_wrap=True) for line in self._lines]
        return Group(*parts)

    def _loop_line(self) -> Text:
        assert self._supervisor is not None
        assert self._supervisor.state is not None
        reached = _STAGE_OF.get(self._supervisor.state.phase.value)
        line = Text("loop: ")
        for number, stage in enumerate(_STAGES):
            is_now = reached == number
            line.append(
                f"[{stage}]" if is_now else f" {stage} ", style="bold reverse" if is_now else "dim"
            )
            line.append(" > " if number < len(_STAGES) - 1 else "")
        line.append("   running" if reached is None else f"   {self._supervisor.state.phase.value}")
        return line

    def _ranks(self) -> Table:
        assert self._supervisor is not None
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for name in ("rank", "worker", "phase", "step"):
            table.add_column(name, justify="right" if name in {"rank", "step"} else "left")
        for rank, name in enumerate(self._supervisor.serving):
            worker = self._supervisor.workers.get(name)
            if worker is None:
                table.add_row(str(rank), name, "gone", "")
                continue
            view = worker.slot.view()
            table.add_row(
                str(rank), name, view.phase.name.lower(), str(max(view.published_step, 0))
            )
        table.add_row("spare", ", ".join(self._supervisor.spares) or "being started", "", "")
        return table

    def summarise(self, result: DrillResult, summary: dict[str, Any]) -> None:
        """Print the outcome to standard output."""
        console = Console(highlight=False)
        if not result.faults:
            console.print(
                f"The job ended with code {result.exit_code} before its faults could be judged."
            )
            return
        table = Table(box=None, padding=(0, 1), header_style="bold", title_justify="left")
        for name, side in (
            ("injected fault", "left"),
            ("detected (s)", "right"),
            ("recovered (s)", "right"),
            ("culprit", "left"),
            ("lost steps", "right"),
            ("", "left"),
        ):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        for fault in summary["faults"]:
            table.add_row(
                fault["name"], _seconds(fault["detected_s"]), _seconds(fault["recovered_s"]),
                "right" if fault["culprit_right"] else "WRONG", _count(fault["lost_steps"]), "held" if fault["held"] else "NOT HELD",
            )  # fmt: skip
        console.print(table)
        console.print(
            "Times count from the injection, measured on this machine, n=1 each; the faults were injected and say nothing about a fleet."
        )
        equal = "equal, bit for bit, to" if summary["bitwise_equal"] else "DIFFERENT from"
        console.print(
            f"\nFinal weights after {summary['steps']} steps: {equal} the undisturbed twin in plain torch."
        )
        figure = summary["ettr"]
        value = figure["value"]
        console.print(
            f"ETTR: {'not observed' if value is None else f'{value:.1%}'} ({figure['kind']}, this run of a few seconds under five faults)."
        )
        recomputed = (
            "every figure recomputed equal"
            if summary["recomputed_equal"]
            else "RECOMPUTED DIFFERENT"
        )
        console.print(f"Bundle: {recomputed}.")
        console.print("\nLook further:", style="bold")
        console.print(f"  open the report    {summary['report']}", soft_wrap=True)
        console.print(f"  verify the ledger  lastgood verify {summary['ledger']}", soft_wrap=True)
        console.print(
            f"  recompute          lastgood recompute {summary['bundle']}", soft_wrap=True
        )


def _seconds(value: float | None) -> str:
    return "not seen" if value is None else f"{value:.2f}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)
