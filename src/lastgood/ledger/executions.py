"""Which steps were executed, when, and which of them still count.

A supervisor records an end for every step. An imported log often has only starts: a step then ends where the next
one starts, and the last one before a stop has no end at all. Such a step is closed by a rule, and whatever a rule
closed is marked as inferred:

- the next record continues the numbers: the steps between ran, their records are missing. They count when the time
  fits their number at the usual step time; what lies beyond that is left unknown;
- the next record is that of a later start and continues the numbers: the step was finished and kept, and it is given
  the usual step time;
- the next record runs the same or an earlier number again: the step was cut off, and the usual step time is lost;
- nothing follows: nobody knows, and nothing is counted.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lastgood.contract.taxonomy import EventKind, FailureClass
from lastgood.ledger.event import Event, time_of
from lastgood.ledger.incident import is_accepted

MISSING_FACTOR = 1.5
"""A gap in the records up to this many times the usual time of the missing steps is taken to be those steps."""
MISSING_STEPS_MAX = 100_000
"""A longer jump of the step number is no run of lost records."""
COUNTED = "count"
"""How a record says that nobody knows the numbers of the steps after a start: they are counted from it."""
INFERRED_STEPS_MAX = 1_000_000
"""A log with more holes than this is no log: memory has to have a bound."""

_VERDICTS = frozenset(
    (
        EventKind.INCIDENT_OPEN, EventKind.OBSERVATION, EventKind.ANNOTATION, EventKind.CORRECTION, EventKind.RECORD,
    )
)  # fmt: skip
_MARKS = frozenset(
    (EventKind.RUN_START, EventKind.RUN_END, EventKind.ATTEMPT_START, EventKind.ATTEMPT_END)
)

_STARTS = frozenset((EventKind.RUN_START, EventKind.ATTEMPT_START))


@dataclass(slots=True)
class Execution:
    """One execution of one step. Step k turns state k-1 into state k; a number may be executed again."""

    step: int
    start_us: int
    end_us: int
    attempt: tuple[int, int | None]
    """Start of the run and attempt since it: a run that is started again counts its attempts from 1 again."""
    is_first: bool
    """The first of its attempt: compiles and warm caches make it no measure of the others."""
    is_lost: bool = False
    is_inferred: bool = False
    """No record says when it ended, or that it ran at all: a rule does."""
    is_unsure: bool = False
    """It ran, and no record tells whether a later start did it again."""


class Executions(NamedTuple):
    """What the step records of one run say."""

    items: list[Execution]
    """In order of their end."""
    step_us_median: int | None
    clamped_count: int
    """Records that contradicted themselves."""
    unfinished_us: list[int]
    """Starts of steps that no rule could close: the run was at work then, and that is all there is to know."""


class _Open(NamedTuple):
    """A step that was started and whose end no record tells."""

    step: int
    start_us: int
    attempt: tuple[int, int | None]


def is_imported(event: Event) -> bool:
    """True for a record that an importer read from a log, false for one that a supervisor wrote."""
    return event.source is not None and event.source.importer is not None


def known_since_us(event: Event) -> int:
    """When it was known: a detection is known when it is observed, its `t_occurred_us` is the onset."""
    is_late = event.kind in {EventKind.DETECT, EventKind.INCIDENT_OPEN} or _is_verdict(event)
    if is_late and event.t_observed_us is not None:
        return max(time_of(event), event.t_observed_us)
    return time_of(event)


def read_executions(events: Sequence[Event], as_of_us: int) -> Executions:
    """Every execution of every step in order of time, with its fate."""
    found, left_open, clamped = _read_records(events, as_of_us)
    found.sort(key=lambda e: (e.end_us, e.step))
    _join_chunks(found)
    median_us = _median_us(found)
    if left_open:
        found += _close(left_open, found, events, median_us=median_us)
        found.sort(key=lambda e: (e.end_us, e.step))
        _join_chunks(found)
    _judge(found, events)
    closed = {_key(e) for e in found} if left_open else set()
    unfinished_us = [o.start_us for o in left_open if _key(o) not in closed]
    return Executions(found, _median_us(found), clamped, unfinished_us)


def _read_records(
    events: Sequence[Event], as_of_us: int
) -> tuple[list[Execution], list[_Open], int]:
    """The steps with an end, those without one, and how many records contradicted themselves."""
    found: list[Execution] = []
    left_open: list[_Open] = []
    clamped = 0
    number_of = _attempt_numbers(events)
    for event in events:
        if event.kind != EventKind.STEP:
            continue
        first, ended, began = (event.body.get(key) for key in ("first", "ended_us", "began_us"))
        if not (isinstance(first, int) and isinstance(ended, list) and isinstance(began, int)):
            clamped += 1
            continue
        attempt = number_of(event, began)
        for offset, end_us in enumerate(ended):
            if not isinstance(end_us, int) or end_us < began:
                clamped += 1  # a clock that went back: the step happened, its length is not known
                end_us = began
            attempt = number_of(event, began)
            if end_us <= as_of_us:
                found.append(Execution(first + offset, began, end_us, attempt, is_first=False))
            began = end_us
        last = event.body.get("last")
        if isinstance(last, int) and last == first + len(ended) and began <= as_of_us:
            left_open.append(_Open(last, began, attempt))
    if any(is_imported(e) for e in events):
        found, left_open = _once(found, left_open)
    return found, left_open, clamped


def _attempt_numbers(events: Sequence[Event]) -> Callable[[Event, int], tuple[int, int | None]]:
    """A function: which start of the run, and which attempt, a step that began then belongs to.

    A log that does not number its attempts has them counted by its starts.
    """
    runs_us = [time_of(e) for e in events if e.kind == EventKind.RUN_START]
    attempts_us = [time_of(e) for e in events if e.kind == EventKind.ATTEMPT_START]

    def number_of(event: Event, began_us: int) -> tuple[int, int | None]:
        number = event.attempt
        if number is None and is_imported(event):
            number = bisect.bisect_right(attempts_us, began_us)
        return bisect.bisect_right(runs_us, began_us), number

    return number_of


def _once(
    found: Sequence[Execution], left_open: Sequence[_Open]
) -> tuple[list[Execution], list[_Open]]:
    """Two files that overlap tell of one execution twice, the shorter one perhaps without its end."""
    by_start = {_key(e): e for e in sorted(found, key=lambda e: -e.end_us)}
    open_once = {_key(o): o for o in left_open}
    rest = [o for key, o in open_once.items() if key not in by_start]
    return list(by_start.values()), rest


def _join_chunks(found: Sequence[Execution]) -> None:
    """Two chunks of one attempt: what lies between them is the loader, as it is inside a chunk."""
    before: Execution | None = None
    for execution in found:
        execution.is_first = before is None or before.attempt != execution.attempt
        is_next = (
            before is not None and not execution.is_first and before.step + 1 == execution.step
        )
        if before and is_next and not before.is_inferred:
            execution.start_us = min(execution.start_us, before.end_us)
        before = execution


def _median_us(executions: Sequence[Execution]) -> int | None:
    lengths = [
        e.end_us - e.start_us for e in executions if not (e.is_lost or e.is_first or e.is_inferred)
    ]
    return round(statistics.median(lengths)) if lengths else None


# --- steps without an end -----------------------------------------------------------------------------


def _close(
    left_open: Iterable[_Open],
    found: Sequence[Execution],
    events: Sequence[Event],
    *,
    median_us: int | None,
) -> list[Execution]:
    """The executions that the rules make of steps without an end."""
    left_open = sorted(left_open, key=_place)
    nexts = sorted([*(_Open(e.step, e.start_us, e.attempt) for e in found), *left_open], key=_place)
    marks = [(time_of(e), e.kind) for e in events if e.kind in _MARKS]
    made: list[Execution] = []
    at = 0
    for step in left_open:
        at = bisect.bisect_right(nexts, (step.start_us, step.step), lo=at, key=_place)
        following = nexts[at] if at < len(nexts) else None
        later = bisect.bisect_right(marks, step.start_us, key=lambda mark: mark[0])
        mark = marks[later] if later < len(marks) else None
        made += _closed(step, following, mark, median_us)
        if len(made) > INFERRED_STEPS_MAX:
            break  # what is left stays unknown
    return made


def _place(step: _Open) -> tuple[int, int]:
    return step.start_us, step.step


def _key(step: _Open | Execution) -> tuple[int, int]:
    return step.step, step.start_us


def _closed(
    step: _Open, following: _Open | None, mark: tuple[int, str] | None, median_us: int | None
) -> list[Execution]:
    if following is None:
        if mark is not None and mark[1] == EventKind.RUN_END:
            return [_ended(step, mark[0])]  # it went on to the end of the run, which is on record
        return []
    is_mark_between = mark is not None and mark[0] <= following.start_us
    if following.attempt == step.attempt and not is_mark_between:
        return _closed_by_next(step, following, median_us)
    stopped_us = mark[0] if mark is not None and is_mark_between else following.start_us
    return _closed_by_restart(step, following, stopped_us - step.start_us, median_us)


def _closed_by_next(step: _Open, following: _Open, median_us: int | None) -> list[Execution]:
    """The next record is of the same start: it ends the step, or some records between are missing."""
    room_us, count = following.start_us - step.start_us, following.step - step.step
    if count == 1:
        return [_ended(step, following.start_us)]
    if count < 1:
        return _cut_off(step, room_us, median_us)
    if median_us is None or not _fits(count, room_us, median_us):
        return []
    if room_us <= MISSING_FACTOR * count * median_us:
        return _spread(step, count, room_us)
    return _spread(step, count, count * median_us)


def _closed_by_restart(
    step: _Open, following: _Open, room_us: int, median_us: int | None
) -> list[Execution]:
    """A start lies between: the number that it went on with tells whether the step was kept."""
    count = following.step - step.step
    if count < 1:
        return _cut_off(step, room_us, median_us)
    if median_us is None or (count > 1 and not _fits(count, room_us, median_us)):
        return []
    return _spread(step, count, min(room_us, count * median_us))


def _fits(count: int, room_us: int, median_us: int) -> bool:
    """False when the number jumps further than steps can run in that time: then it was counted anew, not run."""
    return count <= MISSING_STEPS_MAX and room_us * MISSING_FACTOR >= count * median_us


def _cut_off(step: _Open, room_us: int, median_us: int | None) -> list[Execution]:
    """It runs again later, so this execution is lost; how long it lasted is taken to be usual."""
    if median_us is None:
        return []
    return _spread(step, 1, min(room_us, median_us))


def _ended(step: _Open, end_us: int) -> Execution:
    return Execution(step.step, step.start_us, end_us, step.attempt, is_first=False)


def _spread(step: _Open, count: int, length_us: int) -> list[Execution]:
    """So many steps from this one on, evenly over this time."""
    edges = [step.start_us + length_us * at // count for at in range(count + 1)]
    return [
        Execution(
            step.step + at,
            edges[at],
            edges[at + 1],
            step.attempt,
            is_first=False,
            is_inferred=True,
        )
        for at in range(count)
    ]


# --- what no longer counts ----------------------------------------------------------------------------


def _is_verdict(event: Event) -> bool:
    """A record that says from which step on the state was wrong, however long after."""
    return (
        event.kind in _VERDICTS
        and event.class_ == FailureClass.SDC
        and event.first_divergent_step is not None
    )


def _mark_lost(executions: Sequence[Execution], events: Sequence[Event]) -> None:
    """Marks what no longer counts: a step that ran again, what lies behind an accepted restore or a wrong step."""
    turns: list[tuple[int, int, int]] = [(e.end_us, 1, at) for at, e in enumerate(executions)]
    for event in events:
        target = event.body.get("target") if event.kind == EventKind.VERIFY else None
        accepted = event.verification is not None and is_accepted(event.verification)
        if isinstance(target, int) and accepted:
            turns.append((time_of(event), 0, target))
        elif _is_verdict(event) and event.first_divergent_step is not None:
            # A step that ended at the very moment of the verdict was judged by it: hence behind the steps.
            turns.append((known_since_us(event), 2, event.first_divergent_step - 1))
    standing: list[Execution] = []
    for _, what, value in sorted(turns):
        limit = value
        if what == 1:
            limit = executions[value].step - 1
        while standing and standing[-1].step > limit:
            standing.pop().is_lost = True
        if what == 1:
            standing.append(executions[value])


def _judge(executions: Sequence[Execution], events: Sequence[Event]) -> None:
    """Marks what no longer counts, and of what nobody knows whether it does.

    A script that tells no step number is only counted from its start. Where it went on when it began again is in no
    record: its later steps may or may not be those before it once more, whatever number they were given.
    """
    begun_us = _counted_anew_us(events)
    before = [e for e in executions if e.end_us <= begun_us]
    _mark_lost(before, events)
    for execution in before:
        execution.is_unsure = not execution.is_lost
    _mark_lost([e for e in executions if e.end_us > begun_us], events)


def _counted_anew_us(events: Sequence[Event]) -> int:
    """The last start after which the steps are only counted; 0 without one."""
    begun_us = start_us = 0
    for event in events:
        if event.kind in _STARTS:
            start_us = time_of(event)
        elif _is_counted_only(event):
            begun_us = start_us
    return begun_us


def _is_counted_only(event: Event) -> bool:
    is_said = event.kind in {EventKind.RESTORE, EventKind.ANNOTATION}
    return is_said and event.body.get("numbered_by") == COUNTED and event.body.get("step") is None
