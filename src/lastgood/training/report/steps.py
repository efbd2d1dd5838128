"""Steps and states in the training section: step times, losses, and the newest verified state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastgood.base.canonical import float_from_hex
from lastgood.base.errors import LastgoodError
from lastgood.base.figures import FigureKind, measured
from lastgood.base.units import US_PER_S
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.report import Chart, Column, Data, FigureRow, Section
from lastgood.evidence.time_part import POINT_COUNT_MAX, thinned
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect
from lastgood.ledger.executions import Execution
from lastgood.ledger.timeline import read_timeline
from lastgood.ledger.walltime import WallTimeRules


def steps_section(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """Step times, the newest state that was verified, and how exactly a step repeats."""
    wall = times.wall
    trusted = [
        e for e in of_run(events, run, EventKind.STATE_TRUST) if e.body.get("state") == "verified"
    ]
    newest = trusted[-1].body if trusted else {}
    rows = (
        ("Median step time", "step time", wall.step_us_median, "us", wall.accepted_steps),
        (
            "Newest verified state",
            "newest verified state",
            integer(newest.get("step")),
            "",
            len(trusted),
        ),
    )
    figures = tuple(
        FigureRow(
            label=label, figure=measured(name, value, unit, source="step and trust events", n=n, as_of_us=wall.as_of_us),
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
        figures=(*figures, *_noise(events, run)),
        charts=charts,
    )


def _noise(events: Sequence[Event], run: str) -> tuple[FigureRow, ...]:
    """What running one step twice at the start of the run gave: 0 is bit for bit."""
    measured_at_start = [e for e in of_run(events, run, EventKind.ANNOTATION) if "noise" in e.body]
    if not measured_at_start:
        return ()
    body = measured_at_start[-1].body
    is_bitwise = body.get("is_bitwise") is True
    note = "bit for bit" if is_bitwise else "verification then compares within this noise"
    noise = measured(
        "noise", _number(body["noise"]), "", source="one step run twice from the same state"
    )
    return (FigureRow(label="Noise of a repeated step", figure=noise, note=note),)


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
    rows = tuple((e.step, (e.end_us - e.start_us) / US_PER_S, _fate(e)) for e in shown)
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


def _fate(execution: Execution) -> str:
    return "lost" if execution.is_lost else "not known" if execution.is_unsure else "accepted"


def _loss_chart(events: Sequence[Event], run: str) -> Chart | None:
    """The loss per step, where the step events carry it; a step that ran again shows its last value."""
    losses: dict[int, float] = {}
    for event in of_run(events, run, EventKind.STEP):
        values, first = event.body.get("loss"), integer(event.body.get("first"))
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


def of_run(events: Sequence[Event], run: str, kind: str) -> list[Event]:
    """The events of one kind of a run, as corrected, in order of time."""
    return [event for event in in_effect(events) if event.run == run and event.kind == kind]


def integer(value: Any) -> int | None:
    """The value itself when it is a whole number; a body may hold anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
