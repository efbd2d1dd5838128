"""Until when a run lasted, and how that is known.

A supervisor's run lasts to its last end, or to now while its last start has none. The log of a run that was killed has
no end either, and it may be read a month later: such a run lasts to its last sign of life, and then for the time
after which its silence means death.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, time_of
from lastgood.ledger.executions import Executions, is_imported

MARKS = frozenset(
    (EventKind.RUN_START, EventKind.RUN_END, EventKind.ATTEMPT_START, EventKind.ATTEMPT_END)
)
PROGRESS_FORMATS = frozenset(("goodput", "mlperf"))
"""Logs that a job writes about its own steps. They hold no failures by their nature, so their silence says nothing."""
STEPS_OF_SILENCE = 2
"""A run whose steps are long is silent for long between them."""


class Life(NamedTuple):
    """The end of a run."""

    end_us: int = 0
    alive_us: int = 0
    """The last sign of life, where a rule closed the run; else its end."""
    has_end: bool = False
    """The end is on record."""
    is_end_inferred: bool = False
    """It is not, and a rule closed the run before `as_of`."""
    is_work_recorded: bool = True
    """False for a log that holds no step and no section of work: it cannot tell work from waiting."""


NO_LIFE = Life()


def read_life(
    events: Sequence[Event], executions: Executions, *, as_of_us: int, liveness_us: int
) -> Life:
    """The life of a run whose events, in order of time, are known as of then."""
    is_log = is_read_from_logs(events)
    is_work_recorded = not is_log or any(map(_tells_of_work, events))
    marks = [e for e in events if e.kind in {EventKind.RUN_START, EventKind.RUN_END}]
    last = max(marks, key=_in_life, default=None)
    if last is not None and last.kind == EventKind.RUN_END:
        end_us = time_of(last)
        return Life(end_us, end_us, has_end=True, is_work_recorded=is_work_recorded)
    open_life = Life(as_of_us, as_of_us, is_work_recorded=is_work_recorded)
    if not is_log:
        return open_life
    signs_us = [sign_of_life_us(e) for e in events if is_imported(e)]
    ends_us = [e.end_us for e in executions.items]
    alive_us = max([*signs_us, *ends_us])
    end_us = alive_us + max(liveness_us, STEPS_OF_SILENCE * (executions.step_us_median or 0))
    if end_us >= as_of_us:
        return open_life
    return Life(end_us, alive_us, is_end_inferred=True, is_work_recorded=is_work_recorded)


def is_read_from_logs(events: Iterable[Event]) -> bool:
    """True when all that tells of the life of a run was imported; a verdict that a person adds does not change that."""
    life = [e for e in events if e.kind in MARKS or e.kind == EventKind.STEP]
    return bool(life) and all(map(is_imported, life))


def without_inner_starts(events: Iterable[Event]) -> list[Event]:
    """A file that begins inside a run stands for its start only as long as no earlier record is there."""
    known = list(events)
    return [
        event
        for at, event in enumerate(known)
        if at == 0 or not (event.body.get("begins_inside") is True and is_imported(event))
    ]


def sign_of_life_us(event: Event) -> int:
    """Until when an imported record shows that its run was alive; a scheduler's row may say more than its own time."""
    alive_us = event.body.get("alive_until_us")
    return max(time_of(event), alive_us) if isinstance(alive_us, int) else time_of(event)


def _in_life(mark: Event) -> tuple[int, int, bool]:
    """Order of starts and ends; a scheduler that counts whole seconds ends one attempt and starts the next in one."""
    number = (mark.attempt or 0) if is_imported(mark) else 0
    return time_of(mark), number, mark.kind == EventKind.RUN_END


def _tells_of_work(event: Event) -> bool:
    is_section = event.kind == EventKind.SECTION_BEGIN and event.body.get("state") == "productive"
    return is_section or event.kind == EventKind.STEP
