"""A run that is started again under its id: what the supervisor before left in shared memory and in the ledger.

A supervisor that is killed says nothing. Its successor finds the snapshots, the page with its last turn, and a ledger
whose run has a start and no end. From these it closes what was left open, at the time of the last sign of life and not
at the time of its own start, and opens one incident for the interruption: the time in between is lost time, and the
report must show it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.base.errors import Refused
from lastgood.base.units import format_duration
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import time_of
from lastgood.training.resuming.leftovers import Leftover, end_leftovers, sessions_of
from lastgood.training.resuming.life import LastSign, Tail, read_life
from lastgood.training.resuming.same_run import SAME, short
from lastgood.training.rundir import RunDir

if TYPE_CHECKING:
    from lastgood.ledger.event import Event
    from lastgood.training.resuming.owned import OwnedFolder
    from lastgood.training.states.sources import Source

INTERRUPTION = "interruption"


class Entry(NamedTuple):
    """One event to write, as `Recorder.record` takes it."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the ledger knows of a run with this id; nothing of a new one."""

    last_attempt: int = 0
    is_open: bool = False
    """It has a start without an end."""
    alive_us: int = 0
    """Its last sign of life on record, wall-clock microseconds."""
    last_step: int | None = None
    """Newest accepted step on record."""
    joined: Mapping[int, str] = field(default_factory=dict)
    """Ranks at risk, each with its worker."""
    open_incidents: tuple[str, ...] = ()
    open_interruption: str | None = None
    interruption_count: int = 0
    incident_count: int = 0
    """Number of the last incident that the recovery loop named."""
    pending_checkpoint: int | None = None
    chunks: frozenset[tuple[int, int]] = frozenset()
    """First step and begin of every recorded chunk of steps."""
    started: Mapping[str, Any] = field(default_factory=dict)
    """What `run.start` of the last start says."""
    has_finished: bool = False
    """Its last end has exit code 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """How a run goes on that was there before."""

    last_attempt: int = 0
    incident_count: int = 0
    """Number of the last incident of all earlier starts."""
    sign: LastSign | None = None
    """What the last supervisor's page says; None when its live files are gone."""
    alive_us: int | None = None
    """When the last supervisor was last known to live (wall clock); None when it ended in order."""
    last_step: int | None = None
    incident: str | None = None
    """The open incident of the interruption."""
    is_new_incident: bool = False
    ended: tuple[Leftover, ...] = ()
    """Processes of the last supervisor that still lived."""

    @property
    def tolerance(self) -> str | None:
        """How far replays of the run may differ, as hex text; None = not at all."""
        found = None if self.sign is None else self.sign.tolerance
        return None if found is None else found.hex()

    @property
    def has_slots(self) -> bool:
        """True when snapshots may be restored from shared memory."""
        return self.sign is not None and self.sign.assessed_step >= 0


class Claim(NamedTuple):
    """What was found in the run's folder."""

    sign: LastSign | None
    ended: tuple[Leftover, ...]


def claim_folder(folder: OwnedFolder, identity: Mapping[str, Any]) -> Claim:
    """Take over what a killed supervisor of the same run left in the folder, and clear all else.

    Raises:
        Refused: it belongs to another script, world or contract.
    """
    sign, ended = None, ()
    root = folder.run_dir.root
    if folder.is_kept:
        ended = tuple(end_leftovers(root, sessions=sessions_of(folder.run_dir)))
        sign = _usable_sign(folder.run_dir, identity)
        take = RunDir.renew if sign is None else RunDir.reopen
        take(root, ranks=folder.ranks)
    folder.is_kept = sign is not None
    folder.run_dir.identity.write_text(json.dumps(dict(identity), indent=1, sort_keys=True))
    return Claim(sign, ended)


def _usable_sign(run_dir: RunDir, identity: Mapping[str, Any]) -> LastSign | None:
    """What the last supervisor's page says, when its state may be built upon; None when there is none."""
    sign = read_life(run_dir.life)
    try:
        known = json.loads(run_dir.identity.read_text())
    except (OSError, ValueError):
        return None
    if sign is None or sign.assessed_step < 0 or known.get("boot_id") != identity["boot_id"]:
        return None
    for key, needs in SAME.items():
        if known.get(key) == identity[key]:
            continue
        raise Refused(
            "the interrupted run with this id is another one",
            where=str(run_dir.root),
            found=f"{key} {short(known.get(key))} there, {short(identity[key])} here",
            needs=f"{needs}: its state {sign.assessed_step} is still in shared memory",
            next=f"choose another --run-id, or give its state up: rm -r {run_dir.root}",
        )
    return sign


# --- the ledger of the last start -----------------------------------------------------------------


def read_history(events: Iterable[Event]) -> History:
    """Return what the events of one run, in the order of the ledger, leave open."""
    found: dict[str, Any] = {"last_attempt": 0, "is_open": False, "alive_us": 0, "last_step": None}
    joined: dict[int, str] = {}
    opened: dict[str, None] = {}
    pending: int | None = None
    chunks: set[tuple[int, int]] = set()
    count = number = 0
    for event in events:
        found["last_attempt"] = max(found["last_attempt"], event.attempt or 0)
        found["alive_us"] = max(found["alive_us"], time_of(event))
        match event.kind:
            case EventKind.RUN_START:
                found |= {"is_open": True, "has_finished": False, "started": event.body}
            case EventKind.RUN_END:
                found |= {"is_open": False, "has_finished": event.body.get("exit_code") == 0}
            case EventKind.EXPOSURE_JOIN:
                joined |= {rank: str(event.body.get("worker", "")) for rank in event.ranks}
            case EventKind.EXPOSURE_LEAVE:
                joined = {r: name for r, name in joined.items() if r not in event.ranks}
            case EventKind.INCIDENT_OPEN if event.incident:
                opened[event.incident] = None
                count += f"/{INTERRUPTION}-" in event.incident
                number = max(number, _number_of(event.incident))
            case EventKind.INCIDENT_CLOSE if event.incident:
                opened.pop(event.incident, None)
            case EventKind.CHECKPOINT_BEGIN:
                pending = event.body.get("step")
            case EventKind.CHECKPOINT_COMMIT | EventKind.CHECKPOINT_FAIL:
                pending = None
            case EventKind.STEP:
                chunks.add((event.body["first"], event.body["began_us"]))
                found["last_step"] = event.body["last"]
                found["alive_us"] = max(found["alive_us"], *event.body["ended_us"])
    interruptions = [name for name in opened if f"/{INTERRUPTION}-" in name]
    return History(
        **found,
        joined=joined,
        open_incidents=tuple(name for name in opened if name not in interruptions),
        open_interruption=interruptions[-1] if interruptions else None,
        interruption_count=count,
        incident_count=number,
        pending_checkpoint=pending,
        chunks=frozenset(chunks),
    )


def _number_of(incident: str) -> int:
    """The number in `<run>/incident-<number>`; 0 in any other name."""
    found = re.fullmatch(r".*/incident-(\d+)", incident)
    return int(found[1]) if found else 0


def resumption_of(history: History, claim: Claim, *, run_id: str) -> Resumption:
    """Return how the run goes on: its attempts are counted on, and an end that nobody recorded is an incident."""
    sign = claim.sign
    is_interrupted = history.is_open or history.open_interruption is not None
    tail = _unrecorded(sign, history)
    alive_us = max(history.alive_us, sign.turn_wall_us if sign is not None else 0)
    last_step = tail.first + len(tail.ended_us) - 1 if tail is not None else history.last_step
    return Resumption(
        last_attempt=max(history.last_attempt, sign.generation if sign is not None else 0),
        incident_count=history.incident_count,
        sign=sign,
        alive_us=alive_us if is_interrupted else None,
        last_step=last_step,
        incident=(
            history.open_interruption or f"{run_id}/{INTERRUPTION}-{history.interruption_count + 1}"
        )
        if is_interrupted
        else None,
        is_new_incident=is_interrupted and history.open_interruption is None,
        ended=claim.ended,
    )


def _unrecorded(sign: LastSign | None, history: History) -> Tail | None:
    """The steps of the last supervisor that never got into the ledger."""
    if sign is None or sign.tail is None:
        return None
    is_known = (sign.tail.first, sign.tail.began_us) in history.chunks
    return None if is_known else sign.tail


def closing_entries(history: History, resumption: Resumption) -> list[Entry]:
    """Return what has to be recorded for the start before: its last steps, and the end of everything left open."""
    if not history.is_open or resumption.alive_us is None:
        return []
    at = {"t_occurred_us": resumption.alive_us, "attempt": max(1, history.last_attempt)}
    why = "the supervisor ended without a word"
    entries = []
    tail = _unrecorded(resumption.sign, history)
    if tail is not None:
        entries.append(Entry("step", {**at, "t_occurred_us": tail.began_us, "body": _steps(tail)}))
    if history.pending_checkpoint is not None:
        body = {"step": history.pending_checkpoint, "reason": f"{why} while it was written"}
        entries.append(Entry("checkpoint.fail", {**at, "body": body}))
    for incident in history.open_incidents:
        body = {"outcome": "interrupted", "reason": f"{why} before it was recovered"}
        entries.append(Entry("incident.close", {**at, "incident": incident, "body": body}))
    for rank, worker in sorted(history.joined.items()):
        # Written now: the devices stood still for this run until it was started again, and that is its loss.
        body = {"worker": worker, "rank": rank}
        left = {"attempt": at["attempt"], "devices": 1, "ranks": (rank,), "body": body}
        entries.append(Entry("exposure.leave", left))
    entries.append(Entry("attempt.end", {**at, "body": {"reason": "interrupted"}}))
    end: dict[str, Any] = {"exit_code": None, "result": "interrupted", "reason": why}
    if history.started.get("mode") == "observe":  # its ranks went on, and nobody saw it
        end["is_unobserved"] = True
    entries.append(Entry("run.end", {**at, "body": end}))
    return entries


def _steps(tail: Tail) -> dict[str, Any]:
    body: dict[str, Any] = {
        "first": tail.first,
        "last": tail.first + len(tail.ended_us) - 1,
        "began_us": tail.began_us,
        "ended_us": list(tail.ended_us),
        "recovered_from": "shared memory",
    }
    if all(loss is not None for loss in tail.losses):
        body["loss"] = list(tail.losses)
    return body


def opening_entries(resumption: Resumption, *, now_us: int, world: int) -> list[Entry]:
    """Return the beginning of the interruption's incident: who was gone since when, and what was still there of it."""
    if resumption.incident is None or resumption.alive_us is None:
        return []
    gap_us = max(0, now_us - resumption.alive_us)
    known = {"incident": resumption.incident, "attempt": max(1, resumption.last_attempt)}
    # Seen, named and gone at one moment, that of this start: what follows takes the time.
    at_once = {**known, "t_occurred_us": max(now_us, resumption.alive_us)}
    isolated = Entry(
        "isolate",
        {
            **at_once,
            "isolate_us": 0,
            "body": {"killed": [e.worker for e in resumption.ended], "parked": []},
        },
    )
    if not resumption.is_new_incident:
        return [isolated]
    sign = resumption.sign
    words = {
        "class_": "fail_stop",
        "symptom": "process_exit",
        "cause": "unknown",
        "cause_status": "unknown",
        "role": "initiating",
        "domain": [{"kind": "host", "id": os.uname().nodename}],
        "t_occurred_us": resumption.alive_us,
        "t_observed_us": max(now_us, resumption.alive_us),
    }
    who = "the supervisor" if sign is None else f"the supervisor (process {sign.pid})"
    gap = format_duration(gap_us)
    evidence = [
        f"{who} ended without a word; its last sign of life was {gap} before this start",
        _what_is_left(sign),
        *(f"process {e.pid} ({e.worker or 'helper'}) still lived" for e in resumption.ended),
    ]
    body = {"evidence": evidence, "signature": "process_exit/supervisor", "blast_radius": world}
    return [
        Entry("incident.open", {**known, **words, "body": body}),
        Entry("detect", {**known, **words, "detect_us": gap_us, "body": {"question": "liveness"}}),
        Entry("diagnose", {**at_once, "diagnose_us": 0, "body": {"culprits": [], "stacks": {}}}),
        isolated,
    ]


def _what_is_left(sign: LastSign | None) -> str:
    if sign is None:
        return "its shared memory is gone"
    return f"its shared memory holds the state after step {sign.assessed_step}"


def closing_entry(
    resumption: Resumption,
    source: Source,
    *,
    verification: Mapping[str, Any],
    now_us: int,
    world: int,
) -> Entry | None:
    """Return the end of the interruption's incident: the run goes on after this state. `now_us` is wall time."""
    sign = resumption.sign
    if resumption.incident is None or resumption.alive_us is None:
        return None
    body: dict[str, Any] = {
        "outcome": "recovered",
        "resumed_step": source.step,
        "lost_steps": max(0, (resumption.last_step or 0) - source.step),
        "path": "restart",
        "blast_radius": world,
    }
    fields: dict[str, Any] = {
        "class_": "fail_stop",
        "symptom": "process_exit",
        "verification": dict(verification),
    }
    fields["lost_device_us"] = world * max(0, now_us - resumption.alive_us)
    if sign is not None and source.published_us is not None:
        # Both are of this boot: the page of another one is not read at all.
        fields["checkpoint_age_us"] = max(0, sign.turn_us - source.published_us)
    return Entry("incident.close", {"incident": resumption.incident, **fields, "body": body})


def beginning_again(resumption: Resumption, *, now_us: int, world: int) -> Entry | None:
    """Return the end of an interruption of which no state is left: everything is done again. `now_us` is wall time."""
    if resumption.incident is None or resumption.alive_us is None:
        return None
    body: dict[str, Any] = {
        "outcome": "restarted",
        "resumed_step": 0,
        "lost_steps": resumption.last_step or 0,
        "path": "restart",
        "blast_radius": world,
        "reason": "neither shared memory nor a checkpoint holds a state: the run begins again",
    }
    fields = {
        "class_": "fail_stop",
        "symptom": "process_exit",
        "lost_device_us": world * max(0, now_us - resumption.alive_us),
    }
    return Entry("incident.close", {"incident": resumption.incident, **fields, "body": body})
