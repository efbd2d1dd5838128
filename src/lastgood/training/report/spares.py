"""Spares in the training section: how many workers were active, parked and launching at each moment of a run.

A recovery is quick while a spare is parked. So the share of the run without one, and how long a new one takes to be
ready, say how soon after a fault the next one may come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lastgood.base.figures import FigureKind, measured
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.quantiles import quantile_of
from lastgood.evidence.report import Chart, Column, Data, FigureRow, Mark, Note, Section
from lastgood.evidence.time_part import MARK_COUNT_MAX, POINT_COUNT_MAX, TimeUnit, time_unit
from lastgood.evidence.watched_part import WATCHED_MODES
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect, time_of

SHOWN: Final = ("active", "parked", "launching")
SOURCE: Final = "inventory events"


class Standing(NamedTuple):
    """How many workers were in each state from a moment on."""

    at_us: int
    counts: dict[str, int]


def spares_section(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """Workers by state over time, and what that means for the next fault."""
    own = [e for e in in_effect(events) if e.run == run]
    stands = standings(own)
    if not any(e.kind == EventKind.INVENTORY for e in own):
        note = _without_inventory(own)
        return Section(name="spares", title="Spares", notes=(note,))
    wall = times.wall
    ready_us = _ready_us(own)
    without_us = _without_spare_us(stands, end_us=wall.end_us)
    wanted = next(
        (e.body.get("spares") for e in reversed(own) if e.kind == EventKind.RUN_START), None
    )
    launched = sum(
        e.kind == EventKind.INVENTORY and e.body.get("state") == "launching" for e in own
    )
    share = None if without_us is None or not wall.window_us else 100 * without_us / wall.window_us

    def number(label: str, name: str, value: float | None, unit: str, n: int | None = None) -> FigureRow:  # fmt: skip
        figure = measured(name, value, unit, source=SOURCE, n=n, as_of_us=wall.as_of_us)
        return FigureRow(label=label, figure=figure)

    return Section(
        name="spares",
        title="Spares",
        lead="A fault is recovered from at once while a spare is parked; without one it waits for a new worker. "
        "Counted from the first parked spare on.",
        figures=(
            number("Spares wanted", "spares wanted", wanted if isinstance(wanted, int) else None, ""),
            number("Fewest parked", "fewest parked", _fewest_parked(stands, wall.end_us), ""),
            number("Share of the run without a parked spare", "without spare", share, "%", len(stands)),
            number("Workers launched", "workers launched", launched, "", launched),
            FigureRow(label="Time until a worker is ready (median)", figure=quantile_of("time until ready", ready_us, 0.5, source=SOURCE, as_of_us=wall.as_of_us)),
        ),
        charts=(_chart(stands, times),),
    )  # fmt: skip


def _without_inventory(own: Sequence[Event]) -> Note:
    started = [e for e in own if e.kind == EventKind.RUN_START]
    if started and started[-1].body.get("mode") in WATCHED_MODES:
        return Note(text="A job whose script is not changed has no spares.")
    return Note(level="missing", text="Spares were not observed: no inventory event is on record.")


def standings(own: Sequence[Event]) -> list[Standing]:
    """The counts after each change, in order; a run that is started again starts with nobody."""
    state_of: dict[str, str] = {}
    found: list[Standing] = []
    for event in own:
        if event.kind in {EventKind.RUN_START, EventKind.RUN_END}:
            state_of.clear()
            if not found:
                continue
        elif event.kind == EventKind.ATTEMPT_START:
            # The first crew takes its ranks without an inventory event of its own.
            state_of |= dict.fromkeys(serving(event.body.get("workers")), "active")
        elif event.kind == EventKind.INVENTORY:
            worker, state = event.body.get("worker"), event.body.get("state")
            if not isinstance(worker, str) or not isinstance(state, str):
                continue
            state_of[worker] = state
        else:
            continue
        counts = dict(Counter(s for s in state_of.values() if s in SHOWN))
        found.append(Standing(time_of(event), counts))
    return found


def serving(workers: Any) -> dict[str, int]:
    """Worker -> rank, from the body of an attempt's start; whatever else stands there is left out."""
    if not isinstance(workers, dict):
        return {}
    return {str(name): int(rank) for rank, name in workers.items() if str(rank).isdigit()}


def _spells(stands: Sequence[Standing], end_us: int) -> list[tuple[int, int]]:
    """(parked, how long) from the first parked spare on."""
    first = next((i for i, s in enumerate(stands) if s.counts.get("parked")), None)
    if first is None:
        return []
    ends = [*(s.at_us for s in stands[first + 1 :]), max(end_us, stands[-1].at_us)]
    return [
        (s.counts.get("parked", 0), end - s.at_us)
        for s, end in zip(stands[first:], ends, strict=True)
    ]


def _without_spare_us(stands: Sequence[Standing], *, end_us: int) -> int | None:
    spells = _spells(stands, end_us)
    return sum(us for parked, us in spells if not parked) if spells else None


def _fewest_parked(stands: Sequence[Standing], end_us: int) -> int | None:
    return min((parked for parked, us in _spells(stands, end_us) if us), default=None)


def _ready_us(own: Sequence[Event]) -> list[int]:
    """From the launch of each worker until it first stood ready, parked or at once active."""
    began: dict[str, int] = {}
    found: list[int] = []
    for event in own:
        if event.kind == EventKind.ATTEMPT_START:
            for name in serving(event.body.get("workers")):
                if name in began:
                    found.append(time_of(event) - began.pop(name))
        if event.kind != EventKind.INVENTORY:
            continue
        worker, state = str(event.body.get("worker")), event.body.get("state")
        if state == "launching":
            began[worker] = time_of(event)
        elif state in {"parked", "active"} and worker in began:
            found.append(time_of(event) - began.pop(worker))
        elif state in {"gone", "refused"}:
            began.pop(worker, None)
    return found


def _chart(stands: Sequence[Standing], times: RunTimes) -> Chart:
    wall, unit = times.wall, time_unit(times.wall.window_us)
    # The last of many changes at one moment counts; a picture has no room for more changes than points.
    kept = {s.at_us: s for s in stands}
    shown = list(kept.values())
    step = max(1, -(-len(shown) * len(SHOWN) // POINT_COUNT_MAX))
    thin = [s for i, s in enumerate(shown) if i % step == 0 or i == len(shown) - 1]
    rows = tuple(
        (max(0.0, (s.at_us - wall.start_us) / unit.us), s.counts.get(state, 0), state)
        for state in SHOWN
        for s in (*thin, Standing(max(wall.end_us, thin[-1].at_us), thin[-1].counts))
    )
    return Chart(
        name="spares",
        title="Workers over time",
        form="steps",
        alt=_in_words(stands, times),
        caption="Active workers hold a rank, parked ones wait for one, launching ones are not ready yet."
        + (f" Every {step}th change is drawn." if step > 1 else ""),
        marks=incident_marks(times, unit),
        data=Data(
            kind=FigureKind.MEASURED,
            rows=rows,
            columns=(
                Column(title="time since start", unit=unit.name),
                Column(title="workers"),
                Column(title="State", is_number=False),
            ),
        ),
    )


def _in_words(stands: Sequence[Standing], times: RunTimes) -> str:
    most = {state: max(s.counts.get(state, 0) for s in stands) for state in SHOWN}
    fewest = _fewest_parked(stands, times.wall.end_us)
    told = ", ".join(f"at most {count} {state}" for state, count in most.items())
    return f"Workers over time: {told}; fewest parked {'never any' if fewest is None else fewest}."


def incident_marks(times: RunTimes, unit: TimeUnit) -> tuple[Mark, ...]:
    """The numbers of the incidents at their onset, as on the strip; none where they would run into each other."""
    marks = tuple(
        Mark(at=max(0.0, (at_us - times.wall.start_us) / unit.us), label=str(number))
        for number, incident in enumerate(times.incidents, start=1)
        if (at_us := incident.onset_us or incident.opened_us) is not None
    )
    return marks if len(marks) <= MARK_COUNT_MAX else ()
