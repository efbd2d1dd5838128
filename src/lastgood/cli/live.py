"""What `lastgood run` says while it runs: one line an event that matters, on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lastgood.base.units import format_duration

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.ledger.event import Event
    from lastgood.training.options import RunOptions
    from lastgood.training.supervising.session import RunResult


class LineView:
    """Prints the course of a run: where it writes, what breaks, and how it ended."""

    def __init__(self, ledger: Path, *, is_quiet: bool = False) -> None:
        self._ledger = ledger
        self._is_quiet = is_quiet
        self._opening: list[str] = []
        self._fatal_shown: set[str] = set()
        self._shown: dict[str, set[int]] = {}
        """Errors whose trace was shown, each with the ranks that raised it in the present incident."""

    def open_with(self, text: str) -> None:
        """Say a line as soon as the run begins: what is refused before that has not begun."""
        self._opening.append(text)

    def show(self, event: Event) -> None:
        """Say one event, if a person wants to know it while it happens."""
        if event.kind == "run.start":
            opening, self._opening = self._opening, []
            for line in opening:
                self.say(line)
        text = self._once(event) or describe(event)
        if event.kind == "run.start":
            text += f"; ledger {self._ledger}"
        if event.kind == "escalate" and str(event.body.get("signature")).startswith("exception"):
            text += f". For the trace type: lastgood report {self._ledger} --run {event.run} --full"
        if text:
            self.say(text)

    def _once(self, event: Event) -> str:
        """The trace of an error is shown once: ranks that raise the same, or raise it again, are named in one line."""
        if event.kind == "incident.close":
            for raised in self._shown.values():
                raised.clear()
        if event.body.get("what") == "fatal error":
            return self._fatal(event)
        if event.kind != "observation" or event.symptom != "exception":
            return ""
        error = f"{event.body.get('type')}: {event.body.get('message')}"
        ranks = self._shown.get(error)
        if ranks is None:
            self._shown[error] = set(event.ranks)
            return ""
        is_first = not ranks
        again = "again" if is_first or ranks.issuperset(event.ranks) else "too"
        ranks.update(event.ranks)
        what = "the error that was shown above" if is_first else "it"
        return f"{_ranks(event)} raised {what} {again}: {error}"

    def _fatal(self, event: Event) -> str:
        """Where a fatal error came from; of ranks that die at one place, that of the first."""
        body = event.body
        worker = body.get("worker")
        who = f"{_ranks(event)} ({worker})" if event.ranks else f"worker {worker}"
        text = f"{who}: fatal error: {body.get('error')}"
        trace = str(body.get("trace", ""))
        if trace and trace in self._fatal_shown:
            return f"{text}, at the place that was shown above"
        self._fatal_shown.add(trace)
        where = f"in this thread:\n{trace}" if trace else "in no thread of Python's"
        return f"{text}; the stacks of all threads are in the ledger, and it came {where}"

    def end(self, options: RunOptions, result: RunResult) -> None:
        """Say how it ended and what to type next."""
        self.say(
            f"run {options.run_id} ended with code {result.exit_code}{_MEANING.get(result.exit_code, '')}; "
            f"{result.head.size} events in {options.ledger}"
        )
        if result.unwritten is not None:
            self.say(
                f"the ledger could not be written to the end: {result.unwritten_count} events are in {result.unwritten}; "
                "the next lastgood run with this ledger puts them in"
            )
        self.say(f"next: lastgood report {options.ledger} --run {options.run_id}")

    def say(self, text: str) -> None:
        """Say one line, unless it was asked to be quiet."""
        if self._is_quiet:
            return
        try:
            sys.stderr.write(f"lastgood: {text}\n")
            sys.stderr.flush()
        except OSError:
            self._is_quiet = True  # the terminal is gone: no reason to stop, and the ledger knows


def describe(event: Event) -> str:
    """Return what is said of an event, or nothing when it is not worth a line."""
    if event.kind in _INCIDENT_KINDS:
        return _incident_line(event)
    body = event.body
    match event.kind:
        case "run.start":
            return f"run {event.run}: {count_of(body, 'world', 'rank')}, {count_of(body, 'spares', 'spare')}"
        case "attempt.start" if isinstance(body.get("pids"), dict):
            pids = ", ".join(f"rank {rank} pid {pid}" for rank, pid in body["pids"].items())
            return f"attempt {event.attempt}: {pids}"
        case "observation" if event.symptom == "exception":
            where = body.get("where", "in its step")
            return f"{_ranks(event)} raised {where}:\n{str(body.get('trace', '')).rstrip()}"
        case "observation" if event.role == "cascade" and body.get("evidence"):
            return f"then: {'; '.join(map(str, body['evidence']))}"
        case "inventory" if body.get("before") == "start":
            return (
                f"worker {body.get('worker')} {body.get('exit')} before it reached lastgood.start"
            )
        case "annotation":
            return _remark(body)
        case "planned.begin" if body.get("passed_on"):
            return f"{body.get('reason')}: passed on to every rank"
        case "planned.begin":
            kept = "and writing a checkpoint" if body.get("has_checkpoints") else _LOST
            return f"{body.get('reason')}: stopping behind the present step, {kept}"
        case "checkpoint.commit":
            return f"checkpoint of step {body.get('step')} written: {body.get('path')}"
        case "checkpoint.fail":
            return f"checkpoint of step {body.get('step')} failed: {body.get('reason')}"
        case "restore.begin" if body.get("resumes"):
            what = "" if body.get("tier") == "slot" else "checkpoint "
            return f"resuming from {what}{body['resumes']}"
        case "state.trust" if body.get("state") in {"suspect", "tainted"}:
            return f"state {body.get('step')} is {body.get('state')}: {body.get('reason')}"
    return ""


def _remark(body: dict[str, Any]) -> str:
    """The remarks that somebody who watches the run has to know."""
    text = str(body.get("text", ""))
    if text == "waiting for a spare":
        limit_us = body.get("limit_us")
        within = f", for {format_duration(limit_us)} at most" if isinstance(limit_us, int) else ""
        return f"waiting for a spare: {count_of(body, 'missing', 'rank')} without a worker{within}"
    if text == "the script failed before lastgood.start":
        return f"{text}:\n{str(body.get('error', '')).rstrip()}"
    if text == "a section without a limit":
        limit = format_duration(int(body.get("limit_us", 0)))
        return f"section {body.get('section')} has no limit: a hang in it counts after {limit}; write {body.get('next')}"
    if text == "a section opens behind different steps":
        inside = str(body.get("inside"))
        steps = body.get("steps", {})
        others = ", ".join(f"rank {r} is in step {s}" for r, s in steps.items() if r != inside)
        return (
            f"rank {inside} is in section {body.get('section')} behind step {steps.get(inside)}, while {others}: "
            f"a counter of the script's own begins again in a spare; {body.get('next')}"
        )
    if text == "a checkpoint is due and is not begun":
        every = format_duration(int(body.get("every_us", 0)))
        return f"{text}: {body.get('reason')}; one was asked for every {every}"
    if text == "another fault in the same incident":
        return f"another fault: {'; '.join(map(str, body.get('evidence', ())))}"
    if text.startswith("the loader"):
        return f"{text}; {body.get('next')}"
    if not text.startswith(_SAID):
        return ""
    return f"{text}\n{_stack_words(body)}" if body.get("stack_groups") else text


def _incident_line(event: Event) -> str:
    body = event.body
    match event.kind:
        case "incident.open":
            evidence = "; ".join(map(str, body.get("evidence", ())))
            who = f" of {_ranks(event)}" if event.ranks else ""
            return f"detected {event.symptom}{who}: {evidence}"
        case "diagnose" if body.get("stack_groups"):
            return _stack_words(body)
        case "diagnose" if body.get("return_count"):
            count = count_of(body, "return_count", "time")
            return f"the same failure came back, {count} now: every rank of the host is replaced"
        case "isolate":
            return f"isolated{_time(event.isolate_us)}: killed {_names(body.get('killed'))}, parked {_names(body.get('parked'))}"
        case "restore" if body.get("step") is None:
            return ""  # the script knows from where it goes on, and nobody else
        case "restore":
            return (
                f"restored state {body.get('step')} ({body.get('tier')}){_time(event.recover_us)}"
            )
        case "verify":
            result = event.verification.result if event.verification else "unknown"
            return f"verified state {body.get('step')}: {result}{_time(event.verify_us)}"
        case "incident.close" if body.get("outcome") == "recovered":
            lost = count_of(body, "lost_steps", "step")
            return f"recovered: goes on after step {body.get('resumed_step')}, {lost} lost"
        case "incident.close":
            return _closed_words(event)
        case "escalate":
            return f"gave up: {body.get('reason')}; {_who_acts(body.get('owner'))} must act now"
    return ""


def _who_acts(owner: object) -> str:
    """The owner whom the contract names; the supervisor itself owns what is automatic, and it has just given up."""
    return str(owner) if owner and owner != "supervisor" else "a person"


def _stack_words(body: dict[str, Any]) -> str:
    """One line a group of processes that stand at the same place, where in the job's own code, the odd ones marked."""
    from lastgood.training.watching.job_code import own_frame

    lines = []
    for group in body["stack_groups"]:
        stack = group["stack"]
        place = own_frame(stack) or (stack[0] if stack else "nowhere")
        ranks = ", ".join(map(str, group["ranks"]))
        mark = "  <- stands out" if group["is_outlier"] else ""
        lines.append(f"  {group['role']} of rank {ranks}: {place}{mark}")
    return "\n".join([f"stacks of {body.get('dumped')} processes:", *lines])


def _closed_words(event: Event) -> str:
    body = event.body
    match body.get("outcome"):
        case "resolved":
            return f"resolved by itself: goes on after step {body.get('resumed_step')}"
        case "restarted" if "lost_steps" in body:
            return f"restarted: goes on from step {body.get('resumed_step')}, {count_of(body, 'lost_steps', 'step')} lost"
        case "restarted":
            return (
                f"restarted: how many steps are lost is unknown, {body.get('lost_steps_unknown')}"
            )
    return ""


_INCIDENT_KINDS = frozenset(
    {"incident.open", "diagnose", "isolate", "restore", "verify", "incident.close", "escalate"}
)
_SAID = (
    "no more spares are started",
    "every rank raised",
    "the supervisor did not turn",
    "the ledger",
    "a spare cannot be started",
    "behind the end of its script",
    "an earlier start of this",
    "behind the last step",
    "a second signal",
)
_LOST = "with no --checkpoint-dir: what it trained is lost"
_MEANING = {
    75: " (preempted: requeue me)",
    93: " (a person is needed: do not requeue)",
    130: " (interrupted)",
}


def count_of(body: dict[str, Any], key: str, noun: str) -> str:
    """Return a count with its noun, such as `1 rank` or `4 ranks`."""
    count = body.get(key)
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _ranks(event: Event) -> str:
    if not event.ranks:
        return "no rank in particular"
    noun = "rank" if len(event.ranks) == 1 else "ranks"
    return f"{noun} {', '.join(map(str, event.ranks))}"


def _time(duration_us: int | None) -> str:
    return "" if duration_us is None else f" in {format_duration(duration_us)}"


def _names(found: object) -> str:
    return ", ".join(map(str, found)) if isinstance(found, list) and found else "nobody"
