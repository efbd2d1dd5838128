"""Incidents in a report: the answer at the top, and one card each.

The same for every workload: what an incident is, is the ledger's business (`ledger.incident`). The tables that
count incidents are in `stops_part.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lastgood.base.figures import DEVICE_TIME, measured
from lastgood.contract.taxonomy import CountedClass, Symptom
from lastgood.evidence.report import (
    Check,
    FigureRow,
    Headline,
    IncidentCard,
    Moment,
    Note,
    Verification,
)
from lastgood.ledger.incident import Incident, is_accepted

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

SOURCE: Final = "events of the incident"
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
    good = sum(_is_closed_well(i) for i in faults)
    states = {check.state for check in checks}
    state = "not_held" if "not_held" in states else "unknown" if "unknown" in states else "held"
    if good < count:
        sentence = f"{good} of {count} {noun} {'was' if 1 in (good, count) else 'were'} detected, contained, recovered and verified; {_rest(faults, drill)}."
        return Headline(state=state, sentence=sentence, checks=checks)
    close = sum(i.verification is not None and i.verification.result != "equal" for i in faults)
    how = "bit for bit" if not close else f"{close} of them within tolerance"
    subject = {1: f"The one {noun} was", 2: f"Both {noun} were"}.get(
        count, f"All {count} {noun} were"
    )
    return Headline(
        state=state,
        sentence=f"{subject} detected, contained, recovered and verified, {how}.",
        checks=checks,
    )


def _rest(faults: Sequence[Incident], drill: Drill) -> str:
    """What became of those that were not closed well."""
    still_open = sum(i.is_open for i in faults)
    escalated = sum(i.outcome == "escalated" for i in faults)
    unverified = sum(
        not i.is_open and i.outcome != "escalated" and not _is_closed_well(i) for i in faults
    )
    parts = [
        f"{still_open} {'is' if still_open == 1 else 'are'} still open" if still_open else "",
        f"{escalated} escalated" if escalated else "",
        f"{unverified} closed without an accepted verification" if unverified else "",
        f"{len(drill.missed)} went undetected" if drill.missed else "",
    ]
    return ", ".join(part for part in parts if part)


def _is_closed_well(incident: Incident) -> bool:
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


def incident_cards(
    incidents: Sequence[Incident], *, drill: Drill, as_of_us: int
) -> tuple[IncidentCard, ...]:
    """One card per incident in order of onset, numbered as on the wall-time strip."""
    return tuple(
        _card(number, incident, drill, as_of_us)
        for number, incident in enumerate(incidents, start=1)
    )


def _card(number: int, incident: Incident, drill: Drill, as_of_us: int) -> IncidentCard:
    check = incident.verification
    return IncidentCard(
        number=number,
        id=incident.id,
        title=title_of(incident),
        is_injected=drill.covers(incident),
        facts=_facts(incident, drill.injections.get(incident.id)),
        moments=_moments(incident),
        figures=_figures(incident, drill.injections.get(incident.id), as_of_us),
        verification=Verification(
            test=check.test, result=check.result, evidence=check.evidence or ""
        )
        if check
        else None,
        outcome=incident.outcome or ("still open" if incident.is_open else "closed"),
        evidence=incident.notes,
        notes=_notes(incident),
    )


def title_of(incident: Incident) -> str:
    """What was seen, in one plain sentence."""
    if incident.is_planned and incident.symptom is None:
        return "Planned stop"
    if incident.id.rpartition("/")[2].startswith("interruption-"):
        return "The supervisor ended"
    who = _ranks_words(incident.ranks) if incident.ranks else "a rank"
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


def _ranks_words(ranks: Sequence[int]) -> str:
    """`rank 0`, because a 0 alone reads as none; `ranks 0-2, 5`; `none named`."""
    noun = {0: "", 1: "rank "}.get(len(set(ranks)), "ranks ")
    return noun + ranks_text(ranks)


def _facts(incident: Incident, injection: Injection | None) -> tuple[tuple[str, str], ...]:
    shared = [f"{d.kind} {d.id}" for d in incident.domain if d.kind != "rank"]
    by = ", ".join(f"{d.kind} {d.id}" for d in incident.correlated_by)
    status = incident.cause_status or "unknown"
    is_known = incident.cause is not None and incident.cause != "unknown"
    cause = f"{incident.cause} ({status})" if is_known else "not known"
    injected: tuple[tuple[str, str], ...] = ()
    if injection is not None:
        injected = (("Injected fault", injection.fault),)
        if injection.is_culprit_right is not None:
            injected += (("Right rank named", "yes" if injection.is_culprit_right else "no"),)
    return (
        *injected,
        ("Class", CLASS_TITLES.get(incident.class_ or "", incident.class_ or "not stated")),
        ("Symptom", (incident.symptom or "not stated").replace("_", " ")),
        ("Cause", cause),
        ("Ranks at fault", _ranks_words(incident.ranks)),
        ("Fault domain", ", ".join(shared) or "not stated"),
        ("Correlated", f"yes, by {by}" if incident.correlated else "no"),
    )


def _moments(incident: Incident) -> tuple[Moment, ...]:
    begin_us = incident.onset_us
    stamps = (
        ("onset", begin_us),
        ("detect", incident.detected_us),
        ("diagnose", incident.diagnosed_us),
        ("isolate", incident.isolated_us),
        ("restore", incident.restored_us),
        ("verify", incident.verified_us),
        ("close", incident.closed_us),
    )
    return tuple(
        Moment(
            name=name,
            at_us=at_us,
            since_onset_us=None if at_us is None or begin_us is None else at_us - begin_us,
            # A restore that failed goes back to diagnosis: the ledger gives the last of each.
            detail="last of several"
            if at_us is not None and _is_repeated(stamps, name, at_us)
            else "",
        )
        for name, at_us in stamps
    )


def _is_repeated(stamps: Sequence[tuple[str, int | None]], name: str, at_us: int) -> bool:
    """True when something that should follow lies before it."""
    names = [stamp[0] for stamp in stamps]
    following = stamps[names.index(name) + 1 :]
    return any(other_us is not None and other_us < at_us for _, other_us in following)


def _figures(
    incident: Incident, injection: Injection | None, as_of_us: int
) -> tuple[FigureRow, ...]:
    since_us = None
    if injection and injection.at_us is not None and incident.detected_us is not None:
        since_us = incident.detected_us - injection.at_us
    injected = (("Detected after the injection", "detection after injection", since_us, "us"),)
    rows = (
        ("Detection", "detection", incident.detect_us, "us"),
        *(injected if injection is not None else ()),
        ("Diagnosis", "diagnosis", incident.diagnose_us, "us"),
        ("Isolation", "isolation", incident.isolate_us, "us"),
        ("Recovery", "recovery", incident.recover_us, "us"),
        ("Verification", "verification", incident.verify_us, "us"),
        ("Blast radius", "blast radius", incident.blast_radius, "ranks"),
        ("Lost steps", "lost steps", incident.lost_steps, ""),
        ("Lost device time", "lost device time", incident.lost_device_us, DEVICE_TIME),
        ("Age of the restored state", "checkpoint age", incident.checkpoint_age_us, "us"),
        ("First divergent step", "first divergent step", incident.first_divergent_step, ""),
    )
    return tuple(
        FigureRow(label=label, figure=measured(name, value, unit, source=SOURCE, as_of_us=as_of_us))
        for label, name, value, unit in rows
    )


def _notes(incident: Incident) -> tuple[Note, ...]:
    if incident.is_open:
        return (
            Note(
                text="No record closes this incident: its times are lower bounds.", level="warning"
            ),
        )
    if incident.is_planned or _is_closed_well(incident):
        return ()
    return (
        Note(
            text="Closed without an accepted verification of the restored state.", level="warning"
        ),
    )
