"""The section of a run that was read from logs: its wall time by state, its ETTR, its stops, and what rests on rules.

A supervisor's own run has a richer section (`training/report/section.py`). Here the records are somebody else's: what they do
not say stays unknown, and the section says first how much of its numbers was closed by a rule.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lastgood.base.figures import Figure, measured
from lastgood.base.units import US_PER_S, format_duration, format_number
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.hosts_part import (
    HostRecords,
    has_many_hosts,
    hosts_of,
    hosts_section,
    with_hosts,
)
from lastgood.evidence.incident_card import incident_cards
from lastgood.evidence.incident_part import Drill, settled
from lastgood.evidence.late_verdicts import late_notes, with_late_verdicts
from lastgood.evidence.rates_quality_part import files_on_record, import_tables
from lastgood.evidence.report import Cell, Column, FigureRow, Headline, Note, Section, Table
from lastgood.evidence.time_part import key_figures, strip_chart, time_section
from lastgood.evidence.watched_part import incident_words, watched_cards
from lastgood.ledger.ettr import RunTimes, lost_at, mean_time_to_interruption, measure_run
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.incident import Incident
from lastgood.ledger.life import is_read_from_logs
from lastgood.ledger.walltime import WallState, WallTime

CARD_COUNT_MAX: Final = 30
"""A log of a year can hold thousands of incidents of one run; the newest are shown."""
STOP_COUNT_MAX: Final = 30
"""The longest ones are shown; a year of a large job has thousands."""
ATTEMPT_COUNT_MAX: Final = 100
LOST_LABEL: Final = "Lost device time"
IMPOSSIBLE_END: Final = "The end of the run is recorded before its start, so it is not believed"
NO_CLOCK_TELLS: Final = "One of the two clocks is wrong, and nothing tells which: how long the run lasted has to come from elsewhere."
STOP_US_MIN: Final = US_PER_S
"""Shorter stretches are no stop that anybody would look into."""


def is_run_imported(events: Iterable[Event], run: str) -> bool:
    """True when all that tells of the life of this run was read from logs."""
    return is_read_from_logs(event for event in events if event.run == run)


def build_imported_run(
    events: Sequence[Event], *, run: str, as_of_us: int, devices: int | None = None
) -> Section:
    """The section of one imported run. Pure: the same events and instant give the same section.

    `devices` is how many accelerators the run had, as a person says; it is used where no record tells.
    """
    own = [event for event in events if event.run == run]
    times, hosts = measure_run(own, run=run, as_of_us=as_of_us), hosts_of(own)
    times = with_late_verdicts(times, own, run)
    wall = times.wall
    incidents = with_hosts(settled(times.incidents, wall), hosts)
    restarts = _restarts(own, wall)
    stops = _stops(wall)
    parts = [
        _time(times, restarts, devices),
        Section(
            name="stops",
            title="When nothing that counts was done",
            lead="Each stretch between two stretches of productive time, the longest first.",
            tables=(_stop_table(stops, wall),) if stops else (),
            notes=() if stops else (Note(text="There was none of a second or more."),),
        ),
        *_incident_sections(incidents, wall, has_many_hosts=has_many_hosts(own)),
        _attempt_section(own, wall),
        *_host_sections(own, hosts, wall),
        _rules_section(wall),
        *_import_sections(events, _formats(own)),
    ]
    if not wall.is_work_recorded:
        del parts[1]  # without records of work, all of the time would be one stop
    return Section(
        name="run",
        title="A run read from logs",
        lead=f"Read from: {', '.join(_formats(own))}. All times are those of its logs.",
        headline=Headline(
            state="nothing",
            sentence=" ".join([*incident_words(incidents), _sentence(times, restarts)]),
        ),
        figures=(*key_figures(times), *_key_rows(times, restarts)),
        charts=(strip_chart(times),),
        parts=tuple(parts),
    )


def _formats(events: Sequence[Event]) -> list[str]:
    return sorted({e.source.importer for e in events if e.source and e.source.importer})


def _import_sections(events: Sequence[Event], formats: Sequence[str]) -> list[Section]:
    """What became of the rows of the files that may hold this run."""
    files = [file for file in files_on_record(events) if file.format in formats]
    if not files:
        return []
    return [
        Section(
            name="data-quality",
            title="How good the records are",
            lead="Every row of the imported files, also of other runs in them: read = accepted + ignored + rejected.",
            tables=import_tables(files),
        )
    ]


def _incident_sections(
    incidents: Sequence[Incident], wall: WallTime, *, has_many_hosts: bool
) -> list[Section]:
    """What the logs say of failures of this run: a job that attached names its ranks, most logs hold none."""
    if not incidents:
        return []
    shown = incidents[-CARD_COUNT_MAX:]
    cards = incident_cards(
        incidents, drill=Drill(), as_of_us=wall.as_of_us, wall=wall, has_many_hosts=has_many_hosts
    )[-len(shown) :]
    rest = len(incidents) - len(shown)
    notes = late_notes(incidents)
    if rest:
        notes = (
            Note(text=f"The newest {len(shown)} of {len(incidents)} incidents are shown."),
            *notes,
        )
    return [
        Section(
            name="incidents",
            title="Incidents",
            lead="Each incident from its onset to its close, from its own records.",
            cards=watched_cards(cards, shown, mode="attach"),
            notes=notes,
        )
    ]


def _host_sections(
    events: Sequence[Event], hosts: dict[str, HostRecords], wall: WallTime
) -> list[Section]:
    if not hosts:
        return []
    return [hosts_section(events, hosts, start_us=wall.start_us, as_of_us=wall.as_of_us)]


# --- figures ------------------------------------------------------------------------------------------


def _restarts(events: Sequence[Event], wall: WallTime) -> int:
    """Starts after the first one. A scheduler and the job itself may both record one start, so neither adds to the other."""
    starts: dict[str | None, set[int]] = {}
    for event in in_effect(events):
        is_start = event.kind == EventKind.ATTEMPT_START
        if is_start and event.source is not None and time_of(event) <= wall.as_of_us:
            starts.setdefault(event.source.importer, set()).add(time_of(event))
    return max((len(stamps) - 1 for stamps in starts.values()), default=0)


def _bounds(wall: WallTime) -> tuple[float, float]:
    """What the ETTR is at least and at most: unknown time may all have been either."""
    unknown_us = wall.totals_us[WallState.UNKNOWN]
    return wall.productive_us / wall.window_us, (wall.productive_us + unknown_us) / wall.window_us


def _sentence(times: RunTimes, restarts: int) -> str:
    wall = times.wall
    if wall.impossible_ends:
        return f"{IMPOSSIBLE_END}. {_plain_sentence(times, restarts)}"
    return _plain_sentence(times, restarts)


def _plain_sentence(times: RunTimes, restarts: int) -> str:
    wall = times.wall
    if not wall.window_us:
        return "The records of this run span no time."
    lasted = format_duration(wall.window_us)
    low, high = _bounds(wall)
    again = f"{restarts} restart{'' if restarts == 1 else 's'}"
    if not wall.is_work_recorded:
        return (
            f"{lasted} of wall time with {again}; no record tells work from waiting, so at most "
            f"{100 * high:.1f} % of it was productive."
        )
    unknown_us = wall.totals_us[WallState.UNKNOWN]
    most = "At most " if wall.skew.is_lower_bound else ""
    said = (
        f"{most}{100 * low:.1f} % of {lasted} of wall time produced work that counts, with {again}"
    )
    if wall.skew.is_lower_bound:
        said += "; a clock contradicts the order of the starts, so the wait before one is not known"
    if unknown_us:
        said += f"; {format_duration(unknown_us)} are unknown, so it may have been up to {100 * high:.1f} %"
    return said + ("." if wall.has_end else "; the end of the run is not on record.")


def _figure(name: str, value: float | None, unit: str, wall: WallTime, *, what: str) -> Figure:
    return measured(name, value, unit, source=f"ledger, {what}", as_of_us=wall.as_of_us)


def _key_rows(times: RunTimes, restarts: int) -> tuple[FigureRow, ...]:
    wall = times.wall
    accepted = wall.accepted_steps if wall.accepted_steps or wall.lost_executions else None
    rows = (
        ("Accepted steps", "accepted steps", accepted, "", "step records, each number once"),
        ("Restarts on record", "restarts", restarts, "", "starts after the first one"),
        (
            "Time that rests on a rule",
            "inferred time",
            wall.inferred_us,
            "us",
            "wall time by state",
        ),
    )
    return tuple(
        FigureRow(label=label, figure=_figure(name, value, unit, wall, what=what), is_key=True)
        for label, name, value, unit, what in rows
    )


def _time(times: RunTimes, restarts: int, devices: int | None) -> Section:
    """The partition's figures; the rate of interruptions is that of restarts, because logs hold no incidents."""
    import msgspec

    wall = times.wall
    section = time_section(times, is_injected=True)  # without the rate of incidents
    mean = mean_time_to_interruption(
        restarts,
        wall.counted_us,
        exposure=f"{format_duration(wall.counted_us)} of run time",
        source="ledger, wall time without planned time over restarts on record",
        as_of_us=wall.as_of_us,
    )
    mean = msgspec.structs.replace(mean, name="mean time between restarts")
    row = FigureRow(label="Mean time between restarts", figure=mean)
    figures = section.figures
    if devices is not None and not times.exposure.stretches:
        # Once, where the other losses stand: what a person says is no measurement, and the figure shows it.
        given = FigureRow(label=LOST_LABEL, figure=lost_at(wall, devices))
        figures = tuple(given if r.label == LOST_LABEL else r for r in figures)
    kept = tuple(r for r in figures if r.figure.value is not None) or figures[:1]
    gone = [in_sentence(r.label) for r in figures if r not in kept]
    notes = section.notes
    if gone:
        text = f"Not observed, because no record tells what it takes: {', '.join(gone)}."
        notes = (*notes, Note(level="missing", text=text))
    return msgspec.structs.replace(section, figures=(*kept, row), notes=notes)


def in_sentence(label: str) -> str:
    """A label inside a sentence: its first letter small, unless it begins with an abbreviation."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


# --- stops --------------------------------------------------------------------------------------------


class _Stop(NamedTuple):
    """A stretch without productive time."""

    start_us: int
    end_us: int
    states: dict[str, int]
    inferred_us: int


def _stops(wall: WallTime) -> list[_Stop]:
    """The stretches between productive ones, in order of time."""
    found: list[_Stop] = []
    for span in wall.spans:
        if span.state is WallState.PRODUCTIVE:
            continue
        inferred_us = span.duration_us if span.is_inferred else 0
        if found and found[-1].end_us == span.start_us:
            before = found[-1]
            states = dict(before.states)
            states[str(span.state)] = states.get(str(span.state), 0) + span.duration_us
            found[-1] = _Stop(
                before.start_us, span.end_us, states, before.inferred_us + inferred_us
            )
        else:
            states = {str(span.state): span.duration_us}
            found.append(_Stop(span.start_us, span.end_us, states, inferred_us))
    return [stop for stop in found if stop.end_us - stop.start_us >= STOP_US_MIN]


def _stop_table(stops: Sequence[_Stop], wall: WallTime) -> Table:
    longest = sorted(stops, key=lambda s: (s.start_us - s.end_us, s.start_us))[:STOP_COUNT_MAX]
    rows: list[tuple[Cell, ...]] = []
    for number, stop in enumerate(longest, start=1):
        lasted_us, after_us = stop.end_us - stop.start_us, stop.start_us - wall.start_us
        states = ", ".join(
            f"{state} {format_duration(total)}"
            for state, total in sorted(stop.states.items(), key=lambda item: -item[1])
        )
        share = f"{100 * stop.inferred_us / lasted_us:.0f} %" if stop.inferred_us else "none"
        rows.append(
            (
                str(number),
                _figure("after", after_us, "us", wall, what="time since the start of the run"),
                _figure("lasted", lasted_us, "us", wall, what="wall time by state"),
                states,
                share,
            )
        )
    rest = len(stops) - len(longest)
    return Table(
        name="stops",
        title=f"The {len(longest)} longest of {len(stops)} stretches" if rest else "Stretches",
        columns=(
            Column(title="No.", is_number=False),
            Column(title="After", unit="min"),
            Column(title="Lasted", unit="min"),
            Column(title="States", is_number=False),
            Column(title="By rule", is_number=False),
        ),
        rows=tuple(rows),
    )


# --- attempts and rules -------------------------------------------------------------------------------


def _attempt_section(events: Sequence[Event], wall: WallTime) -> Section:
    """Every start with its end, as the log has them."""
    known = [e for e in in_effect(events) if time_of(e) <= wall.as_of_us]
    starts = [e for e in known if e.kind == EventKind.ATTEMPT_START]
    ends = [e for e in known if e.kind in {EventKind.ATTEMPT_END, EventKind.RUN_END}]
    ends_us = [time_of(e) for e in ends]
    shown = starts[:ATTEMPT_COUNT_MAX]
    rows: list[tuple[Cell, ...]] = []
    for at, start in enumerate(shown):
        next_us = time_of(starts[at + 1]) if at + 1 < len(starts) else None
        found = bisect.bisect_left(ends_us, time_of(start))
        end = ends[found] if found < len(ends) else None
        if end is not None and next_us is not None and time_of(end) > next_us:
            end = None
        lasted_us = None if end is None else time_of(end) - time_of(start)
        rows.append(
            (
                str(start.attempt or at + 1),
                _figure("began", time_of(start) - wall.start_us, "us", wall, what="start records"),
                _figure("lasted", lasted_us, "us", wall, what="start and end records"),
                _figure("devices", start.devices, "", wall, what="start records"),
                _ended_by(end),
            )
        )
    columns = (
        Column(title="Start", is_number=False), Column(title="After", unit="min"), Column(title="Lasted", unit="min"),
        Column(title="Devices"), Column(title="Ended by", is_number=False),
    )  # fmt: skip
    table = Table(name="attempts", title="Starts", columns=columns, rows=tuple(rows))
    notes = ()
    if len(starts) > len(shown):
        notes = (Note(text=f"The first {len(shown)} of {len(starts)} starts are shown."),)
    if not rows:
        notes = (
            Note(level="missing", text="No start is on record: the log begins inside the run."),
        )
    return Section(
        name="attempts",
        title="Starts and ends on record",
        tables=(table,) if rows else (),
        notes=notes,
    )


def _ended_by(end: Event | None) -> str:
    if end is None:
        return "no end on record"
    said = end.body.get("state") or end.body.get("result") or end.body.get("reason")
    return str(said).replace("_", " ").lower() if said else "ended"


def _rules_section(wall: WallTime) -> Section:
    """What the numbers rest on besides records, one sentence each."""
    notes: list[Note] = []
    if wall.inferred_steps:
        notes.append(Note(text=_steps(wall.inferred_steps)))
    if wall.is_end_inferred:
        quiet = format_duration(wall.silence_us)
        notes.append(
            Note(
                level="warning",
                text=f"No record tells the end of the run: it is taken to have ended {quiet} after its last sign of life, and those {quiet} are unknown.",
            )
        )
    elif not wall.has_end:
        text = "No record tells the end of the run: it is measured up to the last moment that its logs cover."
        notes.append(Note(level="warning", text=text))
    if wall.impossible_ends:
        notes.append(Note(level="missing", text=f"{IMPOSSIBLE_END}. {NO_CLOCK_TELLS}"))
    if wall.skew.event_count:
        notes.append(Note(level="warning", text=_skew_words(wall)))
    if not wall.is_work_recorded:
        notes.append(
            Note(
                level="missing",
                text="The log holds starts and ends and nothing of the work between: that time is unknown, neither productive nor lost.",
            )
        )
    if not notes and not wall.inferred_us:
        notes.append(Note(text="Nothing: every begin and end that the numbers need is on record."))
    return Section(
        name="rules",
        title="What rests on a rule",
        lead=f"{format_duration(wall.inferred_us)} of {format_duration(wall.window_us)} were closed by a rule, because a record is missing."
        if wall.inferred_us
        else "",
        notes=tuple(notes),
    )


def _steps(count: int) -> str:
    if count == 1:
        return "One step has no record of its end: the numbers around it say that it ran."
    return f"{count:,} steps have no record of their own or of their end: the numbers around them say that they ran."


def _skew_words(wall: WallTime) -> str:
    skew = wall.skew
    how = (
        "as far as the order of the starts needs, so the wait before them is not known"
        if skew.is_lower_bound
        else "by the receiver's clock"
    )
    shift = format_number(skew.shift_us_max / US_PER_S)
    return f"Skew corrected: {skew.event_count:,} events, {shift} s, {how}."
