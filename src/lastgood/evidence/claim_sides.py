"""One side of a claim: the incidents of a ledger with what is compared, and the conditions that they happened under.

Like is compared with like. An incident stands in the stratum of its injected fault, or of its symptom, and of what its
run was started with (ranks, contract, limits, machine, versions), so that a side that differs in more than what was
changed on purpose can be told apart from an improvement. What never happened is infinite; what nobody knows is None.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lastgood.base.errors import BadInput
from lastgood.base.units import format_duration
from lastgood.budget.share_shift import Piece
from lastgood.evidence.archive import LEDGER
from lastgood.evidence.assemble import no_such_run
from lastgood.evidence.checked_bundle import unpack_checked
from lastgood.evidence.claim_conditions import (
    OUTSIDE_DRILL,
    Conditions,
    Starts,
    every_value,
)
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import read_store
from lastgood.ledger.verified import require_verified
from lastgood.ledger.verify import OnProgress
from lastgood.ledger.walltime import WallState, WallTime, partition

_WENT_ON = frozenset({"recovered", "resolved", "restarted"})
_NEVER = frozenset({"escalated", "ended"})
UNKNOWN_KIND = "unknown symptom"
_OUTSIDE = frozenset((WallState.PLANNED, WallState.EXCLUDED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One incident as a claim sees it. None is not known; infinity is never."""

    id: str
    kind: str
    """The injected fault, else the symptom."""
    is_injected: bool
    since_injection_us: float | None
    """From the injection to the detection."""
    since_onset_us: float | None
    """From the onset that the records tell to the detection."""
    recovery_us: float | None
    """From the detection to the end of the incident, its verification included."""
    lost_steps: float | None
    """Infinity where the incident ended the job: what that lost has no end on record."""
    lost_at_least: float
    """What the records tell of it, whatever became of the incident."""
    conditions: Conditions
    """What its run was started with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePiece:
    """A piece of the time of a run, with what that run was started with."""

    piece: Piece
    unknown_us: float
    """The part of it of which nobody knows what it was."""
    conditions: Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Everything that one ledger says."""

    name: str
    runs: tuple[str, ...]
    counted: tuple[Counted, ...]
    pieces: tuple[TimePiece, ...]
    """Of all runs whose work is on record, cut at the end of each incident."""
    unworked: tuple[TimePiece, ...]
    """Of the runs without an accepted step on record: all of it is unknown."""
    conditions: dict[str, tuple[str, ...]]
    """What the runs were started with, by name; every value that occurs."""
    notes: tuple[str, ...]
    marks: frozenset[str] = frozenset()
    """Ids of the events that begin runs and incidents: what two sides share counts on both."""

    @property
    def is_injected(self) -> bool:
        """Some failure was caused on purpose."""
        return any(c.is_injected for c in self.counted)


def read_sides(
    before: str, after: str, *, on_progress: OnProgress | None = None
) -> tuple[Side, Side]:
    """The sides in two ledgers or bundles; `PATH#RUN` takes one run. A file on both sides is verified and read once.

    Raises:
        BadInput: no such file, neither a ledger nor a bundle, or a run that is not in it.
        LedgerCorrupt: a ledger does not verify, or a bundle was changed.
    """
    events: dict[Path, list[Event]] = {}
    sides = []
    for given in (before, after):
        text, _, run = given.partition("#") if not os.path.exists(given) else (given, "", "")
        path = Path(text)
        if path not in events:
            events[path] = _events(path, on_progress)
        chosen = events[path] if not run else _of_run(events[path], run, path)
        sides.append(side_of(chosen, name=given))
    return sides[0], sides[1]


def _of_run(events: Sequence[Event], run: str, path: Path) -> list[Event]:
    runs = dict.fromkeys(e.run for e in events if e.run)
    if run not in runs:
        raise no_such_run(run, list(runs), where=str(path))
    return [e for e in events if e.run == run]


def side_of(events: Sequence[Event], *, name: str) -> Side:
    """The side of these events. Pure: the same events give the same side, in whatever order."""
    events = in_effect(events)
    starts = Starts(events)
    incidents = [i for i in fold_incidents(events) if not i.is_planned]
    faults, unseen = _injections(events)
    counted = [_counted(i, faults.get(i.id), starts) for i in incidents]
    counted += [_never_detected(event, number, starts) for number, event in enumerate(unseen)]
    runs = tuple(dict.fromkeys(e.run for e in events if e.run and e.kind == "run.start"))
    pieces, unworked, notes = _pieces(events, incidents, runs, starts)
    return Side(
        name=name,
        runs=runs,
        counted=tuple(counted),
        pieces=tuple(pieces),
        unworked=tuple(unworked),
        conditions=every_value([*starts.all, *(c.conditions for c in counted)]),
        notes=(*notes, *_left_out(counted)),
        marks=frozenset(e.id for e in events if e.kind in {"run.start", "incident.open"}),
    )


def _events(path: Path, on_progress: OnProgress | None) -> list[Event]:
    if path.is_dir() or path.suffix == ".tar":
        with tempfile.TemporaryDirectory(prefix="lastgood-compare-") as name:
            unpack_checked(path, Path(name), on_progress=on_progress)
            return _read(Path(name) / LEDGER)
    if not os.path.isfile(path):
        raise BadInput(
            "no such ledger or bundle", where=str(path), found="nothing",
            needs="a ledger file, a bundle, or LEDGER#RUN",
        )  # fmt: skip
    require_verified(path, on_progress=on_progress)
    return _read(path)


def _read(path: Path) -> list[Event]:
    with read_store(path) as store:
        return list(store.events())


# --- incidents ----------------------------------------------------------------------------------------


def _injections(events: Iterable[Event]) -> tuple[dict[str, dict[str, Any]], list[Event]]:
    """Incident -> what was injected for it, and the injections that nobody detected."""
    faults: dict[str, dict[str, Any]] = {}
    unseen = []
    for event in events:
        if event.kind != "annotation" or event.body.get("injected") is not True:
            continue
        if event.incident is None:
            unseen.append(event)
        else:
            faults.setdefault(event.incident, event.body)
    return faults, unseen


def _counted(incident: Incident, fault: dict[str, Any] | None, starts: Starts) -> Counted:
    conditions = starts.at(incident.run, incident.opened_us)
    kind = str((fault or {}).get("fault_kind") or incident.symptom or UNKNOWN_KIND)
    is_noted = fault is not None or bool(incident.injected)
    is_drilled = conditions.get("injected") == "yes"
    has_ended_job = incident.outcome in _NEVER
    stated = float(incident.lost_steps or 0)
    since_injection, since_onset = _latencies(incident, fault)
    return Counted(
        id=incident.id,
        kind=kind.replace("_", " "),
        is_injected=is_drilled or is_noted,
        since_injection_us=since_injection,
        since_onset_us=since_onset,
        recovery_us=_recovery(incident),
        lost_steps=math.inf if has_ended_job else None if incident.lost_steps is None else stated,
        lost_at_least=stated,
        conditions={**conditions, "injected": OUTSIDE_DRILL} if is_noted and not is_drilled else conditions,
    )  # fmt: skip


def _latencies(
    incident: Incident, fault: dict[str, Any] | None
) -> tuple[float | None, float | None]:
    """From the injection and from the recorded onset; an injected fault that nothing detected took for ever."""
    if incident.detected_us is None:
        never = None if fault is None else math.inf
        return never, never
    injected_us = (fault or {}).get("injected_wall_us")
    return (
        None if injected_us is None else _positive(incident.detected_us - injected_us),
        None if incident.detect_us is None else _positive(incident.detect_us),
    )


def _recovery(incident: Incident) -> float | None:
    if incident.outcome in _NEVER:
        return math.inf
    if incident.closed_us is None or incident.detected_us is None:
        return None
    is_over = incident.outcome in _WENT_ON
    return _positive(incident.closed_us - incident.detected_us) if is_over else None


def _never_detected(event: Event, number: int, starts: Starts) -> Counted:
    body = event.body
    at_us = body.get("injected_wall_us")
    conditions = starts.at(event.run, at_us if isinstance(at_us, int) else time_of(event))
    is_drilled = conditions.get("injected") == "yes"
    return Counted(
        id=f"undetected {number + 1}",
        kind=str(body.get("fault_kind") or UNKNOWN_KIND).replace("_", " "),
        is_injected=True,
        since_injection_us=math.inf,
        since_onset_us=math.inf,
        recovery_us=math.inf,
        lost_steps=None,
        lost_at_least=0.0,
        conditions=conditions if is_drilled else {**conditions, "injected": OUTSIDE_DRILL},
    )


def _positive(duration_us: int) -> float | None:
    """Clocks count whole microseconds: what took less took one. A negative time is a contradiction, not a time."""
    return None if duration_us < 0 else float(max(duration_us, 1))


def _left_out(counted: Sequence[Counted]) -> list[str]:
    notes = []
    unfinished = sum(c.recovery_us is None for c in counted)
    if unfinished:
        notes.append(f"{unfinished} of {len(counted)} incidents have no recorded end of recovery")
    never = sum(c.recovery_us == math.inf for c in counted)
    if never:
        notes.append(f"{never} of {len(counted)} never recovered: they stand behind every other")
    return notes


# --- time ---------------------------------------------------------------------------------------------


def _pieces(
    events: Sequence[Event], incidents: Sequence[Incident], runs: Sequence[str], starts: Starts
) -> tuple[list[TimePiece], list[TimePiece], list[str]]:
    """Each run whose work is on record, cut where an incident ends; and the time of the others."""
    pieces, unworked, notes = [], [], []
    for run in runs:
        own = [e for e in events if e.run == run]
        last_us = max((e.t_observed_us or e.t_occurred_us or 0 for e in own), default=0)
        wall = partition(own, run=run, as_of_us=last_us)
        if not wall.is_progress_known or not wall.accepted_steps:
            why = "has steps before a restart that may have been done again" if wall.unsure_executions else "has no accepted step"  # fmt: skip
            notes.append(f"run {run} {why} and counts for no ETTR")
            unworked += _cut(wall, (), starts)
            continue
        unknown_us = wall.totals_us.get(WallState.UNKNOWN, 0)
        if unknown_us:
            notes.append(f"{format_duration(unknown_us)} of run {run} are unknown, and not useful")
        ends = sorted(i.closed_us for i in incidents if i.run == run and i.closed_us is not None)
        pieces += _cut(wall, ends, starts)
    return pieces, unworked, notes


def _cut(wall: WallTime, ends: Sequence[int], starts: Starts) -> list[TimePiece]:
    inside = [end for end in ends if wall.start_us < end < wall.end_us]
    edges = [wall.start_us, *inside, wall.end_us]
    cut = []
    for begin_us, end_us in pairwise(edges):
        useful = length = unknown = 0
        for span in wall.spans:
            shared = min(end_us, span.end_us) - max(begin_us, span.start_us)
            if shared > 0 and span.state not in _OUTSIDE:
                length += shared
                useful += shared if span.state is WallState.PRODUCTIVE else 0
                unknown += shared if span.state is WallState.UNKNOWN else 0
        if length:
            cut.append(
                TimePiece(
                    piece=Piece(useful, length),
                    unknown_us=unknown,
                    conditions=starts.at(wall.run, begin_us),
                )
            )
    return cut
