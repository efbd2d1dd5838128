"""The training section of a report: events and a contract in, plain data out. Pure, and free of torch.

Reads in the order in which a person asks: did it hold, what stopped it, where did the time go, was the contract
kept, what happened in each incident, which states may be trusted, and how good are the records.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from lastgood.base.canonical import float_from_hex
from lastgood.base.errors import LastgoodError
from lastgood.base.figures import FigureKind, measured
from lastgood.base.units import US_PER_S, format_bytes, format_duration
from lastgood.contract.load import contract_digest
from lastgood.contract.model import FailureContract
from lastgood.contract.taxonomy import EventKind, Symptom
from lastgood.evidence.contract_part import contract_section, duties_section
from lastgood.evidence.incident_part import (
    Drill,
    class_table,
    headline,
    incident_cards,
    ranks_text,
    stops_table,
)  # fmt: skip
from lastgood.evidence.objectives_part import objectives_section
from lastgood.evidence.quality_part import quality_section
from lastgood.evidence.report import (
    Cell,
    Chart,
    Check,
    Column,
    Data,
    FigureRow,
    Headline,
    Note,
    Section,
    Table,
    Words,
)  # fmt: skip
from lastgood.evidence.time_part import POINT_COUNT_MAX, key_figures, thinned, time_section
from lastgood.ledger.ettr import RunTimes, measure_run
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.incident import LINKS
from lastgood.ledger.timeline import read_timeline
from lastgood.ledger.walltime import WallState, WallTimeRules

DRILL_MODES: Final = frozenset(("demo", "drill"))
"""Modes of a run whose faults were caused on purpose."""
ALERTS: Final = (
    Symptom.NONFINITE, Symptom.NUMERIC_JUMP, Symptom.REPLICA_DIVERGENCE, Symptom.SNAPSHOT_MISMATCH, Symptom.REPLAY_MISMATCH,
)  # fmt: skip
"""Symptoms that say the numbers are wrong, not that something stopped."""


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
    times = measure_run(events, run=run, as_of_us=as_of_us)
    drill = _drill(events, run, times)
    return Section(
        name="training",
        title="Training",
        headline=headline(
            times.incidents,
            drill=drill,
            ending=_ending(events, run, times),
            extra=_extra_checks(events, run, drill),
        ),
        is_injected=drill.is_injected,
        figures=(*key_figures(times), *_key_figures(times, drill)),
        parts=(
            _stops(times, drill),
            time_section(times, is_injected=drill.is_injected),
            objectives_section(contract, times, is_injected=drill.is_injected),
            _incidents(times, drill),
            _steps(events, run, times),
            _run(events, run, contract),
            contract_section(contract),
            duties_section(contract),
            quality_section(events, times),
        ),
    )


def _newest_run(events: Sequence[Event]) -> str | None:
    starts = [(time_of(e), e.run) for e in events if e.kind == EventKind.RUN_START and e.run]
    return max(starts)[1] if starts else None


def _of(events: Sequence[Event], run: str, kind: str) -> list[Event]:
    return [event for event in in_effect(events) if event.run == run and event.kind == kind]


def _drill(events: Sequence[Event], run: str, times: RunTimes) -> Drill:
    """Injected when the run says so, or when any of its incidents does."""
    started = _of(events, run, EventKind.RUN_START)
    said = any(e.body.get("injected") is True or e.body.get("mode") in DRILL_MODES for e in started)
    missed = [
        str(e.body.get("fault", "an injected fault"))
        for e in _of(events, run, EventKind.ANNOTATION)
        if e.body.get("injected") is True and e.incident is None
    ]
    return Drill(
        is_injected=said or bool(missed) or any(i.injected for i in times.incidents),
        missed=tuple(missed),
    )


def _ending(events: Sequence[Event], run: str, times: RunTimes) -> str:
    ended = _of(events, run, EventKind.RUN_END)
    wall = format_duration(times.wall.window_us)
    if not ended:
        return f"the run has been going for {wall} and has no end on record"
    result = str(ended[-1].body.get("result", "ended")).replace("_", " ")
    return f"the run ended after {wall} ({result})"


def _extra_checks(events: Sequence[Event], run: str, drill: Drill) -> tuple[Check, ...]:
    """Whether the final weights equal those of an undisturbed twin, where somebody compared or had to."""
    twins = [
        e.body["twin"]
        for e in _of(events, run, EventKind.ANNOTATION)
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
        wall.accepted_steps,
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
        FigureRow(label="Lost steps (done again)", figure=times.lost_steps, is_key=True),
        FigureRow(label=last[0], figure=last[1], is_key=True),
    )


def _stops(times: RunTimes, drill: Drill) -> Section:
    """The classes, and planned stops apart from unexpected ones."""
    wall = times.wall
    down_us = sum(
        wall.totals_us[s] for s in WallState if s.startswith("down.") or s is WallState.RESTORE
    )
    lead = "What stopped the run or made its state untrustworthy, by class, with the device time that was at risk."
    if drill.is_injected:
        lead += " These faults were injected: the counts are a drill and no rate follows from them."
    return Section(
        name="stops",
        title="What stopped it",
        lead=lead,
        tables=(
            class_table(times.incidents, exposure=times.exposure.figure(), as_of_us=wall.as_of_us, rule=str(LINKS)),
            stops_table(
                times.incidents, stopped_us=(wall.totals_us[WallState.PLANNED], down_us),
                mtti="injected, so no rate" if drill.is_injected else times.mean_time_to_interruption, as_of_us=wall.as_of_us,
            ),
        ),
    )  # fmt: skip


def _incidents(times: RunTimes, drill: Drill) -> Section:
    cards = incident_cards(times.incidents, drill=drill, as_of_us=times.wall.as_of_us)
    notes = [
        Note(level="warning", text=f"Injected and never detected: {fault}.")
        for fault in drill.missed
    ]
    if not cards:
        notes.append(Note(text="No incident is on record."))
    lead = (
        "Each incident from its onset to its close. The durations are measured from its own events."
        if cards
        else ""
    )
    return Section(name="incidents", title="Incidents", lead=lead, cards=cards, notes=tuple(notes))


def _steps(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """Step times, checkpoints and numerical-integrity alerts."""
    wall = times.wall
    source = "step and checkpoint events"
    committed = _of(events, run, EventKind.CHECKPOINT_COMMIT)
    failed = _of(events, run, EventKind.CHECKPOINT_FAIL)
    trusted = [
        e for e in _of(events, run, EventKind.STATE_TRUST) if e.body.get("state") == "verified"
    ]
    newest = trusted[-1].body if trusted else {}
    rows = (
        ("Median step time", "step time", wall.step_us_median, "us", wall.accepted_steps),
        ("Checkpoints committed", "checkpoints", len(committed), "", None),
        ("Checkpoints failed", "checkpoints failed", len(failed), "", None),
        (
            "Time blocked by checkpoints",
            "checkpoint overhead",
            wall.totals_us[WallState.CHECKPOINT_BLOCKING],
            "us",
            None,
        ),
        (
            "Newest verified state",
            "newest verified state",
            _integer(newest.get("step")),
            "",
            len(trusted),
        ),
    )
    figures = tuple(
        FigureRow(
            label=label, figure=measured(name, value, unit, source=source, n=n, as_of_us=wall.as_of_us),
            note=f"step, in tier {newest['tier']}" if name == "newest verified state" and newest.get("tier") else "",
        )
        for label, name, value, unit, n in rows
    )  # fmt: skip
    charts = tuple(
        chart
        for chart in (_step_time_chart(events, run, wall.as_of_us), _loss_chart(events, run))
        if chart
    )
    return Section(
        name="steps",
        title="Steps and states",
        figures=figures,
        charts=charts,
        tables=(_alerts(times),),
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _alerts(times: RunTimes) -> Table:
    """Numerical-integrity alerts by symptom, with what came of them."""
    rows: list[tuple[Cell, ...]] = []
    for symptom in ALERTS:
        members = [i for i in times.incidents if i.symptom == symptom]
        verified = sum(i.verified_us is not None for i in members)

        def count(name: str, value: int) -> Cell:
            return measured(
                name, value, "", source="incidents of the ledger", as_of_us=times.wall.as_of_us
            )

        ranks = sorted({rank for i in members for rank in i.ranks})
        rows.append(
            (
                symptom.replace("_", " "),
                count(f"{symptom} alerts", len(members)),
                count(f"{symptom} verified", verified),
                ranks_text(ranks) if members else None,
            )
        )
    columns = (
        Column(title="Alert", is_number=False), Column(title="Count"), Column(title="Closed by a verified restore"), Column(title="Ranks", is_number=False),
    )  # fmt: skip
    return Table(
        name="alerts", title="Numerical-integrity alerts", columns=columns, rows=tuple(rows)
    )


def _step_time_chart(events: Sequence[Event], run: str, as_of_us: int) -> Chart | None:
    own = [e for e in in_effect(events) if e.run == run]
    executions = read_timeline(own, as_of_us=as_of_us, rules=WallTimeRules()).executions
    if not executions:
        return None
    # Lost executions are few and are what a reader looks for: only the others are thinned.
    shown = [
        *thinned([e for e in executions if not e.is_lost], POINT_COUNT_MAX),
        *[e for e in executions if e.is_lost][:POINT_COUNT_MAX],
    ]
    rows = tuple(
        (e.step, (e.end_us - e.start_us) / US_PER_S, "lost" if e.is_lost else "accepted")
        for e in shown
    )
    lost = sum(row[2] == "lost" for row in rows)
    caption = (
        "The time of each step, from the end of the one before."
        if len(shown) == len(executions)
        else (f"{len(shown)} of {len(executions)} executions, evenly picked.")
    )
    return Chart(
        name="step-time", title="Step time", form="line", caption=caption,
        alt=f"Time per step over {len(executions)} executions, {lost} of them lost.",
        data=Data(
            kind=FigureKind.MEASURED, rows=rows,
            columns=(Column(title="step"), Column(title="step time", unit="s"), Column(title="Execution", is_number=False)),
        ),
    )  # fmt: skip


def _loss_chart(events: Sequence[Event], run: str) -> Chart | None:
    """The loss per step, where the step events carry it; a step that ran again shows its last value."""
    losses: dict[int, float] = {}
    for event in _of(events, run, EventKind.STEP):
        values, first = event.body.get("loss"), _integer(event.body.get("first"))
        if isinstance(values, list) and first is not None:
            losses.update(
                {
                    first + i: number
                    for i, value in enumerate(values)
                    if (number := _number(value)) is not None
                }
            )
    if not losses:
        return None
    rows = tuple(thinned(sorted(losses.items()), POINT_COUNT_MAX))
    return Chart(
        name="loss", title="Loss", form="line", alt=f"Loss over {len(losses)} steps.",
        data=Data(kind=FigureKind.MEASURED, rows=rows, columns=(Column(title="step"), Column(title="loss"))),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    try:
        number = float_from_hex(value) if isinstance(value, str) else float(value)
    except (LastgoodError, TypeError, ValueError):
        return None
    return (
        number if number - number == 0 else None
    )  # neither NaN nor infinite: a chart cannot show those


def _run(events: Sequence[Event], run: str, contract: FailureContract) -> Section:
    """What ran, where, under which versions, and each attempt."""
    started = _of(events, run, EventKind.RUN_START)
    body = started[-1].body if started else {}
    versions = started[-1].versions if started else {}
    words = [
        Words(
            title="Command",
            sentences=(" ".join(map(str, body.get("command", ()))) or "not recorded",),
        ),
        Words(
            title="Where",
            sentences=(
                f"host {body.get('host', 'not recorded')}, {body.get('world', '?')} ranks, {body.get('spares', '?')} spares",
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
    if _integer(body.get("state_bytes")) is not None:
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
    ends = {e.attempt: e for e in _of(events, run, EventKind.ATTEMPT_END)}
    begins = _of(events, run, EventKind.ATTEMPT_START)
    for event in begins:
        end = ends.get(event.attempt)
        lasted = measured(
            f"attempt {event.attempt} time",
            time_of(end) - time_of(event) if end else None,
            "us",
            source="attempt events",
        )
        world = measured(
            f"attempt {event.attempt} ranks",
            _integer(event.body.get("world")),
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
    text = f"The run was started under contract {started_under[:12]} and is judged here by {judged_by[:12]}: pass the right one with --contract."
    return (Note(level="warning", text=text),)
