"""Wall time in a report: the strip, the waterfall of lost time, and the figures that follow from the partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from lastgood.base.figures import Figure, FigureKind, measured
from lastgood.base.units import US_PER_H, US_PER_MIN, US_PER_S, format_duration, format_number
from lastgood.evidence.report import Chart, Column, Data, FigureRow, Mark, Note, Section, Table
from lastgood.ledger.ettr import RunTimes, sliding_ettr, sliding_minimum
from lastgood.ledger.walltime import STATES, Span, WallState, WallTime

T = TypeVar("T")

SPAN_COUNT_MAX: Final = 600
"""More stretches than this are drawn as that many slices: no screen shows more, and no reader reads more rows."""
MARK_COUNT_MAX: Final = 30
"""More numbers than this run into each other."""
POINT_COUNT_MAX: Final = 400
WIDTHS_US: Final = (US_PER_H, 10 * US_PER_MIN, US_PER_MIN, 10 * US_PER_S)
"""Widths of the sliding window, the usual hour first; a short run takes the first that fits three times."""


class TimeUnit(NamedTuple):
    """The unit of a time axis."""

    name: str
    us: int


def time_unit(window_us: int) -> TimeUnit:
    """Seconds up to ten minutes, minutes up to ten hours, then hours."""
    if window_us <= 10 * US_PER_MIN:
        return TimeUnit("s", US_PER_S)
    if window_us <= 10 * US_PER_H:
        return TimeUnit("min", US_PER_MIN)
    return TimeUnit("h", US_PER_H)


def time_section(times: RunTimes, *, is_injected: bool = False) -> Section:
    """Where the wall time of a run went. The strip (`strip_chart`) stands at the top of the report, as its overview."""
    wall = times.wall
    return Section(
        name="time",
        title="Where the time went",
        lead="Each microsecond of the run has exactly one state, and the states sum to the wall time. "
        "A hang is charged to detection; a step that had to be done again is lost; what no record explains is unknown.",
        figures=_figures(times, is_injected=is_injected),
        charts=tuple(c for c in (waterfall_chart(wall), _sliding_chart(wall)) if c is not None)
        if wall.is_work_recorded
        else (),
        tables=(state_table(wall),),
        notes=_notes(wall),
    )


def key_figures(times: RunTimes) -> tuple[FigureRow, ...]:
    """The few numbers of time that stand at the top of the page."""
    wall = times.wall
    unknown_us = wall.totals_us[WallState.UNKNOWN]
    share = _share("unknown", unknown_us, wall)
    return (
        FigureRow(label="ETTR (productive over wall time)", figure=times.ettr, is_key=True),
        FigureRow(
            label="Wall time", figure=_duration("wall time", wall.window_us, wall), is_key=True
        ),
        FigureRow(label="Unknown share of wall time", figure=share, is_key=True),
    )


def _figures(times: RunTimes, *, is_injected: bool) -> tuple[FigureRow, ...]:
    labels = [
        ("ETTR", times.ettr),
        ("ETTR without planned time", times.ettr_counted),
        ("Lowest ETTR of any hour", times.ettr_sliding_min),
        *_lowest_in_short(times.wall),
        ("Longest unproductive stretch", times.longest_unproductive),
        ("Lost device time", times.lost_device_time),
        ("Lost work", times.lost_work),
        ("Lost steps", times.lost_steps),
        ("Progress efficiency", times.progress_efficiency),
    ]
    if not is_injected:  # a rate of faults on purpose is no rate of anything
        labels.append(("Mean time to interruption", times.mean_time_to_interruption))
    return tuple(FigureRow(label=label, figure=figure) for label, figure in labels)


def _lowest_in_short(wall: WallTime) -> list[tuple[str, Figure]]:
    """The worst of the shorter windows that are drawn where an hour does not fit."""
    width_us = sliding_width_us(wall.window_us)
    if width_us is None or width_us == WIDTHS_US[0] or not wall.is_progress_known:
        return []
    label = f"Lowest ETTR of any {format_duration(width_us)}"
    return [(label, sliding_minimum(wall, width_us=width_us))]


def strip_chart(times: RunTimes) -> Chart:
    """State over time, with a numbered mark at each incident's onset."""
    wall = times.wall
    unit = time_unit(wall.window_us)
    spans = _slices(wall) if len(wall.spans) > SPAN_COUNT_MAX else wall.spans
    rows = tuple(
        (str(s.state), (s.start_us - wall.start_us) / unit.us, (s.end_us - wall.start_us) / unit.us)
        for s in spans
    )
    marks = tuple(
        Mark(at=max(0.0, (at_us - wall.start_us) / unit.us), label=str(number))
        for number, incident in enumerate(times.incidents, start=1)
        if (at_us := incident.onset_us or incident.opened_us) is not None
    )
    seen = [state for state in STATES if any(s.state is state for s in spans)]
    is_sliced = spans is not wall.spans
    caption = "" if is_sliced else "The top lane is the run; below it each state has its own lane."
    if len(marks) > MARK_COUNT_MAX:
        caption += f" {len(marks)} incidents are too many to number here; each has its card."
        marks = ()
    elif marks:
        caption += " The numbers mark where the incidents began."
    if is_sliced:
        caption += (
            f" Drawn in {SPAN_COUNT_MAX} slices: a lane is filled wherever its state occurs in a slice,"
            " so short stretches look longer than they were; the table of states has the exact times."
        )
    return Chart(
        name="strip",
        title="Wall time by state",
        form="strip",
        alt=f"Wall time of {format_duration(wall.window_us)} as lanes, one per state: {', '.join(seen)}; "
        f"{len(times.incidents)} incidents.",
        caption=caption.strip(),
        marks=marks,
        data=Data(
            kind=FigureKind.MEASURED,
            rows=rows,
            columns=(
                Column(title="State", is_number=False),
                Column(title="From", unit=unit.name),
                Column(title="To", unit=unit.name),
            ),
        ),
    )


def ending_notes(wall: WallTime) -> tuple[Note, ...]:
    """That the last stall is no stall of the training, under the lane that looks as if it were one."""
    if not wall.ending_us:
        return ()
    share = format_duration(wall.ending_us)
    text = f"{share} of the stall is the ending: the last step to the end of the run."
    return (Note(text=text),)


def _slices(wall: WallTime) -> tuple[Span, ...]:
    """For each state the slices in which it occurs at all, neighbours joined; productive first, so that others cover it.

    The state that fills most of a slice would be the obvious choice and would hide every short outage.
    """
    width = wall.window_us / SPAN_COUNT_MAX
    taken: dict[WallState, list[int]] = {}
    for span in wall.spans:
        first = int((span.start_us - wall.start_us) / width)
        last = min(
            SPAN_COUNT_MAX - 1, max(first, math.ceil((span.end_us - wall.start_us) / width) - 1)
        )
        slices = taken.setdefault(span.state, [])
        slices.extend(range(max(first, slices[-1] + 1) if slices else first, last + 1))
    made: list[Span] = []
    for state in (s for s in reversed(STATES) if s in taken):
        for index in taken[state]:
            begin, end = (wall.start_us + round(width * at) for at in (index, index + 1))
            if made and made[-1].state is state and made[-1].end_us == begin:
                made[-1] = made[-1]._replace(end_us=end)
            else:
                made.append(Span(state, begin, end))
    return tuple(made)


def waterfall_chart(wall: WallTime) -> Chart:
    """How the unproductive time adds up, state by state in the order of the partition."""
    unit = time_unit(wall.window_us)
    lost = [
        (str(s), wall.totals_us[s])
        for s in STATES
        if s is not WallState.PRODUCTIVE and wall.totals_us[s]
    ]
    total_us = sum(amount for _, amount in lost)
    rows = [(state, amount / unit.us, "part") for state, amount in lost]
    if rows:
        rows.append(("not productive", total_us / unit.us, "total"))
    parts = ", ".join(f"{state} {format_duration(amount)}" for state, amount in lost)
    return Chart(
        name="waterfall",
        title="How the unproductive time adds up",
        form="waterfall",
        alt=f"Unproductive time of {format_duration(total_us)}: {parts or 'none'}.",
        caption=f"Wall time {format_duration(wall.window_us)} = productive {format_duration(wall.productive_us)} "
        f"+ not productive {format_duration(total_us)}.",
        data=Data(
            kind=FigureKind.MEASURED,
            rows=tuple(rows),
            columns=(
                Column(title="State", is_number=False),
                Column(title="time", unit=unit.name),
                Column(title="Role", is_number=False),
            ),
        ),
    )


def state_table(wall: WallTime) -> Table:
    """Time and share of every state that occurs; productive and unknown always, where records tell them apart."""
    # Without a record of work, zero productive time would be a guess.
    always = (WallState.PRODUCTIVE,) * wall.is_work_recorded + (WallState.UNKNOWN,)
    shown = [s for s in reversed(STATES) if wall.totals_us[s] or s in always]
    shown.sort(
        key=lambda s: s is WallState.UNKNOWN
    )  # unknown last, next to the sum that it qualifies
    rows = [
        (
            str(s),
            _duration(str(s), wall.totals_us[s], wall),
            _share(str(s), wall.totals_us[s], wall),
        )
        for s in shown
    ]
    rows.append(
        ("sum", _duration("sum", wall.window_us, wall), _share("sum", wall.window_us, wall))
    )
    columns = (
        Column(title="State", is_number=False),
        Column(title="Time", unit=time_unit(wall.window_us).name),
        Column(title="Share", unit="%"),
    )
    return Table(name="states", title="Wall time by state", columns=columns, rows=tuple(rows))


def _duration(name: str, value_us: int, wall: WallTime):  # noqa: ANN202 - a figure
    return measured(
        name, value_us, "us", source="ledger, wall time by state", as_of_us=wall.as_of_us
    )


def _share(name: str, value_us: int, wall: WallTime):  # noqa: ANN202 - a figure
    value = 100 * value_us / wall.window_us if wall.window_us else None
    return measured(
        f"{name} share", value, "%", source="ledger, wall time by state", as_of_us=wall.as_of_us
    )


def sliding_width_us(window_us: int) -> int | None:
    """The first of the usual widths that fits three times into the run."""
    return next((width for width in WIDTHS_US if window_us >= 3 * width), None)


def _sliding_chart(wall: WallTime) -> Chart | None:
    width_us = sliding_width_us(wall.window_us)
    if width_us is None or not wall.is_progress_known:
        return None
    unit = time_unit(wall.window_us)
    points = thinned(sliding_ettr(wall, width_us=width_us), POINT_COUNT_MAX)
    width = format_duration(width_us)
    low = min((point.ratio for point in points), default=0.0)
    shorter = ""
    if width_us < WIDTHS_US[0]:
        shorter = (
            f" The usual window is {format_duration(WIDTHS_US[0])}, which does not fit three times into this run"
            f" of {format_duration(wall.window_us)}."
        )
    return Chart(
        name="sliding",
        title=f"ETTR of the last {width}",
        form="line",
        alt=f"ETTR over a sliding window of {width}; lowest {format_number(low)}.",
        caption=f"Each point is productive time over the {width} before it.{shorter}",
        data=Data(
            kind=FigureKind.MEASURED,
            rows=tuple(((p.end_us - wall.start_us) / unit.us, p.ratio) for p in points),
            columns=(
                Column(title="time since start", unit=unit.name),
                Column(title="ETTR", unit="ratio"),
            ),
        ),
    )


def thinned(items: Sequence[T], count_max: int) -> Sequence[T]:
    """At most so many of the items, evenly picked, the first and the last among them."""
    if len(items) <= count_max:
        return items
    return [items[round(i * (len(items) - 1) / (count_max - 1))] for i in range(count_max)]


def _notes(wall: WallTime) -> tuple[Note, ...]:
    notes: list[Note] = []
    if wall.is_work_recorded and sliding_width_us(wall.window_us) is None:
        shortest = format_duration(3 * WIDTHS_US[-1])
        notes.append(
            Note(
                text=f"Sliding ETTR is not observed: the run is shorter than {shortest}.",
                level="missing",
            )
        )
    if wall.unsure_executions:
        notes.append(_unsure(wall))
    if wall.inferred_us:
        notes.append(
            Note(
                text=f"{format_duration(wall.inferred_us)} of it rests on a rule, because a record of a begin or an end is missing."
            )
        )
    if wall.clamped_count:
        count = wall.clamped_count
        told = "One record" if count == 1 else f"{count:,} records"
        were = "was clamped or left out" if count == 1 else "were clamped or left out"
        notes.append(Note(level="warning", text=f"{told} contradicted others in time and {were}."))
    return tuple(notes)


def _unsure(wall: WallTime) -> Note:
    """What can be said of the work before a restart of a script that tells no step number."""
    low, high = (
        us / wall.window_us for us in (wall.productive_us, wall.productive_us + wall.unsure_us)
    )
    steps = f"{wall.unsure_executions:,} steps"
    return Note(
        level="warning",
        text=f"{steps} ran before a restart, and the script does not say from which step it went on: whether they were "
        f"done again is not known. Their time is unknown, and ETTR is between {low:.4f} and {high:.4f}.",
    )
