"""One side of a claim: the incidents of a ledger with what is compared, and the conditions that they happened under.

Like is compared with like. An incident stands in the stratum of its injected fault, or of its symptom; what a run was
started with (ranks, contract, limits, machine, versions) is kept beside it, so that a side that differs in more than
what was changed on purpose can be told apart from an improvement.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lastgood.base.errors import BadInput
from lastgood.base.units import format_duration
from lastgood.budget.share_shift import Piece
from lastgood.evidence.archive import unpack
from lastgood.ledger.event import Event
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import read_store
from lastgood.ledger.walltime import WallState, WallTime, partition

_DRILL_MODES = frozenset({"demo", "drill"})
_WENT_ON = frozenset({"recovered", "resolved", "restarted"})
_NEVER = frozenset({"escalated", "ended"})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Everything that one ledger says."""

    name: str
    runs: tuple[str, ...]
    counted: tuple[Counted, ...]
    pieces: tuple[Piece, ...]
    """Of all runs whose work is on record, cut at the end of each incident."""
    conditions: dict[str, tuple[str, ...]]
    """What the runs were started with, by name; every value that occurs."""
    notes: tuple[str, ...]
    marks: frozenset[str] = frozenset()
    """Ids of the events that begin runs and incidents: what two sides share counts on both."""

    @property
    def is_injected(self) -> bool:
        """Some failure was caused on purpose."""
        return any(c.is_injected for c in self.counted)


def read_side(given: str) -> Side:
    """The side in a ledger or a bundle; `PATH#RUN` takes one run of it.

    Raises:
        BadInput: no such file, neither a ledger nor a bundle, or a run that is not in it.
    """
    path, _, run = given.partition("#") if not Path(given).exists() else (given, "", "")
    events = _events(Path(path))
    if run:
        runs = sorted({e.run for e in events if e.run})
        if run not in runs:
            raise BadInput(
                "no such run in the ledger", where=given, found=run,
                needs=f"one of: {', '.join(runs[-8:]) or 'no run at all'}",
            )  # fmt: skip
        events = [e for e in events if e.run == run]
    return side_of(events, name=given)


def side_of(events: Sequence[Event], *, name: str) -> Side:
    """The side of these events. Pure: the same events give the same side, in whatever order."""
    drilled = {
        e.run for e in events if e.kind == "run.start" and e.body.get("mode") in _DRILL_MODES
    }
    incidents = [i for i in fold_incidents(events) if not i.is_planned]
    faults, unseen = _injections(events)
    counted = [_counted(i, faults.get(i.id), is_drilled=i.run in drilled) for i in incidents]
    counted += [_never_detected(body, number) for number, body in enumerate(unseen)]
    runs = tuple(dict.fromkeys(e.run for e in events if e.run and e.kind == "run.start"))
    pieces, notes = _pieces(events, incidents, runs)
    return Side(
        name=name,
        runs=runs,
        counted=tuple(counted),
        pieces=tuple(pieces),
        conditions=_conditions(events),
        notes=(*notes, *_left_out(counted)),
        marks=frozenset(e.id for e in events if e.kind in {"run.start", "incident.open"}),
    )


def _events(path: Path) -> list[Event]:
    if path.is_dir() or path.suffix == ".tar":
        with tempfile.TemporaryDirectory(prefix="lastgood-compare-") as folder:
            unpack(path, Path(folder))
            return _read(Path(folder) / "ledger.db")
    if not path.is_file():
        raise BadInput(
            "no such ledger or bundle", where=str(path), found="nothing",
            needs="a ledger file, a bundle, or LEDGER#RUN",
        )  # fmt: skip
    return _read(path)


def _read(path: Path) -> list[Event]:
    with read_store(path) as store:
        return list(store.events())


# --- incidents ----------------------------------------------------------------------------------------


def _injections(events: Iterable[Event]) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Incident -> what was injected for it, and the injections that nobody detected."""
    faults: dict[str, dict[str, Any]] = {}
    unseen = []
    for event in events:
        if event.kind != "annotation" or event.body.get("injected") is not True:
            continue
        if event.incident is None:
            unseen.append(event.body)
        else:
            faults.setdefault(event.incident, event.body)
    return faults, unseen


def _counted(incident: Incident, fault: dict[str, Any] | None, *, is_drilled: bool) -> Counted:
    injected_us = (fault or {}).get("injected_wall_us")
    kind = str((fault or {}).get("fault_kind") or incident.symptom or "unknown symptom")
    detected_us = incident.detected_us
    recovery: float | None = None
    if incident.outcome in _NEVER:
        recovery = math.inf
    elif (
        incident.outcome in _WENT_ON and incident.closed_us is not None and detected_us is not None
    ):
        recovery = _positive(incident.closed_us - detected_us)
    return Counted(
        id=incident.id,
        kind=kind.replace("_", " "),
        is_injected=is_drilled or fault is not None or bool(incident.injected),
        since_injection_us=(
            None if injected_us is None or detected_us is None else _positive(detected_us - injected_us)
        ),
        since_onset_us=None if incident.detect_us is None else _positive(incident.detect_us),
        recovery_us=recovery,
        lost_steps=None if incident.lost_steps is None else float(incident.lost_steps),
    )  # fmt: skip


def _never_detected(body: dict[str, Any], number: int) -> Counted:
    return Counted(
        id=f"undetected {number + 1}",
        kind=str(body.get("fault_kind", "unknown symptom")).replace("_", " "),
        is_injected=True,
        since_injection_us=math.inf,
        since_onset_us=math.inf,
        recovery_us=math.inf,
        lost_steps=None,
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
    events: Sequence[Event], incidents: Sequence[Incident], runs: Sequence[str]
) -> tuple[list[Piece], list[str]]:
    """Each run whose work is on record, cut where an incident ends."""
    pieces, notes = [], []
    for run in runs:
        own = [e for e in events if e.run == run]
        last_us = max((e.t_observed_us or e.t_occurred_us or 0 for e in own), default=0)
        wall = partition(own, run=run, as_of_us=last_us)
        if not wall.is_work_recorded or not wall.accepted_steps:
            notes.append(f"run {run} has no accepted step and counts for no ETTR")
            continue
        unknown_us = wall.totals_us.get(WallState.UNKNOWN, 0)
        if unknown_us:
            notes.append(f"{format_duration(unknown_us)} of run {run} are unknown, and not useful")
        ends = sorted(i.closed_us for i in incidents if i.run == run and i.closed_us is not None)
        pieces += _cut(wall, ends)
    return pieces, notes


def _cut(wall: WallTime, ends: Sequence[int]) -> list[Piece]:
    inside = [end for end in ends if wall.start_us < end < wall.end_us]
    edges = [wall.start_us, *inside, wall.end_us]
    cut = []
    for begin_us, end_us in pairwise(edges):
        useful = length = 0
        for span in wall.spans:
            shared = min(end_us, span.end_us) - max(begin_us, span.start_us)
            if shared > 0 and span.state not in _OUTSIDE:
                length += shared
                useful += shared if span.state is WallState.PRODUCTIVE else 0
        if length:
            cut.append(Piece(useful, length))
    return cut


# --- conditions ---------------------------------------------------------------------------------------


def _conditions(events: Sequence[Event]) -> dict[str, tuple[str, ...]]:
    found: dict[str, Counter[str]] = {}
    for event in events:
        if event.kind == "run.start":
            for name, value in _started_with(event).items():
                found.setdefault(name, Counter())[value] += 1
    return {name: tuple(sorted(values)) for name, values in sorted(found.items())}


def _started_with(event: Event) -> dict[str, str]:
    body, versions = event.body, event.versions or {}
    command = body.get("command") or []
    mode = str(body.get("mode", "unknown"))
    floor_us = body.get("hang_floor_us")
    digest = body.get("contract_digest")
    told = {
        "world": body.get("world"),
        "spares": body.get("spares"),
        "contract": None if digest is None else str(digest)[:12],
        "limits": None if floor_us is None else f"hang after {format_duration(floor_us)}",
        "machine": body.get("host"),
        "job": _job(command),
        "snapshots": body.get("snapshots"),
        "injected": "yes" if mode in _DRILL_MODES else "no",
        **{name: versions.get(name) for name in ("lastgood", "torch", "kernel")},
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _job(command: Sequence[object]) -> str | None:
    """The script and its arguments; what names a place differs from run to run and is no condition."""
    if not command:
        return None
    return " ".join(
        [Path(str(command[0])).name, *(str(c) for c in command[1:] if "/" not in str(c))]
    )
