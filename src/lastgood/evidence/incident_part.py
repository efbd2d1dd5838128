"""Incidents in a report: the answer at the top, and how each of them is called.

The same for every workload: what an incident is, is the ledger's business (`ledger.incident`). Its card is in
`incident_card.py`, the tables that count incidents are in `stops_part.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lastgood.contract.taxonomy import CountedClass, DomainKind, Symptom
from lastgood.evidence.late_verdicts import FOUND_AFTERWARDS, late_words
from lastgood.evidence.report import Check, Headline
from lastgood.ledger.incident import Incident, is_accepted
from lastgood.ledger.walltime import WallState, WallTime
from lastgood.recovery.verification import RUN_TWICE

CLASS_TITLES: Final[dict[str, str]] = {
    CountedClass.PLANNED: "planned",
    CountedClass.FAIL_STOP: "fail-stop",
    CountedClass.FAIL_SLOW: "fail-slow",
    CountedClass.SDC: "SDC",
    CountedClass.CORRELATED: "correlated",
}
SYMPTOM_TITLES: Final[dict[str, str]] = {
    Symptom.PROCESS_EXIT: "{who} ended",
    Symptom.EXCEPTION: "{who} raised an exception",
    Symptom.HANG: "{who} stopped moving",
    Symptom.GROUP_ERROR: "The process group broke at {who}",
    Symptom.SLOW: "{who} fell behind",
    Symptom.NONFINITE: "{who} produced a value that is not finite",
    Symptom.NUMERIC_JUMP: "The numbers jumped",
    Symptom.REPLICA_DIVERGENCE: "{who} diverged from its replicas",
    Symptom.SNAPSHOT_MISMATCH: "A snapshot of {who} did not hash to its digest",
    Symptom.REPLAY_MISMATCH: "A replayed step gave another state",
    Symptom.PREEMPTION_NOTICE: "Notice of preemption",
    Symptom.OUT_OF_MEMORY: "{who} ran out of memory",
    Symptom.CHECKPOINT_FAILED: "A checkpoint could not be written",
}
"""What was seen, as a sentence; any other symptom is printed by its own name."""

STOPPED: Final = "the run ended with it"
"""The outcome of a planned stop behind which nothing came."""
INJECTED: Final = "the faults were injected, so this says nothing about the field"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault on purpose, from the log of whoever caused it, which no detector could read."""

    fault: str
    at_us: int | None = None
    """Wall time at which it was carried out: the true onset."""
    is_culprit_right: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What the records say about faults on purpose."""

    is_injected: bool = False
    """The run was broken on purpose, so an incident counts as injected unless its records deny it."""
    missed: tuple[str, ...] = ()
    """Injections on record that no incident belongs to: what the detectors did not see."""

    injections: Mapping[str, Injection] = field(default_factory=dict)
    """Incident -> what caused it, where somebody recorded it afterwards."""

    def covers(self, incident: Incident) -> bool:
        """True when this incident is the result of an injection."""
        return incident.injected or (self.is_injected and incident.injected is None)


def headline(
    incidents: Sequence[Incident], *, drill: Drill, ending: str, extra: Sequence[Check] = ()
) -> Headline:
    """Was every fault detected, contained, recovered and verified? `ending` says how the run stands."""
    faults = [i for i in incidents if not i.is_planned]
    count = len(faults) + len(drill.missed)
    noun = ("injected fault" if drill.is_injected else "fault") + ("s" if count != 1 else "")
    if not count:
        return Headline(
            state="nothing", sentence=f"No fault was recorded; {ending}.", checks=tuple(extra)
        )
    checks = (*_checks(faults, drill), *extra)
    good = sum(is_closed_well(i) for i in faults)
    states = {check.state for check in checks}
    state = "not_held" if "not_held" in states else "unknown" if "unknown" in states else "held"
    if good < count:
        sentence = f"{good} of {count} {noun} {'was' if 1 in (good, count) else 'were'} detected, contained, recovered and verified; {_rest(faults, drill)}."
        return Headline(state=state, sentence=sentence, checks=checks)
    close = sum(i.verification is not None and i.verification.result != "equal" for i in faults)
    how = "bit for bit" if not close else f"{close} of them within tolerance"
    how += _second_runs(faults)
    subject = {1: f"The one {noun} was", 2: f"Both {noun} were"}.get(
        count, f"All {count} {noun} were"
    )
    return Headline(
        state=state,
        sentence=f"{subject} detected, contained, recovered and verified, {how}.",
        checks=checks,
    )


def _second_runs(faults: Sequence[Incident]) -> str:
    """Where nothing published was reproduced: the step behind the restored state was run twice, which says less."""
    count = sum(
        i.verification is not None and i.verification.test.startswith(RUN_TWICE) for i in faults
    )
    if not count:
        return ""
    return f"{'' if count == len(faults) else f', {count} of them'} between two runs of one step"


def _rest(faults: Sequence[Incident], drill: Drill) -> str:
    """What became of those that were not closed well."""
    still_open = sum(i.is_open for i in faults)
    escalated = sum(i.outcome == "escalated" for i in faults)
    unverified = sum(
        not i.is_open and i.outcome not in {"escalated", FOUND_AFTERWARDS} and not is_closed_well(i)
        for i in faults
    )
    parts = [
        late_words(faults),
        f"{still_open} {'is' if still_open == 1 else 'are'} still open" if still_open else "",
        f"{escalated} {'was' if escalated == 1 else 'were'} handed to a person"
        if escalated
        else "",
        f"{unverified} closed without an accepted verification" if unverified else "",
        f"{len(drill.missed)} went undetected" if drill.missed else "",
    ]
    return ", ".join(part for part in parts if part)


def is_closed_well(incident: Incident) -> bool:
    """Closed, recovered, and its restored state accepted by a test; nothing less counts."""
    return (
        incident.closed_us is not None
        and incident.outcome == "recovered"
        and None
        not in (
            incident.detected_us,
            incident.isolated_us,
            incident.restored_us,
            incident.verified_us,
        )
        and incident.verification is not None
        and is_accepted(incident.verification)
    )


def _checks(faults: Sequence[Incident], drill: Drill) -> list[Check]:
    count = len(faults)
    equal = sum(i.verification is not None and i.verification.result == "equal" for i in faults)
    verified = sum(i.verified_us is not None for i in faults)
    how = (
        ""
        if not verified
        else ", each bit for bit"
        if equal == verified
        else f", {equal} of them bit for bit"
    )
    injected = f"{count} of {count + len(drill.missed)}"
    seen = sum(i.detected_us is not None for i in faults)
    return [
        Check(
            question="Detected",
            state="not_held" if drill.missed else _state(seen, count, faults),
            detail=injected if drill.missed else f"{seen} of {count}",
        ),
        _counted("Contained", sum(i.isolated_us is not None for i in faults), count, faults),
        _counted(
            "Recovered",
            sum(i.restored_us is not None and i.outcome != "escalated" for i in faults),
            count,
            faults,
        ),
        Check(
            question="Verified",
            state=_state(verified, count, faults),
            detail=f"{verified} of {count}{how}",
        ),
    ]


def _counted(question: str, good: int, count: int, faults: Sequence[Incident]) -> Check:
    return Check(question=question, state=_state(good, count, faults), detail=f"{good} of {count}")


def _state(good: int, count: int, faults: Sequence[Incident]) -> str:
    """What is still open is unknown, not lost."""
    if good == count:
        return "held"
    return "unknown" if good + sum(i.is_open for i in faults) >= count else "not_held"


def known(incidents: Sequence[Incident], take: Callable[[Incident], int | None]) -> list[int]:
    """The values that are on record, without the open ones: an unfinished duration is only a lower bound."""
    return [value for i in incidents if (value := take(i)) is not None]


def counted_incidents(
    incidents: Sequence[Incident], counts: Sequence[CountedClass]
) -> list[Incident]:
    """The incidents that the contract counts as failures; a correlated one counts when that view is named."""
    names = {str(name) for name in counts}
    return [
        i
        for i in incidents
        if i.class_ in names or (i.correlated and CountedClass.CORRELATED in names)
    ]


def settled(incidents: Sequence[Incident], wall: WallTime) -> tuple[Incident, ...]:
    """A planned stop that the run ended in is over: it lasts as long as its stretch of wall time."""
    ends = {s.start_us: s.end_us for s in wall.spans if s.state is WallState.PLANNED}
    return tuple(
        replace(i, closed_us=ends[i.onset_us or 0], outcome=STOPPED)
        if i.is_planned and i.is_open and wall.has_end and (i.onset_us or 0) in ends
        else i
        for i in incidents
    )


def title_of(incident: Incident, *, has_many_hosts: bool = False) -> str:
    """What was seen, in one plain sentence; of which host, where there is more than one."""
    if incident.is_planned and incident.symptom is None:
        return "Planned stop"
    if incident.id.rpartition("/")[2].startswith("interruption-"):
        return "The supervisor ended"
    if incident.symptom == Symptom.GROUP_ERROR and not incident.ranks:
        return "The process group broke, no rank named"
    who = ranks_words(incident.ranks) if incident.ranks else "a rank"
    hosts = [d.id for d in incident.domain if d.kind == DomainKind.HOST]
    if has_many_hosts and hosts:
        who += f" on {', '.join(hosts)}"
    words = SYMPTOM_TITLES.get(incident.symptom or "")
    if words is None:
        words = (incident.symptom or "Unknown symptom").replace("_", " ") + (
            " at {who}" if incident.ranks else ""
        )
    text = words.replace("{who}", who)  # never format(): the symptom may come from anywhere
    return text[:1].upper() + text[1:]


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks with runs folded: `0-2, 5`; `none named` when there are none."""
    if not ranks:
        return "none named"
    folded: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if folded and rank == folded[-1][1] + 1:
            folded[-1][1] = rank
        else:
            folded.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in folded)


def ranks_words(ranks: Sequence[int]) -> str:
    """`rank 0`, because a 0 alone reads as none; `ranks 0-2, 5`; `none named`."""
    noun = {0: "", 1: "rank "}.get(len(set(ranks)), "ranks ")
    return noun + ranks_text(ranks)
