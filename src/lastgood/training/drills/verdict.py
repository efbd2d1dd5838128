"""Expected beside found, line by line, each with the event that shows it. Reads records and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.base.units import format_duration
from lastgood.ledger.event import Event
from lastgood.ledger.incident import Incident, fold_incidents, is_accepted
from lastgood.training.drills.drill import Drill, Outcome, Seen

EXIT_CODE = {Outcome.RECOVERED: 0, Outcome.FINISHED: 0, Outcome.ESCALATED: 93, Outcome.REFUSED: 3}
_NOTHING = "nothing detected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One expectation with what the records say."""

    what: str
    expected: str
    found: str
    has_held: bool
    event: str | None = None
    """Kind and id of the event that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One drill with all its lines."""

    drill: str
    group: str
    title: str
    owner: str
    run: str
    folder: str
    """Where the evidence of its job lies."""
    lines: tuple[Line, ...]
    detected_us: int | None = None
    """From the injection to the detection."""
    recovered_us: int | None = None
    """From the injection until new steps were allowed again, verification included."""
    lost_steps: int | None = None
    incidents: tuple[str, ...] = ()
    load: str = ""
    """How busy the machine was when the job ended, such as `1.9 on 2 processors`."""
    asked: str = ""
    """Digest of the drill as the catalogue had it and of the contract: an answer holds for this question alone."""

    @property
    def has_held(self) -> bool:
        """Every line held."""
        return bool(self.lines) and all(line.has_held for line in self.lines)

    @property
    def broken(self) -> tuple[Line, ...]:
        """The lines that did not hold."""
        return tuple(line for line in self.lines if not line.has_held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Everything that a job left behind, by whoever wrote it."""

    run: str
    folder: str
    events: Sequence[Event]
    """Of the ledger."""
    injected_us: Mapping[str, int]
    """Fault -> wall time, from the logs of the injector and of the ranks."""
    not_injected: Mapping[str, str]
    """Fault -> why not."""
    exit_code: int | None
    """Of the last start; None when the job had to be killed."""
    errors: str = ""
    """What the job said on standard error."""
    is_bitwise_equal: bool | None = None
    """None when the job wrote no final weights."""
    unread: str | None = None
    """Why the ledger cannot be read."""
    load: str = ""
    last_words: str = ""
    """The last line that a worker wrote, when the job ended other than well."""


def judge_job(
    drills: Sequence[Drill], records: Records, owners: Mapping[str, str]
) -> tuple[Verdict, ...]:
    """The verdict of every drill of a job. An incident belongs to the last drill whose first fault came before it."""
    begins = [_begin_us(drill, records) for drill in drills]
    verdicts = []
    for number, drill in enumerate(drills):
        later = [at for at in begins[number + 1 :] if at is not None]
        # What happens before any fault counts against the first drill: nobody else asked for it.
        since = 0 if number == 0 else begins[number]
        verdicts.append(
            _judge(
                drill,
                records,
                since_us=since,
                until_us=min(later, default=None),
                owner=owners[drill.name],
            )
        )
    return tuple(verdicts)


def fault_id(drill: Drill, fault: str) -> str:
    """The name of a fault on the tape of its job."""
    return f"{drill.name}/{fault}"


def _begin_us(drill: Drill, records: Records) -> int | None:
    times = [records.injected_us.get(fault_id(drill, fault.id)) for fault in drill.faults]
    return min((at for at in times if at is not None), default=None)


def _judge(
    drill: Drill, records: Records, *, since_us: int | None, until_us: int | None, owner: str
) -> Verdict:
    within = [
        event for event in records.events
        if since_us is not None and since_us <= _at(event) < (until_us or _at(event) + 1)
    ]  # fmt: skip
    incidents = [
        i for i in fold_incidents(records.events)
        if not i.is_planned and since_us is not None and since_us <= (i.detected_us or i.opened_us or 0)
        and (until_us is None or (i.detected_us or i.opened_us or 0) < until_us)
    ]  # fmt: skip
    begin_us = _begin_us(drill, records)
    first = incidents[0] if incidents else None
    lost = [i.lost_steps for i in incidents if i.lost_steps is not None]
    return Verdict(
        drill=drill.name,
        group=drill.group,
        title=drill.title,
        owner=owner,
        run=records.run,
        folder=records.folder,
        lines=tuple(_lines(drill, records, within, incidents)),
        detected_us=_since(begin_us, first.detected_us if first else None),
        recovered_us=_since(begin_us, incidents[-1].closed_us if incidents else None),
        lost_steps=sum(lost) if lost else None,
        incidents=tuple(i.id for i in incidents),
        load=records.load,
    )


def _at(event: Event) -> int:
    return event.t_observed_us or event.t_occurred_us or event.t_recorded_us or 0


def _since(begin_us: int | None, end_us: int | None) -> int | None:
    return None if begin_us is None or end_us is None or end_us < begin_us else end_us - begin_us


def _lines(
    drill: Drill, records: Records, events: Sequence[Event], incidents: Sequence[Incident]
) -> list[Line]:
    expect = drill.expect
    lines = _job(drill, records)
    if drill.faults:
        lines.append(_carried_out(drill, records))
    if records.unread is not None:
        lines.append(
            Line(what="ledger", expected="can be read", found=records.unread, has_held=False)
        )
    lines.append(_outcome(drill, records, events, incidents))
    first = incidents[0] if incidents else None
    opened = _reference(events, "incident.open", first)
    for what, wanted, found in (
        ("symptom", expect.symptom, first.symptom if first else None),
        ("class", expect.class_, first.class_ if first else None),
    ):
        if wanted is not None:
            lines.append(_equal(what, wanted, found or _NOTHING, event=opened))
    if expect.ranks is not None:
        named = tuple(sorted({rank for i in incidents for rank in i.ranks}))
        lines.append(_equal("culprit", _ranks(expect.ranks), _ranks(named), event=opened))
    if expect.incidents is not None:
        lines.append(_equal("incidents", str(expect.incidents), str(len(incidents))))
    lines += _bounds(drill, records, events, incidents)
    lines += [_seen(seen, events, is_wanted=True) for seen in expect.seen]
    lines += [_seen(seen, events, is_wanted=False) for seen in expect.never]
    return [*lines, *_endings(drill, records, events)]


def _job(drill: Drill, records: Records) -> list[Line]:
    """Said first when a job failed in a way that nobody asked for: every other line follows from it."""
    code = records.exit_code
    if code == _wanted_code(drill) or (code is not None and _wanted_code(drill) is None):
        return []
    how = "did not end in time" if code is None else f"ended with code {code}"
    said = records.errors.strip().rpartition("\n")[2]
    words = said if code is None and said else records.last_words or said
    found = f"it {how}" + (f": {words[:300]}" if words else "")
    return [Line(what="job", expected="it runs", found=found, has_held=False)]


def _carried_out(drill: Drill, records: Records) -> Line:
    missing = [
        f"{fault.id}: {records.not_injected.get(fault_id(drill, fault.id), 'never came')}"
        for fault in drill.faults
        if fault_id(drill, fault.id) not in records.injected_us
    ]
    count = len(drill.faults)
    return Line(
        what="faults carried out",
        expected=str(count),
        found="; ".join([str(count - len(missing)), *missing]),
        has_held=not missing,
    )


def _outcome(
    drill: Drill, records: Records, events: Sequence[Event], incidents: Sequence[Incident]
) -> Line:
    outcome = drill.expect.outcome
    last = incidents[-1] if incidents else None
    closed = _reference(events, "incident.close", last)
    found, has_held = _NOTHING if last is None else last.outcome or "still open", False
    match outcome:
        case Outcome.RECOVERED:
            unproved = [
                i for i in incidents
                if i.outcome != "recovered" or i.verification is None or not is_accepted(i.verification)
            ]  # fmt: skip
            has_held = bool(incidents) and not unproved
            if has_held and last is not None and last.verification is not None:
                found = f"recovered, replay {last.verification.result.replace('_', ' ')}"
        case Outcome.ESCALATED:
            escalated = [e for e in events if e.kind == "escalate"]
            has_held = bool(escalated) or (last is not None and last.outcome == "escalated")
            found = "escalated" if has_held else found
            closed = closed or (f"escalate {escalated[0].id}" if escalated else None)
        case Outcome.FINISHED:
            has_held = not incidents
            found = "finished" if has_held else f"{len(incidents)} incidents"
        case Outcome.OBSERVED:
            touched = [e for e in events if e.kind in {"isolate", "restore.begin", "restore"}]
            has_held = bool(incidents) and not touched
            found = f"touched: {touched[0].kind}" if touched else "observed" if incidents else found
        case Outcome.REFUSED:
            has_held = records.exit_code not in {None, 0}
            found = "refused" if has_held else "not refused"
    return Line(what="outcome", expected=str(outcome), found=found, has_held=has_held, event=closed)


def _bounds(
    drill: Drill, records: Records, events: Sequence[Event], incidents: Sequence[Incident]
) -> list[Line]:
    expect, lines = drill.expect, []
    if expect.detected_within_us is not None:
        took = _since(_begin_us(drill, records), incidents[0].detected_us if incidents else None)
        lines.append(
            Line(
                what="detected within",
                expected=format_duration(expect.detected_within_us),
                found=_NOTHING if took is None else format_duration(took),
                has_held=took is not None and took <= expect.detected_within_us,
                event=_reference(events, "detect", incidents[0] if incidents else None),
            )
        )
    if expect.lost_steps_max is not None:
        known = [i.lost_steps for i in incidents]
        lost = None if not known or None in known else sum(n or 0 for n in known)
        lines.append(
            Line(
                what="lost steps",
                expected=f"at most {expect.lost_steps_max}",
                found="unknown" if lost is None else str(lost),
                has_held=lost is not None and lost <= expect.lost_steps_max,
                event=_reference(events, "incident.close", incidents[-1] if incidents else None),
            )
        )
    return lines


def _seen(seen: Seen, events: Sequence[Event], *, is_wanted: bool) -> Line:
    found = next((e for e in events if _matches(seen, e)), None)
    words = seen.words or " ".join([seen.kind, *(f"{key}={value}" for key, value in seen.body)])
    return Line(
        what="on record" if is_wanted else "not on record",
        expected=words,
        found="yes" if found is not None else "no",
        has_held=(found is not None) == is_wanted,
        event=None if found is None else f"{found.kind} {found.id}",
    )


def _matches(seen: Seen, event: Event) -> bool:
    if event.kind != seen.kind:
        return False
    return all(_agrees(wanted, event.body.get(key)) for key, wanted in seen.body)


def _agrees(wanted: Any, found: Any) -> bool:
    if isinstance(found, list) and not isinstance(wanted, list):
        return any(_agrees(wanted, item) for item in found)
    if isinstance(wanted, str) and isinstance(found, str):
        return wanted in found
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(_agrees(value, found.get(key)) for key, value in wanted.items())
    return bool(wanted == found)


def _endings(drill: Drill, records: Records, events: Sequence[Event]) -> list[Line]:
    expect, wanted = drill.expect, _wanted_code(drill)
    lines = []
    if wanted is not None:
        found = "none" if records.exit_code is None else str(records.exit_code)
        ended = next((f"run.end {e.id}" for e in events if e.kind == "run.end"), None)
        lines.append(_equal("exit code", str(wanted), found, event=ended))
    is_asked = expect.is_bitwise_equal
    if is_asked is None:
        is_asked = wanted == 0 and expect.outcome in {Outcome.RECOVERED, Outcome.FINISHED}
    if is_asked:
        equal = {True: "equal", False: "different", None: "no final weights"}
        lines.append(
            _equal("final weights and the twin's", "equal", equal[records.is_bitwise_equal])
        )
    if expect.says is not None:
        has_said = expect.says in records.errors
        lines.append(
            Line(
                what="says",
                expected=expect.says,
                found="said" if has_said else (records.errors.strip()[-200:] or "nothing"),
                has_held=has_said,
            )
        )
    return lines


def _wanted_code(drill: Drill) -> int | None:
    expect = drill.expect
    return expect.exit_code if expect.exit_code is not None else EXIT_CODE.get(expect.outcome)


def _equal(what: str, expected: str, found: str, *, event: str | None = None) -> Line:
    return Line(what=what, expected=expected, found=found, has_held=expected == found, event=event)


def _ranks(ranks: tuple[int, ...]) -> str:
    return "nobody" if not ranks else "rank " + ", ".join(map(str, ranks))


def _reference(events: Sequence[Event], kind: str, incident: Incident | None) -> str | None:
    if incident is None:
        return None
    mine = set(incident.event_ids)
    return next((f"{e.kind} {e.id}" for e in events if e.kind == kind and e.id in mine), None)
