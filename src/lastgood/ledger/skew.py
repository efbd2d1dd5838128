"""Clocks of different starts of one imported run that contradict each other, put in order and counted.

A run is restarted on another host whose clock is wrong: its first record then seems older than the last one before
the restart. A start cannot come before what it follows, so such an order is corrected, never believed:

- where the log also has the receiver's time (one clock for all hosts), the difference between the two starts'
  delays is the error of the clock, and all records of the later start are moved by it;
- where it has none, they are moved just as far as the order needs. The wait before the restart is then not known.

An end that its log dates before its start contradicts as well; it is not believed, and counted.

Times inside one start come from one clock and keep their distances. An order that is wrong by less than the
declared uncertainty is left alone, and so is a delay that contradicts nothing: a log that was shipped late is late.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, time_of

_WORK_KINDS = frozenset((EventKind.STEP, EventKind.SECTION_BEGIN, EventKind.SECTION_END))
"""What only the job itself writes. A scheduler writes none of these, and its clock is one for all hosts."""
_LIFE_KINDS = _WORK_KINDS | {
    EventKind.RUN_START, EventKind.RUN_END, EventKind.ATTEMPT_START, EventKind.ATTEMPT_END,
}  # fmt: skip


class Skew(NamedTuple):
    """What was corrected in the clocks of one run."""

    event_count: int
    shift_us_max: int
    """The largest correction."""
    is_lower_bound: bool
    """No receiver's time was there: at least so much, and the wait before that start is not known."""


NO_SKEW = Skew(0, 0, is_lower_bound=False)


class Straightened(NamedTuple):
    """The events of a run in an order that can be true."""

    events: list[Event]
    skew: Skew


class _Start(NamedTuple):
    """The records that one start of a run wrote, all by one clock."""

    key: Hashable
    events: list[Event]
    begin_us: int
    end_us: int
    delay_us: float | None
    """How much later the receiver's clock was than the writer's, in the middle of the records."""


def in_recorded_order(events: Sequence[Event]) -> list[Event]:
    """By time; what an importer read at one moment stands in the order of its lines, and of one line begins come first.

    A log that counts whole seconds ends one interval and begins the next in one of them.
    """
    return sorted(events, key=lambda e: (time_of(e), *_rank(e), e.id))


def _rank(event: Event) -> tuple[int, int]:
    if _writer(event) is None:
        return 0, 0
    kind = event.kind
    return _place(event)[1], _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


_ORDER = (
    EventKind.RUN_START, EventKind.ATTEMPT_START, EventKind.SECTION_BEGIN, EventKind.STEP, EventKind.SECTION_END,
    EventKind.ATTEMPT_END, EventKind.RUN_END,
)  # fmt: skip


class Believed(NamedTuple):
    """The events of a run without the ends that cannot be."""

    events: list[Event]
    impossible_ends: int
    """Ends of the run that lie before their start, by more than clocks may be off."""


def without_impossible_ends(events: Sequence[Event], *, uncertainty_us: int) -> Believed:
    """The events of one run, in order of time, without an end that its log wrote after the start and dated before it.

    One of the two clocks is wrong, and nothing tells which: to believe both would make wall time of their difference.
    A log that was cut begins with an end too, but there the start stands behind it.
    """
    marks: dict[Hashable, list[Event]] = {}
    for event in events:
        is_mark = event.kind in {EventKind.RUN_START, EventKind.RUN_END}
        if is_mark and _writer(event) and event.body.get("begins_inside") is not True:
            marks.setdefault((_writer(event), _place(event)[0]), []).append(event)
    wrong = {_place(e) for own in marks.values() for e in _impossible(own, uncertainty_us)}
    if not wrong:
        return Believed(list(events), 0)
    ends = [e for e in events if e.kind == EventKind.RUN_END and _place(e) in wrong]
    # A start that such an end alone stood for goes with it.
    gone = {e.id for e in ends} | {
        e.id for e in events if e.body.get("begins_inside") is True and _place(e) in wrong
    }
    return Believed([e for e in events if e.id not in gone], len(ends))


def _impossible(marks: Sequence[Event], uncertainty_us: int) -> Iterator[Event]:
    """Ends that close no start before them, while a start that nothing else closes stands before them in the file."""
    is_open = False
    for at, mark in enumerate(marks):
        if mark.kind == EventKind.RUN_START or is_open:
            is_open = mark.kind == EventKind.RUN_START
            continue
        later = marks[at + 1 :]
        if all(e.kind == EventKind.RUN_START for e in later) and any(
            _place(e)[1] < _place(mark)[1] and time_of(e) > time_of(mark) + uncertainty_us
            for e in later
        ):
            yield mark


def straightened(events: Sequence[Event], *, uncertainty_us: int) -> Straightened:
    """The events of one run, in order of time, with the clock of each start moved where its order contradicts."""
    starts = _starts(events)
    shifts: dict[Hashable, int] = {}
    is_lower_bound = False
    reference_us = next((s.delay_us for s in starts if s.delay_us is not None), None)
    ended_us: int | None = None
    for start in starts:
        shift_us = 0
        if ended_us is not None and start.begin_us < ended_us - uncertainty_us:
            if start.delay_us is not None and reference_us is not None:
                shift_us = round(start.delay_us - reference_us)
            if start.begin_us + shift_us < ended_us - uncertainty_us:
                shift_us, is_lower_bound = ended_us - start.begin_us, True
        if shift_us:
            shifts[start.key] = shift_us
        ended_us = max(ended_us or 0, start.end_us + shift_us)
    return _shifted(events, shifts, is_lower_bound=is_lower_bound)


def _starts(events: Sequence[Event]) -> list[_Start]:
    """The starts in the order in which they happened, as far as that can be told without their clocks."""
    writers = {_writer(e) for e in events if e.kind in _WORK_KINDS} - {None}
    found: dict[Hashable, list[Event]] = {}
    for event in events:
        key = _key(event)
        if key is not None and event.kind in _LIFE_KINDS and _writer(event) in writers:
            found.setdefault(key, []).append(event)
    starts = [
        _Start(key, own, min(map(_begin_us, own)), max(map(ended_us, own)), _delay_us(own))
        for key, own in found.items()
    ]
    if all(start.delay_us is not None for start in starts):
        return sorted(starts, key=lambda s: min(e.t_observed_us or 0 for e in s.events))
    files = {place[0] for start in starts for place in map(_place, start.events)}
    if len(files) == 1:
        return sorted(starts, key=lambda s: min(map(_place, s.events)))
    return sorted(starts, key=lambda s: s.begin_us)


def _writer(event: Event) -> str | None:
    return event.source.importer if event.source is not None else None


def _key(event: Event) -> Hashable:
    """Which start of the run wrote this: by the time that the log gave that start, else by its number."""
    started_us = event.body.get("start_us")
    return started_us if isinstance(started_us, int) else event.attempt


def _place(event: Event) -> tuple[str, int]:
    """File and line, from the locator `file#line`."""
    name, _, number = ((event.source and event.source.locator) or "").rpartition("#")
    return name, int(number) if number.isdecimal() else 0


def _shifted(
    events: Sequence[Event], shifts: dict[Hashable, int], *, is_lower_bound: bool
) -> Straightened:
    if not shifts:
        return Straightened(list(events), NO_SKEW)
    moved: list[Event] = []
    count = 0
    for event in events:
        is_own = event.kind in _LIFE_KINDS and _writer(event) is not None
        shift_us = shifts.get(_key(event), 0) if is_own else 0
        count += bool(shift_us)
        moved.append(_moved(event, shift_us) if shift_us else event)
    return Straightened(
        in_recorded_order(moved), Skew(count, max(map(abs, shifts.values())), is_lower_bound)
    )


def _moved(event: Event, shift_us: int) -> Event:
    body = dict(event.body)
    for key in ("began_us", "alive_until_us"):
        if isinstance(body.get(key), int):
            body[key] += shift_us
    ended = body.get("ended_us")
    if isinstance(ended, list):
        body["ended_us"] = [t + shift_us if isinstance(t, int) else t for t in ended]
    at_us = None if event.t_occurred_us is None else event.t_occurred_us + shift_us
    return msgspec.structs.replace(event, t_occurred_us=at_us, body=body)


def _begin_us(event: Event) -> int:
    began = event.body.get("began_us")
    return min(time_of(event), began) if isinstance(began, int) else time_of(event)


def ended_us(event: Event) -> int:
    """The last time that an event tells of: for steps, the end of the last one."""
    ended = event.body.get("ended_us")
    stamps = [t for t in ended if isinstance(t, int)] if isinstance(ended, list) else []
    return max([time_of(event), *stamps])


def _delay_us(events: Sequence[Event]) -> float | None:
    delays = [
        e.t_observed_us - e.t_occurred_us
        for e in events
        if e.t_observed_us is not None and e.t_occurred_us is not None
    ]
    return statistics.median(delays) if delays else None
