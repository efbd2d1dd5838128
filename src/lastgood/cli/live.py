"""What `lastgood run` says while it runs: one line an event that matters, on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lastgood.base.units import format_duration

if TYPE_CHECKING:
    from lastgood.ledger.event import Event
    from lastgood.training.options import RunOptions
    from lastgood.training.session import RunResult


class LineView:
    """Prints the course of incidents and nothing else."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet

    def begin(self, options: RunOptions) -> None:
        """Say where the records go."""
        self._say(
            f"run {options.run_id}: {options.ranks} ranks, {options.spares} spares; ledger {options.ledger}"
        )

    def show(self, event: Event) -> None:
        """Say one event, if a person wants to know it while it happens."""
        text = describe(event)
        if text:
            self._say(text)

    def end(self, options: RunOptions, result: RunResult) -> None:
        """Say how it ended and what to type next."""
        self._say(
            f"run {options.run_id} ended with code {result.exit_code}; {result.head.size} events"
        )
        self._say(f"next: lastgood report {options.ledger} --run {options.run_id}")

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            sys.stderr.write(f"lastgood: {text}\n")
            sys.stderr.flush()


def describe(event: Event) -> str:
    """Return one line for an event, or nothing when it is not worth one."""
    body = event.body
    ranks = ", ".join(map(str, event.ranks))
    match event.kind:
        case "incident.open":
            evidence = "; ".join(map(str, body.get("evidence", ())))
            return f"detected {event.symptom} of rank {ranks or 'unknown'}: {evidence}"
        case "isolate":
            return f"isolated in {_time(event.isolate_us)}: killed {_names(body.get('killed'))}, parked {_names(body.get('parked'))}"
        case "restore":
            return f"restored state {body.get('step')} ({body.get('tier')}) in {_time(event.recover_us)}"
        case "verify":
            result = event.verification.result if event.verification else "unknown"
            return f"verified state {body.get('step')}: {result}, in {_time(event.verify_us)}"
        case "state.trust" if body.get("state") in {"suspect", "tainted"}:
            return f"state {body.get('step')} is {body.get('state')}: {body.get('reason')}"
        case "incident.close":
            if body.get("outcome") != "recovered":
                return ""
            lost = body.get("lost_steps")
            return f"{body.get('outcome')}: goes on after step {body.get('resumed_step')}, {lost} steps lost"
        case "checkpoint.fail":
            return f"checkpoint of step {body.get('step')} failed: {body.get('reason')}"
        case "escalate":
            return f"escalated to {body.get('owner')}: {body.get('reason')}"
    return ""


def _time(duration_us: int | None) -> str:
    return "unknown time" if duration_us is None else format_duration(duration_us)


def _names(found: object) -> str:
    return ", ".join(map(str, found)) if isinstance(found, list) and found else "nobody"
