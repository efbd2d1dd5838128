"""What the records of one run claim about its time: steps, incidents, sections, starts and ends.

Reads events in order of time and turns them into claims (state, from, to) that `walltime` lays over each other. A
record whose partner is missing is closed by a rule and marked as inferred: an attempt without an end ends where the
next one starts, a section ends at the next detection, an incident that nobody closed ends with the next step that was
completed after it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, time_of
from lastgood.ledger.executions import Execution, is_imported, known_since_us, read_executions
from lastgood.ledger.incident_groups import declared_incidents
from lastgood.ledger.life import MARKS, NO_LIFE, Life, read_life, without_inner_starts
from lastgood.ledger.phases import PHASE_ORDER, PHASES, in_phase_order, seen_us
from lastgood.ledger.skew import (
    NO_SKEW,
    Skew,
    ended_us,
    in_recorded_order,
    straightened,
    without_impossible_ends,
)

if TYPE_CHECKING:
    from lastgood.ledger.walltime import WallTimeRules

SECTION_STATES = frozenset(
    ("down.schedule", "warmup", "restore", "checkpoint.blocking", "stall", "productive", "planned")
)
"""What a declared section may be; anything else claims nothing. `parallel` is written for work beside the steps."""

_UNTOUCHED = frozenset(("resolved", "ended"))
"""Outcomes of an incident that was only watched: after its diagnosis nobody isolates, the run just stands."""


class Claim(NamedTuple):
    """One piece of evidence: the run was in this state from here to there."""

    state: str
    start_us: int
    end_us: int
    is_inferred: bool = False


@dataclass(slots=True)
class Timeline:
    """Everything that was read about one run."""

    start_us: int
    end_us: int
    claims: list[Claim] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    unfinished_us: list[int] = field(default_factory=list)
    """Starts of steps of which nothing else is known."""
    step_us_median: int | None = None
    clamped_count: int = 0
    impossible_ends: int = 0
    skew: Skew = NO_SKEW
    life: Life = NO_LIFE


def read_timeline(events: Iterable[Event], *, as_of_us: int, rules: WallTimeRules) -> Timeline:
    """The claims of one run's events, which come in order of time. Records after `as_of_us` are not read."""
    believed = without_impossible_ends(
        [e for e in events if known_since_us(e) <= as_of_us], uncertainty_us=rules.skew_us_max
    )
    known = without_inner_starts(believed.events)
    timeline = Timeline(start_us=as_of_us, end_us=as_of_us)
    if not known:
        return timeline
    if any(is_imported(event) for event in known):
        known = in_recorded_order(known)
    known, timeline.skew = straightened(known, uncertainty_us=rules.skew_us_max)
    if timeline.skew.event_count:
        # They were known by then; that they happened later is what their clock did not say.
        as_of_us = max([as_of_us, *(max(time_of(e), ended_us(e)) for e in known)])
    read = read_executions(known, as_of_us)
    timeline.executions, timeline.step_us_median = read.items, read.step_us_median
    timeline.impossible_ends = believed.impossible_ends
    timeline.clamped_count = read.clamped_count + believed.impossible_ends
    timeline.unfinished_us = read.unfinished_us
    timeline.start_us = min([time_of(known[0]), *(e.start_us for e in timeline.executions)])
    timeline.life = read_life(known, read, as_of_us=as_of_us, liveness_us=rules.liveness_us)
    timeline.end_us = max(timeline.start_us, timeline.life.end_us)
    timeline.claims = [
        *_silence_claims(timeline),
        *_step_claims(timeline, rules),
        *_start_claims(known, timeline),
        *_tail_claims(known, timeline),
        *_attempt_claims(known, timeline),
        *_incident_claims(known, timeline),
        *_pair_claims(known, timeline),
        *(Claim("excluded", start, end) for start, end in rules.excluded),
    ]
    return timeline


def _silence_claims(timeline: Timeline) -> Iterable[Claim]:
    """The time after the last sign of life that a rule gave to a run without an end: unknown, and by rule."""
    if timeline.life.is_end_inferred:
        yield Claim("unknown", timeline.life.alive_us, timeline.end_us, is_inferred=True)


# --- steps --------------------------------------------------------------------------------------------


def _step_claims(timeline: Timeline, rules: WallTimeRules) -> Iterable[Claim]:
    """Productive, lost or not known, and on top of it the excess of a step that took far too long."""
    yield from _execution_claims(timeline.executions)
    median_us = timeline.step_us_median
    if median_us is None:
        return
    for execution in timeline.executions:
        took_us = execution.end_us - execution.start_us
        if execution.is_first or took_us <= median_us:
            continue
        normal_us = execution.start_us + median_us
        is_long = took_us - median_us >= rules.stall_us_min
        if is_long and took_us > rules.stall_factor * median_us:
            yield Claim("stall", normal_us, execution.end_us)
        elif rules.degraded_factor is not None and took_us > rules.degraded_factor * median_us:
            yield Claim("degraded.excess", normal_us, execution.end_us)


def _execution_claims(executions: Sequence[Execution]) -> Iterable[Claim]:
    """One claim for steps of one fate that follow each other without a gap: a run has millions of steps."""
    held: Claim | None = None
    for execution in executions:
        state = "lost" if execution.is_lost else "productive"
        if execution.is_unsure:
            state = "unknown"
        fate = (state, execution.is_inferred)
        if held and (held.state, held.is_inferred) == fate and held.end_us == execution.start_us:
            held = Claim(state, held.start_us, execution.end_us, execution.is_inferred)
            continue
        if held:
            yield held
        held = Claim(state, execution.start_us, execution.end_us, execution.is_inferred)
    if held:
        yield held


def _last_end_before(timeline: Timeline, at_us: int) -> int | None:
    """End of the last step that was complete at that moment."""
    ends = timeline.executions
    at = bisect.bisect_right(ends, at_us, key=lambda e: e.end_us)
    return ends[at - 1].end_us if at else None


# --- starts and ends ----------------------------------------------------------------------------------


def _start_claims(events: Sequence[Event], timeline: Timeline) -> Iterable[Claim]:
    """From a start of the run or of an attempt to its first step: warm-up. From an end to the next start: schedule."""
    firsts_us = [e.start_us for e in timeline.executions if e.is_first]
    begins = sorted([*firsts_us, *timeline.unfinished_us])
    starts = [e for e in events if e.kind in {EventKind.RUN_START, EventKind.ATTEMPT_START}]
    if not begins and all(is_imported(e) for e in starts):
        starts = []  # a log without steps does not tell warm-up from work
    again_us = [time_of(e) for e in starts if e.kind == EventKind.RUN_START]
    unseen_us = [time_of(e) for e in events if e.kind == EventKind.RUN_END and _is_unobserved(e)]
    for at, start in enumerate(starts):
        start_us = time_of(start)
        next_us = time_of(starts[at + 1]) if at + 1 < len(starts) else timeline.life.alive_us
        if start.kind == EventKind.RUN_START:
            # Its own attempts are part of it; the next start of the run is not.
            later = bisect.bisect_right(again_us, start_us)
            next_us = again_us[later] if later < len(again_us) else timeline.life.alive_us
        next_us = min([next_us, *(at_us for at_us in unseen_us if at_us >= start_us)])
        found = bisect.bisect_left(begins, start_us)
        first_us = begins[found] if found < len(begins) else None
        if first_us is not None and first_us <= next_us:
            yield Claim("warmup", start_us, first_us)
        else:
            yield Claim("warmup", start_us, max(start_us, next_us), is_inferred=True)
    ended: Event | None = None
    for event in events:
        if event.kind == EventKind.RUN_END:
            ended = event
        elif event.kind == EventKind.RUN_START and ended is not None:
            # Nobody knew that it had ended where a later start had to say so; else it waited for a place.
            is_unseen = ended.body.get("result") == "interrupted"
            state = "down.detect" if is_unseen else "down.schedule"
            if _is_unobserved(ended):
                state = "unknown"
            yield Claim(state, time_of(ended), time_of(event))
            ended = None


def _is_unobserved(end: Event) -> bool:
    """True where only the watching ended: what the ranks did from then on is in no record."""
    return end.body.get("is_unobserved") is True


def _tail_claims(events: Sequence[Event], timeline: Timeline) -> Iterable[Claim]:
    """From the last step of a start to its good end the script did something else: no step was made, nothing broke."""
    started_us: int | None = None
    for event in events:
        if event.kind in {EventKind.RUN_START, EventKind.ATTEMPT_START}:
            started_us = time_of(event)
        elif event.kind == EventKind.RUN_END and started_us is not None and _is_own(event):
            last_us = _last_end_before(timeline, time_of(event))
            if event.body.get("exit_code") == 0 and last_us is not None and last_us >= started_us:
                yield Claim("stall", last_us, time_of(event))


def _is_own(event: Event) -> bool:
    """True for what lastgood itself recorded, in a ledger or in a spool: it looked at the ranks until their end."""
    return event.source is None or event.source.importer in {None, "spool"}


def _attempt_claims(events: Sequence[Event], timeline: Timeline) -> Iterable[Claim]:
    """A new start without any record of a detection: the time before it was down all the same."""
    detections = [seen_us(e) for e in events if e.kind == EventKind.DETECT]
    before: Event | None = None
    for event in (e for e in events if e.kind in MARKS):
        start_us, last_us = time_of(event), _last_end_before(timeline, time_of(event))
        if before is None or event.kind in {EventKind.RUN_END, EventKind.ATTEMPT_END}:
            # Both may be of one moment, where a later start had to record them; then their order says nothing.
            if before is None or _order_of_ends(before) <= _order_of_ends(event):
                before = event
            continue
        if before.kind == EventKind.ATTEMPT_END:
            # A scheduler's record of the next attempt: until then the job waited for a place.
            state = "down.schedule" if is_imported(before) else "down.restart"
            yield Claim(state, time_of(before), start_us)
        elif _is_placed(before, event) and (last_us is None or last_us < time_of(before)):
            yield Claim("down.schedule", time_of(before), start_us)  # it was submitted, and waited
        elif is_imported(event) and not timeline.executions:
            # An attempt whose end is missing, in a log without steps.
            yield Claim("unknown", time_of(before), start_us, is_inferred=True)
        elif (
            before.kind != EventKind.RUN_END and last_us is not None and last_us >= time_of(before)
        ):
            # What ran before has no end. Unless a detector spoke, nobody noticed until this start.
            noticed_us = [at_us for at_us in detections if last_us <= at_us <= start_us]
            end_us = last_us if noticed_us else start_us
            yield Claim("down.detect", last_us, end_us, is_inferred=True)
        before = event


def _order_of_ends(event: Event) -> tuple[int, bool]:
    return time_of(event), event.kind == EventKind.RUN_END


def _is_placed(submitted: Event, start: Event) -> bool:
    """True when one log has a run's start (or an end that turned out not to be its last), and then an attempt's start."""
    if submitted.source is None or start.source is None:
        return False
    is_pair = start.kind == EventKind.ATTEMPT_START and submitted.kind in {
        EventKind.RUN_START,
        EventKind.RUN_END,
    }
    return is_pair and submitted.source.importer == start.source.importer is not None


def _pair_claims(events: Sequence[Event], timeline: Timeline) -> Iterable[Claim]:
    """Sections and planned stops. What was never ended ends where the run visibly went on to something else."""
    open_sections: dict[str, Event] = {}
    planned: Event | None = None
    closers = {EventKind.ATTEMPT_START, EventKind.DETECT, EventKind.RUN_START, EventKind.RUN_END}
    for event in events:
        if event.kind == EventKind.SECTION_BEGIN:
            open_sections[_section(event)] = event
        elif event.kind == EventKind.SECTION_END:
            begin = open_sections.pop(_section(event), None)
            if begin is not None:
                yield from _section_claim(begin, time_of(event), is_inferred=False)
        elif event.kind == EventKind.PLANNED_BEGIN:
            planned = planned or event
        elif event.kind == EventKind.PLANNED_END and planned is not None:
            yield Claim("planned", time_of(planned), time_of(event))
            planned = None
        elif event.kind in closers:
            for begin in open_sections.values():
                yield from _section_claim(begin, time_of(event), is_inferred=True)
            open_sections.clear()
            if planned is not None and event.kind in {EventKind.RUN_START, EventKind.RUN_END}:
                yield Claim("planned", time_of(planned), time_of(event), is_inferred=True)
                planned = None
    for begin in open_sections.values():
        yield from _section_claim(begin, timeline.life.alive_us, is_inferred=True)
    if planned is not None:
        yield Claim("planned", time_of(planned), timeline.end_us, is_inferred=True)


def _section(event: Event) -> str:
    return f"{event.attempt}/{event.body.get('name')}"


def _section_claim(begin: Event, end_us: int, *, is_inferred: bool) -> Iterable[Claim]:
    state = begin.body.get("state")
    if state == "productive" and is_inferred and is_imported(begin):
        state = "unknown"  # nobody recorded that the work was finished
    if state in SECTION_STATES or state == "unknown":
        yield Claim(state, time_of(begin), end_us, is_inferred)


# --- incidents ----------------------------------------------------------------------------------------


def _incident_claims(events: Sequence[Event], timeline: Timeline) -> Iterable[Claim]:
    by_incident: dict[str, list[Event]] = {}
    for event, name in declared_incidents(events):
        if name is not None and event.kind in PHASE_ORDER:
            by_incident.setdefault(name, []).append(event)
    quiet = {EventKind.INCIDENT_CLOSE, EventKind.ATTEMPT_START, EventKind.RUN_START}
    marks_us = sorted(time_of(e) for e in events if e.kind in quiet)
    starts_us = sorted(time_of(e) for e in events if _is_new_start(e))
    for members in by_incident.values():
        yield from _one_incident(in_phase_order(members), timeline, marks_us, starts_us)


def _is_new_start(event: Event) -> bool:
    """A start that ends what nobody closed: of the run, or of an attempt in a log, which has no word for *recovered*."""
    return event.kind == EventKind.RUN_START or (
        event.kind == EventKind.ATTEMPT_START and is_imported(event)
    )


def _one_incident(
    events: Sequence[Event],
    timeline: Timeline,
    marks_us: Sequence[int],
    starts_us: Sequence[int],
) -> Iterable[Claim]:
    """Last completed step to detection, then phase by phase to the close."""
    first = next((e for e in events if e.kind == EventKind.DETECT), events[0])
    detected_us = seen_us(first)
    yield Claim("down.detect", _progress_ended(first, timeline, marks_us), detected_us)
    has_stepped = _stepped_us(detected_us, timeline, marks_us) is not None
    phase, since_us = PHASES[EventKind.DETECT], detected_us
    is_watched = events[-1].body.get("outcome") in _UNTOUCHED
    for event in events:
        at_us = seen_us(event)
        if at_us < detected_us:
            continue
        yield Claim(phase, since_us, at_us)
        if event.kind == EventKind.INCIDENT_CLOSE:
            return
        phase, since_us = PHASES.get(EventKind(event.kind), phase), at_us
        if is_watched and event.kind == EventKind.DIAGNOSE:
            # A start that failed before its first step just waits to be ended: it does not warm up any more.
            phase = "stall" if has_stepped else "down.isolate"
    end_us = min([_resumed(timeline, since_us), *(us for us in starts_us if us > since_us)])
    yield Claim(phase, since_us, end_us, is_inferred=True)


def _progress_ended(detect: Event, timeline: Timeline, marks_us: Sequence[int]) -> int:
    """The last completed step before the detection.

    When none was completed since the last start (or the last closed incident), progress ended at the onset: the
    time before it belongs to that start.
    """
    detected_us = seen_us(detect)
    last_us = _stepped_us(detected_us, timeline, marks_us)
    if last_us is not None:
        return last_us
    onset_us = detected_us if detect.t_occurred_us is None else detect.t_occurred_us
    return min(detected_us, max(_mark_before(detected_us, timeline, marks_us), onset_us))


def _stepped_us(at_us: int, timeline: Timeline, marks_us: Sequence[int]) -> int | None:
    """End of the last step before this moment; None when the last start, or closed incident, is younger."""
    last_us = _last_end_before(timeline, at_us)
    return (
        last_us
        if last_us is not None and last_us >= _mark_before(at_us, timeline, marks_us)
        else None
    )


def _mark_before(at_us: int, timeline: Timeline, marks_us: Sequence[int]) -> int:
    at = bisect.bisect_left(marks_us, at_us)  # a close at this very moment is its own
    return marks_us[at - 1] if at else timeline.start_us


def _resumed(timeline: Timeline, after_us: int) -> int:
    """Begin of the first step of an attempt after this moment, or the end of the run: nobody closed the incident."""
    begins = (e.start_us for e in timeline.executions if e.is_first and e.start_us >= after_us)
    return min(begins, default=timeline.end_us)
