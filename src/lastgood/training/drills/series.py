"""A series of drills in one folder: job after job, with everything kept, and resumed where it was left.

FOLDER/ledger.db        the events of all jobs and the verdict of every drill; what was kept is read from here
FOLDER/jobs/NAME/       one job: its own ledger, tape, injector log, log of the ranks, logs of the workers
FOLDER/twin/            the undisturbed twin
FOLDER/report.html      one page over all of it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.base.canonical import sha256_hex
from lastgood.base.clock import SystemClock
from lastgood.base.errors import EXIT_INTERRUPTED
from lastgood.contract.load import contract_digest, load_contract
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import open_store
from lastgood.training.drills.catalogue import jobs_of
from lastgood.training.drills.drill import Drill, Outcome
from lastgood.training.drills.play import LEDGER, SCRIPT, Stage, play_job
from lastgood.training.drills.twin import Twins
from lastgood.training.drills.verdict import Records, Verdict, fault_id, judge_job

if TYPE_CHECKING:
    from lastgood.contract.model import FailureContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told how it goes; every part may be left out."""

    on_job: Callable[[Sequence[Drill]], None] | None = None
    on_event: Callable[[Event], None] | None = None
    on_turn: Callable[[], None] | None = None
    on_twin: Callable[[int], None] | None = None
    on_verdict: Callable[[Verdict], None] | None = None
    on_kept: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What the folder holds after it."""

    verdicts: tuple[Verdict, ...]
    """The newest of each chosen drill, in the order of the catalogue."""
    kept: tuple[str, ...]
    """Drills that had held before and were not played again."""
    not_played: tuple[str, ...] = field(default=())
    is_interrupted: bool = False

    @property
    def has_held(self) -> bool:
        """Every chosen drill was played and held."""
        return not self.not_played and all(verdict.has_held for verdict in self.verdicts)


def play_series(
    drills: Sequence[Drill],
    folder: Path,
    *,
    contract: Path | None = None,
    is_again: bool = False,
    watcher: Watcher | None = None,
) -> Series:
    """Play what has not held yet (everything with `is_again`); a Ctrl-C ends it and keeps what was played.

    Raises:
        LastgoodError: the contract or the folder cannot be used.
    """
    told = watcher or Watcher()
    declared = None if contract is None else load_contract(contract)
    owner, asked = _owner(declared), {d.name: _question_of(d, declared) for d in drills}
    folder.mkdir(parents=True, exist_ok=True)
    before = _answers(folder, asked)
    kept = [d.name for d in drills if not is_again and d.name in before and before[d.name].has_held]
    for name in kept:
        if told.on_kept is not None:
            told.on_kept(name)
    stage = Stage(
        folder=folder,
        contract=None if contract is None else contract.resolve(),
        twins=Twins(folder / "twin", script=SCRIPT, on_run=told.on_twin),
        listener=told.on_event,
        on_turn=told.on_turn,
    )
    is_interrupted = False
    for job in jobs_of([d for d in drills if d.name not in kept]):
        if told.on_job is not None:
            told.on_job(job)
        try:
            records = play_job(job, name=_job_name(folder, job), stage=stage)
        except KeyboardInterrupt:
            is_interrupted = True
            break
        # A job in a process of its own has a session of its own too: what a person presses raises here
        # and never reaches it.
        if records.exit_code == EXIT_INTERRUPTED and not job[0].needs_process:
            is_interrupted = True
            break
        verdicts = [
            replace(verdict, asked=asked[verdict.drill])
            for verdict in judge_job(job, records, {d.name: owner or d.owner for d in job})
        ]
        _keep(folder, job, records, verdicts)
        for verdict in verdicts:
            if told.on_verdict is not None:
                told.on_verdict(verdict)
    newest = _answers(folder, asked)
    return Series(
        verdicts=tuple(newest[d.name] for d in drills if d.name in newest),
        kept=tuple(kept),
        not_played=tuple(d.name for d in drills if d.name not in newest),
        is_interrupted=is_interrupted,
    )


def verdicts_in(events: Iterable[Event]) -> list[Verdict]:
    """The verdicts of drills among the events, in order; a later one of the same drill replaces an earlier one."""
    found: dict[str, Verdict] = {}
    for event in events:
        if event.kind == "annotation" and isinstance(event.body.get("drill"), dict):
            verdict = msgspec.convert(event.body["drill"], Verdict)
            found.pop(verdict.drill, None)
            found[verdict.drill] = verdict
    return list(found.values())


def _answers(folder: Path, asked: Mapping[str, str]) -> dict[str, Verdict]:
    """The newest verdict of each drill that answers just this question."""
    found = verdicts_in(_events(folder / LEDGER))
    return {v.drill: v for v in found if v.asked == asked.get(v.drill)}


def _question_of(drill: Drill, contract: FailureContract | None) -> str:
    """Digest of what is asked: the drill as the catalogue has it now, under this contract."""
    prepare = drill.run.prepare
    fixed = replace(drill, run=replace(drill.run, prepare=None))
    named = "" if prepare is None else f"{prepare.__module__}.{prepare.__qualname__}"
    under = "" if contract is None else contract_digest(contract)
    return sha256_hex(f"{fixed!r} {named} {under}".encode())


def _owner(contract: FailureContract | None) -> str | None:
    """Who owns evidence that failed, when the contract names somebody."""
    return None if contract is None else contract.spec.duties.of("training").owner


def _job_name(folder: Path, job: Sequence[Drill]) -> str:
    """A name that says what is in it, and that no earlier job of the folder has."""
    name = job[0].name + (f"-and-{len(job) - 1}-more" if len(job) > 1 else "")
    taken = 1
    while (folder / "jobs" / (name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return name if taken == 1 else f"{name}-{taken}"


def _events(ledger: Path) -> list[Event]:
    if not ledger.exists():
        return []
    with open_store(ledger, create=False) as store:
        return list(store.events())


def _keep(
    folder: Path, job: Sequence[Drill], records: Records, verdicts: Sequence[Verdict]
) -> None:
    """Everything of a job into the ledger of the folder, with what was injected and what came of it."""
    said = _annotations(job, records, verdicts)
    if records.unread is None and records.events:
        with open_store(folder / records.folder / LEDGER) as store:
            store.append(said)
    with open_store(folder / LEDGER) as store:
        store.append([*records.events, *said])


def _annotations(
    job: Sequence[Drill], records: Records, verdicts: Sequence[Verdict]
) -> list[Event]:
    incidents = {i.id: i for i in fold_incidents(records.events)}
    attempts = [event.attempt for event in records.events if event.attempt]
    common: dict[str, Any] = {
        "clock": SystemClock(),
        "run": records.run,
        "attempt": max(attempts, default=1),
        "versions": records.events[-1].versions if records.events else None,
        "topology": records.events[0].topology if records.events else None,
    }
    made = []
    for drill, verdict in zip(job, verdicts, strict=True):
        for links, body in _injections(drill, records, [incidents[i] for i in verdict.incidents]):
            made.append(new_event("annotation", links=links, body=body, **common))
        answer = "held" if verdict.has_held else "did not hold"
        body = {"text": f"drill {drill.name} {answer}", "drill": msgspec.to_builtins(verdict)}
        made.append(new_event("annotation", body=body, **common))
    if records.is_bitwise_equal is not None:
        twin = "equal" if records.is_bitwise_equal else "different"
        text = "final weights compared with an undisturbed run in plain torch"
        made.append(new_event("annotation", body={"text": text, "twin": twin}, **common))
    return made


def _injections(
    drill: Drill, records: Records, incidents: Sequence[Incident]
) -> list[tuple[dict[str, str] | None, dict[str, Any]]]:
    """What the report needs to know: which incidents were caused on purpose, when, and whether the right rank was named."""
    found: list[tuple[dict[str, str] | None, dict[str, Any]]] = []
    targets = {fault.target.rank for fault in drill.faults}
    left = list(incidents)
    for fault in drill.faults:
        at_us = records.injected_us.get(fault_id(drill, fault.id))
        body: dict[str, Any] = {
            "injected": True,
            "fault": drill.name,
            "fault_kind": str(fault.kind),
        }
        if at_us is not None:
            body["injected_wall_us"] = at_us
        if left:
            mine = left.pop(0)
            body["culprit_right"] = set(mine.ranks) <= targets and bool(mine.ranks)
            found.append(({"incident": mine.id}, body))
        elif not incidents and drill.expect.outcome is not Outcome.FINISHED and not found:
            found.append((None, body))
    found += [
        ({"incident": i.id}, {"injected": True, "fault": drill.name, "fault_kind": "of the drill"})
        for i in left
    ]
    return found
