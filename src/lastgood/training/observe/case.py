"""One incident at a time, seen from outside: opened by a verdict, diagnosed by stacks, closed by the job itself.

Pure: a verdict and the time go in, events to record and the next state come out. Nothing here ends a process, so
there is no isolation and no restore; what closes an incident is that the ranks do a step behind it, or that the job ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lastgood.contract.taxonomy import CauseStatus, DomainKind, Role, class_of
from lastgood.signals.reading import Assessment, Symptom, Verdict
from lastgood.training.watching.stack_groups import StackGroup, outlier_ranks

NOBODY_FACTOR = 20
"""Ranks that are all in their own code, none waiting for another, are called hung only after so many limits."""


class Said(NamedTuple):
    """One event to record; instants in `fields` are monotonic."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The incident that is open."""

    id: str
    symptom: Symptom
    culprits: tuple[int, ...]
    key: str
    onset_us: int
    detected_us: int
    step: int
    """Newest step that every rank had done when it opened."""
    launches: int = 0
    """Collectives that the foremost rank had entered then."""
    evidence: tuple[str, ...] = ()
    """What was seen of the culprits."""
    diagnosed_us: int | None = None
    cascade: tuple[str, ...] = ()
    """Later verdicts of the same incident, so that each is recorded once."""

    @property
    def signature(self) -> str:
        """What tells this failure from others: an exception is the same on whichever rank it appears."""
        ranks = "" if self.symptom is Symptom.EXCEPTION else ",".join(map(str, self.culprits))
        return f"{self.symptom}:{self.key}:{ranks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What is remembered between two looks."""

    run: str
    host: str
    world: int
    """How many ranks the job has: it is synchronous, so what stops one of them stops them all."""
    count: int = 0
    open: Case | None = None
    said: tuple[Said, ...] = field(default=())
    """What this look asks to record."""


class Progress(NamedTuple):
    """How far the job has come at a look."""

    step: int
    """Newest step that every rank has done."""
    launches_min: int = 0
    """Collectives that the last rank has entered; for scripts that do no step at all."""
    launches_max: int = 0
    """Collectives that the foremost rank has entered."""


def look(book: Book, found: Assessment, *, now_us: int, at: Progress, attempt: int) -> Book:
    """The book after one verdict on all ranks; `said` holds the events, oldest first."""
    book = replace(book, said=())
    case = book.open
    is_bad = found.verdict in (Verdict.FAILED, Verdict.UNKNOWN) and found.symptom is not None
    if case is None:
        return _opened(book, found, now_us=now_us, at=at, attempt=attempt) if is_bad else book
    if found.verdict is Verdict.OK and _is_left_behind(case, at):
        return _closed(book, case, now_us=now_us, step=at.step, outcome="resolved")
    if is_bad:
        return _changed(book, case, found, now_us=now_us)
    return book


def _is_left_behind(case: Case, at: Progress) -> bool:
    """Whether the job went on: only a step of all ranks shows it.

    That nobody waits any more does not: the peers of a rank that hangs stop waiting when their group's time is up.
    """
    if case.symptom in {Symptom.PROCESS_EXIT, Symptom.EXCEPTION}:
        return False
    return at.step > case.step or (at.step == 0 and at.launches_min > case.launches)


def _opened(book: Book, found: Assessment, *, now_us: int, at: Progress, attempt: int) -> Book:
    assert found.symptom is not None
    case = Case(
        id=f"{book.run}/{attempt}.{book.count + 1}",
        symptom=found.symptom,
        culprits=found.culprits,
        key=found.key,
        onset_us=min(found.onset_us or now_us, now_us),
        detected_us=now_us,
        step=at.step,
        launches=at.launches_max,
        evidence=found.evidence,
    )
    words = {
        "class_": str(class_of(found.symptom)),
        "symptom": str(found.symptom),
        "cause_status": str(CauseStatus.UNKNOWN),
        "role": str(Role.INITIATING),
        "ranks": found.culprits,
        "domain": _domain(book, case.symptom, found.culprits),
        "incident": case.id,
        "t_occurred_us": case.onset_us,
        "t_observed_us": now_us,
    }
    evidence = {"evidence": list(found.evidence), "signature": case.signature}
    return replace(
        book,
        count=book.count + 1,
        open=case,
        said=(
            Said("incident.open", {**words, "body": {**evidence, "observed_only": True}}),
            Said(
                "detect",
                {**words, "detect_us": now_us - case.onset_us, "body": {"evidence": evidence["evidence"]}},
            ),
        ),
    )  # fmt: skip


def diagnosed(book: Book, groups: Sequence[StackGroup], *, asked: int, now_us: int) -> Book:
    """The book after the stacks came: who is at fault, and who stands where. `asked` processes were to be dumped."""
    case = book.open
    if case is None:
        return replace(book, said=())
    outliers = outlier_ranks(groups)
    # Where a group broke, the rank that stands apart is as likely the next victim.
    named = case.culprits or (() if case.symptom is Symptom.GROUP_ERROR else outliers)
    body = {
        "culprits": list(case.culprits),
        "stack_groups": [group.to_plain() for group in groups],
        "outliers": list(outliers),
        "dumped": sum(len(group.pids) for group in groups),
        "asked": asked,
    }
    said = Said(
        "diagnose",
        {
            "ranks": named,
            "domain": _domain(book, case.symptom, named),
            "incident": case.id,
            "t_occurred_us": now_us,
            "t_observed_us": now_us,
            "diagnose_us": now_us - case.detected_us,
            "body": body,
        },
    )
    return replace(book, open=replace(case, diagnosed_us=now_us), said=(said,))


def _changed(book: Book, case: Case, found: Assessment, *, now_us: int) -> Book:
    """A later verdict of the same incident: a name where there was none, or what it led to."""
    mark = f"{found.symptom}:{found.culprits}"
    if mark in case.cascade or (found.symptom, found.culprits) == (case.symptom, case.culprits):
        return book
    is_name = found.symptom is case.symptom and found.culprits and not case.culprits
    after = replace(case, cascade=(*case.cascade, mark))
    if is_name:
        after = replace(after, culprits=found.culprits, evidence=found.evidence)
    said = Said(
        "diagnose" if is_name else "observation",
        {
            "role": str(Role.INITIATING if is_name else Role.CASCADE),
            "ranks": found.culprits,
            "domain": _domain(book, case.symptom, found.culprits),
            "incident": case.id,
            "t_occurred_us": now_us,
            "t_observed_us": now_us,
            # The incident keeps the symptom that opened it: what came of it stands in the body.
            "body": {
                "evidence": list(found.evidence),
                "culprits": list(found.culprits),
                "seen": str(found.symptom),
            },
        },
    )
    return replace(book, open=after, said=(said,))


def close(book: Book, *, now_us: int, step: int, outcome: str, **body: Any) -> Book:
    """The book after the open incident ended in this way; unchanged when none is open."""
    if book.open is None:
        return replace(book, said=())
    return _closed(book, book.open, now_us=now_us, step=step, outcome=outcome, **body)


def _closed(book: Book, case: Case, *, now_us: int, step: int, outcome: str, **body: Any) -> Book:
    # Nothing is rolled back from outside: what is lost is for the job to say, unless it simply went on.
    lost = {"lost_steps": 0} if outcome == "resolved" else {}
    said = Said(
        "incident.close",
        {
            "ranks": case.culprits,
            "incident": case.id,
            "t_occurred_us": now_us,
            "t_observed_us": now_us,
            "detect_us": case.detected_us - case.onset_us,
            "diagnose_us": None if case.diagnosed_us is None else case.diagnosed_us - case.detected_us,
            "body": {"outcome": outcome, "resumed_step": step, "blast_radius": book.world, **lost, **body},
        },
    )  # fmt: skip
    return replace(book, open=None, said=(said,))


def _domain(book: Book, symptom: Symptom, ranks: Sequence[int]) -> list[dict[str, str]]:
    if symptom is Symptom.GROUP_ERROR and not ranks:
        return []  # the host on which it was heard of is no more at fault than any other
    return [
        *({"kind": str(DomainKind.RANK), "id": str(rank)} for rank in ranks),
        {"kind": str(DomainKind.HOST), "id": book.host},
    ]
