"""The training section of a report: events and a contract in, plain data out. Pure, and free of torch.

Reads in the order in which a person asks: did it hold, what stopped it, where did the time go, was the contract
kept, what happened in each incident, which states may be trusted, and how good are the records.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from lastgood.base.errors import EXIT_DO_NOT_REQUEUE
from lastgood.base.figures import measured
from lastgood.base.units import format_bytes, format_duration
from lastgood.contract.load import contract_digest
from lastgood.contract.model import FailureContract
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.contract_part import contract_section, duties_section
from lastgood.evidence.drilled_runs import DRILL_MODES
from lastgood.evidence.hosts_part import has_many_hosts
from lastgood.evidence.imported_run_part import build_imported_run, is_run_imported
from lastgood.evidence.incident_card import incident_cards
from lastgood.evidence.incident_part import Drill, Injection, headline, settled
from lastgood.evidence.late_verdicts import late_notes, with_late_verdicts
from lastgood.evidence.objectives_part import objectives_section
from lastgood.evidence.quality_part import quality_section
from lastgood.evidence.report import (
    Cell,
    Check,
    Column,
    FigureRow,
    Headline,
    Note,
    Section,
    Table,
    Words,
)  # fmt: skip
from lastgood.evidence.stops_part import class_table, stops_table
from lastgood.evidence.supervisor_deaths import read_supervisor_deaths
from lastgood.evidence.time_part import ending_notes, key_figures, strip_chart, time_section
from lastgood.evidence.watched_part import WATCHED_MODES, watched_cards, watched_headline
from lastgood.ledger.ettr import RunTimes, measure_run
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.grouping import LINKS
from lastgood.ledger.walltime import WallState
from lastgood.training.report.checkpoints import checkpoints_section
from lastgood.training.report.errors import TITLE as ERRORS
from lastgood.training.report.errors import errors_of, errors_section
from lastgood.training.report.integrity import integrity_section
from lastgood.training.report.remarks import remarks_section
from lastgood.training.report.spares import spares_section
from lastgood.training.report.stacks import stacks_section
from lastgood.training.report.steps import integer, of_run, steps_section


def build_section(
    events: Sequence[Event], contract: FailureContract, *, as_of_us: int, run: str | None = None
) -> Section:
    """The section of one run: the named one, or the one that started last among these events."""
    events = [event for event in events if time_of(event) <= as_of_us]
    run = run if run is not None else _newest_run(events)
    if run is None:
        return Section(
            name="training", title="Training",
            headline=Headline(state="nothing", sentence="Nothing to report yet: these events hold no run."),
        )  # fmt: skip
    if is_run_imported(events, run):
        return _imported(events, run, as_of_us)
    times = measure_run(events, run=run, as_of_us=as_of_us)
    times = dataclasses.replace(times, incidents=settled(times.incidents, times.wall))
    times = with_late_verdicts(times, events, run)
    drill = _drill(events, run, times)
    many_hosts = has_many_hosts([event for event in events if event.run == run])
    return Section(
        name="training",
        title="Training",
        headline=_headline(events, run, times, drill),
        is_injected=drill.is_injected,
        figures=(*key_figures(times), *_key_figures(times, drill)),
        charts=(strip_chart(times),),
        notes=ending_notes(times.wall),
        parts=(
            _stops(times, drill, many_hosts=many_hosts),
            time_section(times, is_injected=drill.is_injected),
            objectives_section(contract, times, is_injected=drill.is_injected),
            _incidents(
                times,
                drill,
                mode=_mode(events, run),
                many_hosts=many_hosts,
                given_up=_given_up(events, run),
            ),
            *errors_section(events, run, as_of_us=as_of_us),
            *remarks_section(events, run),
            steps_section(events, run, times),
            checkpoints_section(events, run, times),
            integrity_section(events, run, times),
            stacks_section(events, run, times),
            spares_section(events, run, times),
            _run(events, run, contract),
            contract_section(contract),
            duties_section(contract),
            quality_section(events, times),
        ),
    )


def _imported(events: Sequence[Event], run: str, as_of_us: int) -> Section:
    """The section of an imported run, with the stacks that its hosts dumped where they dumped any."""
    section = build_imported_run(events, run=run, as_of_us=as_of_us)
    times = measure_run([e for e in events if e.run == run], run=run, as_of_us=as_of_us)
    stacks = stacks_section(events, run, times)
    if not stacks.tables:
        return section
    at = next((n for n, part in enumerate(section.parts) if part.name == "incidents"), 0) + 1
    parts = (*section.parts[:at], stacks, *section.parts[at:])
    return msgspec.structs.replace(section, parts=parts)


def _mode(events: Sequence[Event], run: str) -> str:
    """How the run was started last; empty when its start does not say."""
    started = of_run(events, run, EventKind.RUN_START)
    return str(started[-1].body.get("mode", "")) if started else ""


def _headline(events: Sequence[Event], run: str, times: RunTimes, drill: Drill) -> Headline:
    """The answer at the top: of a run that recovers, or of a job that was looked at from outside."""
    mode, ending = _mode(events, run), _ending(events, run, times)
    if mode in WATCHED_MODES:
        deaths = read_supervisor_deaths(e for e in in_effect(events) if e.run == run)
        return watched_headline(
            times.incidents, mode=mode, drill=drill, ending=ending, deaths=deaths
        )
    extra = _extra_checks(events, run, drill)
    return headline(times.incidents, drill=drill, ending=ending, extra=extra)


def _newest_run(events: Sequence[Event]) -> str | None:
    starts = [(time_of(e), e.run) for e in events if e.kind == EventKind.RUN_START and e.run]
    return max(starts)[1] if starts else None


def _drill(events: Sequence[Event], run: str, times: RunTimes) -> Drill:
    """Injected when the run says so, or when any of its incidents does."""
    started = of_run(events, run, EventKind.RUN_START)
    said = any(e.body.get("injected") is True or e.body.get("mode") in DRILL_MODES for e in started)
    noted = [e for e in of_run(events, run, EventKind.ANNOTATION) if e.body.get("injected") is True]
    missed = [_injection(e).fault for e in noted if e.incident is None]
    return Drill(
        is_injected=said or bool(noted) or any(i.injected for i in times.incidents),
        missed=tuple(missed),
        injections={e.incident: _injection(e) for e in noted if e.incident is not None},
    )


def _injection(event: Event) -> Injection:
    """What the injector's log said about one fault, as it was recorded after the run."""
    body = event.body
    name, kind = body.get("fault", "an injected fault"), body.get("fault_kind")
    right = body.get("culprit_right")
    return Injection(
        fault=f"{name} ({str(kind).replace('_', ' ')})" if kind and kind != name else str(name),
        at_us=integer(body.get("injected_wall_us")),
        is_culprit_right=right if isinstance(right, bool) else None,
    )


def _ending(events: Sequence[Event], run: str, times: RunTimes) -> str:
    ended = of_run(events, run, EventKind.RUN_END)
    wall = format_duration(times.wall.window_us)
    if not ended:
        return f"the run has been going for {wall} and has no end on record"
    body = ended[-1].body
    result = body.get("result") or f"exit code {body.get('exit_code', 'not recorded')}"
    return f"the run ended after {wall} ({str(result).replace('_', ' ')})"


def _extra_checks(events: Sequence[Event], run: str, drill: Drill) -> tuple[Check, ...]:
    """Whether the final weights equal those of an undisturbed twin, where somebody compared or had to."""
    twins = [
        e.body["twin"]
        for e in of_run(events, run, EventKind.ANNOTATION)
        if e.body.get("twin") in {"equal", "different"}
    ]
    question = "Final weights"
    if twins:
        is_equal = twins[-1] == "equal"
        detail = (
            "bit for bit those of an undisturbed run"
            if is_equal
            else "not those of an undisturbed run"
        )
        return (Check(question=question, state="held" if is_equal else "not_held", detail=detail),)
    if drill.is_injected:
        return (
            Check(
                question=question,
                state="unknown",
                detail="no record compares them with an undisturbed run",
            ),
        )
    return ()


def _key_figures(times: RunTimes, drill: Drill) -> tuple[FigureRow, ...]:
    wall = times.wall
    accepted = measured(
        "accepted steps",
        None if wall.unsure_executions else wall.accepted_steps,
        "",
        source="step events, each number once",
        as_of_us=wall.as_of_us,
    )
    detected = [i.detect_us for i in times.incidents if i.detect_us is not None]
    detection = measured(
        "detection median", round(statistics.median(detected)) if detected else None, "us",
        source="incidents of the ledger", n=len(detected), as_of_us=wall.as_of_us,
    )  # fmt: skip
    # A rate of faults on purpose is no rate of anything; how fast they were seen is worth knowing.
    last = (
        ("Median time to detect", detection)
        if drill.is_injected
        else ("Mean time to interruption", times.mean_time_to_interruption)
    )
    return (
        FigureRow(label="Accepted steps", figure=accepted, is_key=True),
        FigureRow(label="Lost steps", figure=times.lost_steps, is_key=True),
        FigureRow(label=last[0], figure=last[1], is_key=True),
    )


def _stops(times: RunTimes, drill: Drill, *, many_hosts: bool) -> Section:
    """The classes, and planned stops apart from unexpected ones."""
    wall = times.wall
    lead = "What stopped the run or made its state untrustworthy, by class, with the device time that was at risk."
    if drill.is_injected:
        lead += " These faults were injected: the counts are a drill and no rate follows from them."
    return Section(
        name="stops",
        title="What stopped it",
        lead=lead,
        tables=(
            class_table(times.incidents, exposure=times.exposure.figure(), as_of_us=wall.as_of_us, rule=str(LINKS), wall=wall, has_many_hosts=many_hosts),
            stops_table(
                times.incidents, stopped_us=(wall.totals_us[WallState.PLANNED], stopped_us(times)),
                mtti="none, injected" if drill.is_injected else times.mean_time_to_interruption, as_of_us=wall.as_of_us,
            ),
        ),
    )  # fmt: skip


def stopped_us(times: RunTimes) -> int:
    """Time in which a fault kept the run from its steps: to the end of its incident, also where nobody acts on it."""
    open_from = [
        (i.onset_us or i.opened_us or 0, i.closed_us or times.wall.end_us)
        for i in times.incidents
        if not i.is_planned
    ]
    stopped = 0
    for span in times.wall.spans:
        if span.state.startswith("down.") or span.state is WallState.RESTORE:
            stopped += span.duration_us
        elif span.state is WallState.STALL:
            stopped += _covered_us(open_from, span.start_us, span.end_us)
    return stopped


def _covered_us(windows: Sequence[tuple[int, int]], start_us: int, end_us: int) -> int:
    """How much of a stretch lies in any of these windows."""
    covered, at_us = 0, start_us
    for begin_us, until_us in sorted(windows):
        begin_us, until_us = max(begin_us, at_us), min(until_us, end_us)
        if until_us > begin_us:
            covered, at_us = covered + until_us - begin_us, until_us
    return covered


def _given_up(events: Sequence[Event], run: str) -> tuple[Note, ...]:
    """That the run ended for a person to act, with why and what to do; nothing for one that ended otherwise."""
    ended = of_run(events, run, EventKind.RUN_END)
    code = ended[-1].body.get("exit_code") if ended else None
    if code != EXIT_DO_NOT_REQUEUE:
        return ()
    said = of_run(events, run, EventKind.ESCALATE)
    reason = said[-1].body.get("reason") if said else None
    text = (
        f"The run gave up{f' ({reason})' if reason else ''} and ended with exit code {code}, which says: do not requeue. "
        "Mend the cause that its last incident names, then start the job again by hand."
    )
    if errors_of(events, run):
        text += f' The trace stands in the part "{ERRORS}": --full shows it.'
    return (Note(level="warning", text=text),)


def _incidents(
    times: RunTimes, drill: Drill, *, mode: str, many_hosts: bool, given_up: tuple[Note, ...]
) -> Section:
    cards = incident_cards(
        times.incidents,
        drill=drill,
        as_of_us=times.wall.as_of_us,
        wall=times.wall,
        has_many_hosts=many_hosts,
    )
    if mode in WATCHED_MODES:
        cards = watched_cards(cards, times.incidents, mode=mode)
    notes = [
        Note(level="warning", text=f"Injected and never detected: {fault}.")
        for fault in drill.missed
    ]
    notes += [*given_up, *late_notes(times.incidents)]
    if not cards:
        notes.append(Note(text="No incident is on record."))
    lead = (
        "Each incident from its onset to its close. Its durations are measured, from its own events"
    )
    lead += "." if mode in WATCHED_MODES else "; lost steps do not count the step that was replayed to verify."  # fmt: skip
    return Section(
        name="incidents",
        title="Incidents",
        lead=lead if cards else "",
        cards=cards,
        notes=tuple(notes),
    )


def _run(events: Sequence[Event], run: str, contract: FailureContract) -> Section:
    """What ran, where, under which versions, and each attempt."""
    started = of_run(events, run, EventKind.RUN_START)
    body = started[-1].body if started else {}
    # The first event may come from a process that does not know them all yet.
    versions = next(
        (e.versions for e in reversed(in_effect(events)) if e.run == run and e.versions), {}
    )
    words = [
        Words(
            title="Command",
            sentences=(" ".join(map(str, body.get("command", ()))) or "not recorded",),
        ),
        Words(
            title="Where",
            sentences=(
                f"host {body.get('host', 'not recorded')}; ranks: {body.get('world', 'not recorded')}; spares: {body.get('spares', 'not recorded')}",
            ),
        ),
        Words(
            title="Versions",
            sentences=(
                ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) or "not recorded",
            ),
        ),
        Words(
            title="Topology",
            sentences=((started[-1].topology if started else None) or "not recorded",),
        ),
    ]
    if integer(body.get("state_bytes")) is not None:
        words.append(
            Words(
                title="State of a rank",
                sentences=(f"{format_bytes(body['state_bytes'])} measured",),
            )
        )
    return Section(
        name="run",
        title="What ran",
        words=tuple(words),
        tables=(_attempts(events, run),),
        notes=_contract_notes(body, contract),
    )


def _attempts(events: Sequence[Event], run: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    ends = of_run(events, run, EventKind.ATTEMPT_END)
    begins = of_run(events, run, EventKind.ATTEMPT_START)
    for event in begins:
        # A run that is started again counts its attempts from 1 again: the end is the first one behind the start.
        later = (e for e in ends if e.attempt == event.attempt and time_of(e) >= time_of(event))
        end = min(later, key=time_of, default=None)
        lasted = measured(
            f"attempt {event.attempt} time",
            time_of(end) - time_of(event) if end else None,
            "us",
            source="attempt events",
        )
        world = measured(
            f"attempt {event.attempt} ranks",
            integer(event.body.get("world")),
            "",
            source="attempt events",
        )
        reason = (
            str(end.body.get("reason", "not recorded")).replace("_", " ")
            if end
            else "no end on record"
        )
        rows.append((str(event.attempt), world, lasted, reason))
    columns = (
        Column(title="Attempt", is_number=False), Column(title="Ranks"), Column(title="Lasted", unit="s"), Column(title="Ended by", is_number=False),
    )  # fmt: skip
    return Table(name="attempts", title="Attempts", columns=columns, rows=tuple(rows))


def _contract_notes(body: dict[str, Any], contract: FailureContract) -> tuple[Note, ...]:
    """Warns when the run was started under another contract than the one it is judged by."""
    started_under, judged_by = body.get("contract_digest"), contract_digest(contract)
    if not isinstance(started_under, str) or started_under == judged_by:
        return ()
    if body.get("contract_assumed") is True:
        text = f"The run itself assumed a contract too ({started_under[:12]}), with other values than the one here ({judged_by[:12]})."
        return (Note(text=text),)
    text = f"The run was started under contract {started_under[:12]} and is judged here by {judged_by[:12]}: pass the right one with --contract."
    return (Note(level="warning", text=text),)
