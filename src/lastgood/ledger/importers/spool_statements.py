"""What only the spools of all hosts together can tell: who hung where nobody was named, and who never said its end.

Nothing is stated that a later line could contradict: every host of the attempt has to be here, and has ended, or has
gone on behind the moment, or is quiet for the grace period. A quiet host is named under an id that the line of its end
supersedes, so that a spool that was copied too early accuses nobody for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lastgood.contract.taxonomy import EventKind, Role, Symptom, class_of
from lastgood.ledger.event import Event, Links, time_of
from lastgood.ledger.importers.importer import Context
from lastgood.ledger.importers.source import Item, Row
from lastgood.ledger.importers.spool_jobs import (
    GRACE_US,
    REACH_US,
    Attempt,
    Job,
    Span,
    Spools,
    Wait,
)

_GRACE = f"{GRACE_US // 60_000_000} min"


def silence_id(context: Context, row: Row, job: Job, ranks: Iterable[int]) -> str | None:
    """The id of the statement that the host of these ranks fell silent; None without ranks."""
    first = min(ranks, default=None)
    if first is None:
        return None
    return context.event(EventKind.INCIDENT_OPEN, row=row, identity=("silent", *job, first), t_us=None).id  # fmt: skip


class Statements:
    """Made once all files of an import are read."""

    def __init__(self, context: Context, spools: Spools) -> None:
        self._context, self._spools = context, spools
        self._row = Item(0, b"", None)
        self._silent: set[tuple[Job, str]] = set()

    def all(self) -> Iterator[Event]:
        """Of every attempt."""
        for attempt in self._spools.attempts:
            yield from self._ended(attempt)
            yield from self._hangs(attempt)
            yield from self._restarted(attempt)

    def _restarted(self, attempt: Attempt) -> Iterator[Event]:
        """What ended a start of the job did not end the job when another start followed: its own watcher cannot know."""
        later = self._spools.next_of(attempt)
        if later is None or later.began_us is None:
            return
        for name in sorted(attempt.hosts):
            for event in self._spools.kept(attempt, name):
                if event.kind != EventKind.INCIDENT_CLOSE or event.body.get("outcome") != "ended":
                    continue
                yield self._context.event(
                    EventKind.CORRECTION,
                    row=self._row,
                    identity=("restarted", *attempt.job, event.incident or event.id),
                    t_us=max(time_of(event), later.began_us),
                    incident=event.incident,
                    run=attempt.job[0],
                    attempt=attempt.job[1] or None,
                    body={"outcome": "restarted", "text": f"attempt {later.job[1]} of the run followed"},
                )  # fmt: skip

    # --- ranks that ended of another host's end ------------------------------------------------------

    def _ended(self, attempt: Attempt) -> Iterator[Event]:
        """Ranks ended because another host's did, and a host of theirs never said how it ended: it is the one."""
        spools = self._spools
        victims = [(spools.at_us(attempt, name, t), t - spools.off_us(attempt, name)) for name, host in attempt.hosts.items() for t in host.victims_us]  # fmt: skip
        silent = sorted(n for n, h in attempt.hosts.items() if h.ranks and not h.is_ended)
        if not victims or not silent:
            return
        moment_us, own_us = min(victims)
        around = Span(moment_us - REACH_US, moment_us + REACH_US)
        told = f"ranks of {_of(attempt)} ended because another host's did"
        # A host that wrote on for the grace period behind it lives, or ended of something else.
        silent = [n for n in silent if not spools.is_past(attempt, n, moment_us)]
        if not silent or self._is_held(attempt, told, moment_us, around):
            return
        is_named = self._is_named(attempt, around)
        for name in silent:
            if is_named:
                yield self._taken_back(attempt, name, own_us)
                continue
            words = f"no word of the end of {name}, while ranks of other hosts ended of it"
            yield self._silence(attempt, name, own_us, Symptom.PROCESS_EXIT, words)

    # --- hosts that waited for each other ------------------------------------------------------------

    def _hangs(self, attempt: Attempt) -> Iterator[Event]:
        """Every silence in which hosts waited for each other and no host named a rank."""
        for waits, common in self._silences(attempt):
            hosts = {wait.host for wait in waits}
            told = f"{_of(attempt)}: {len(hosts)} hosts waited for each other"
            if len(hosts) < 2 or self._is_held(attempt, told, round(common.end_us), common):
                continue
            yield from self._hang(attempt, waits, common)

    def _silences(self, attempt: Attempt) -> list[tuple[list[Wait], Span]]:
        """Waits whose silences have a moment in common, and that moment."""
        found: list[tuple[list[Wait], Span]] = []
        for own, wait in sorted(self._waits(attempt)):
            before = found[-1] if found else None
            if before is None or not before[1].meets(own):
                found.append(([wait], own))
            elif wait.host not in {known.host for known in before[0]}:
                common = Span(max(before[1].begin_us, own.begin_us), min(before[1].end_us, own.end_us))  # fmt: skip
                found[-1] = ([*before[0], wait], common)
        return found

    def _waits(self, attempt: Attempt) -> Iterator[tuple[Span, Wait]]:
        for name, host in attempt.hosts.items():
            if not self._spools.clock(attempt, name).is_placed:
                continue
            for wait in host.waits:
                before_us = max((t for t in host.steps.values() if t <= wait.t_us), default=0)
                behind_us = min((t for t in host.steps.values() if t > wait.t_us), default=1 << 62)
                own = Span(max(before_us, wait.t_us - REACH_US), min(behind_us, wait.t_us + REACH_US))  # fmt: skip
                yield self._spools.span(attempt, name, own), wait

    def _hang(self, attempt: Attempt, waits: list[Wait], common: Span) -> Iterator[Event]:
        first = min(waits, key=lambda w: (self._spools.at_us(attempt, w.host, w.t_us), w.id))
        t_us = first.t_us - self._spools.off_us(attempt, first.host)
        speechless = sorted(n for n, h in attempt.hosts.items() if h.ranks and n not in {w.host for w in waits})  # fmt: skip
        quiet = [n for n in speechless if not self._spools.is_past(attempt, n, round(common.end_us))]  # fmt: skip
        fresh = [name for name in quiet if (attempt.job, name) not in self._silent]
        if self._is_named(attempt, common):
            for name in fresh:
                yield self._taken_back(attempt, name, t_us)
            return
        words = f"{len(waits)} hosts waited for each other"
        if speechless:
            words = f"{len(waits)} of {len(attempt.hosts)} hosts waited; {', '.join(speechless)} said nothing of it"
            if quiet:
                for name in fresh:
                    yield self._silence(attempt, name, t_us, Symptom.HANG, words)
                return
            named: tuple[int, ...] = ()
        else:
            counts = {rank: n for wait in waits for rank, n in wait.launches.items()}
            fewest = min(counts.values(), default=0)
            behind = tuple(sorted(r for r, n in counts.items() if n == fewest))
            named = behind if len(behind) < len(counts) else ()
            words += f"; fewest collectives entered: {fewest}, by rank {', '.join(map(str, behind))}"  # fmt: skip
        identity = ("hang", *attempt.job, min(wait.id for wait in waits))
        yield self._open(
            attempt, identity, identity, t_us, Symptom.HANG, named, [("rank", str(r)) for r in named],
            [words, *self._of_clocks(attempt, {wait.host for wait in waits})],
        )  # fmt: skip

    def _of_clocks(self, attempt: Attempt, names: set[str]) -> list[str]:
        unknown = sorted(n for n in names if not self._spools.clock(attempt, n).is_compared)
        if not unknown or attempt.speaker is None:
            return []
        return [f"the clocks of {', '.join(unknown)} were taken as they are: no step was seen to end by both"]  # fmt: skip

    # --- what is held back ---------------------------------------------------------------------------

    def _is_named(self, attempt: Attempt, around: Span) -> bool:
        """True when a host opened an incident about that time."""
        return any(
            self._spools.span(attempt, name, own).meets(around)
            for name, host in attempt.hosts.items()
            if self._spools.clock(attempt, name).is_placed
            for own in host.opened.values()
        )

    def _is_held(self, attempt: Attempt, told: str, moment_us: int, around: Span) -> bool:
        """True, with a note that says why, where nothing may be stated (yet)."""
        why = self._lacking(attempt, moment_us) or self._unsure(attempt, around)
        if why is not None and not self._is_named(attempt, around):
            self._context.note(f"{told}; who was the cause is not stated: {why}")
        return why is not None

    def _lacking(self, attempt: Attempt, moment_us: int) -> str | None:
        """Which evidence is still to come."""
        missing = attempt.missing_ranks
        if missing is None:
            return "the spool of the host of rank 0 is not among these files; import all hosts together"  # fmt: skip
        if missing:
            return f"no spool of rank {_few(missing)} is among these files; import all hosts together"  # fmt: skip
        late = sorted(n for n, h in attempt.hosts.items() if h.ranks and not self._spools.is_told(attempt, n, moment_us))  # fmt: skip
        if late:
            return f"{', '.join(late)} has not ended, and was not quiet for {_GRACE}; import again later"  # fmt: skip
        return None

    def _unsure(self, attempt: Attempt, around: Span) -> str | None:
        """Whose words about a failure cannot be put beside the others in time."""
        for name, host in sorted(attempt.hosts.items()):
            clock, words = self._spools.clock(attempt, name), host.words
            if words and not clock.is_placed:
                return f"the clock of {name} is known to +-{clock.uncertain_us / 1e6:.0f} s only, more than the {REACH_US // 1_000_000} s within which words are matched"  # fmt: skip
            is_elsewhere = not any(self._spools.span(attempt, name, w).meets(around) for w in words)
            if words and not clock.is_compared and is_elsewhere:
                return f"{name} spoke of a failure at another time, and its clock could not be compared: no step was seen to end by it and the host of rank 0"  # fmt: skip
        return None

    # --- events --------------------------------------------------------------------------------------

    def _silence(
        self, attempt: Attempt, name: str, t_us: int, symptom: Symptom, words: str
    ) -> Event:
        """A host that fell silent; the line of its end takes it back."""
        self._silent.add((attempt.job, name))
        ranks = attempt.hosts[name].ranks
        return self._open(
            attempt, ("silent", *attempt.job, min(ranks)), ("silent", *attempt.job), t_us, symptom, ranks,
            [("host", name)], [words, *self._of_clocks(attempt, {name})],
        )  # fmt: skip

    def _open(
        self,
        attempt: Attempt,
        identity: tuple[Any, ...],
        incident: tuple[Any, ...],
        t_us: int,
        symptom: Symptom,
        ranks: tuple[int, ...],
        domain: list[tuple[str, str]],
        evidence: list[str],
    ) -> Event:
        # A synchronous job stops as a whole, whoever failed.
        radius = {} if attempt.world is None else {"blast_radius": attempt.world}
        return self._context.event(
            EventKind.INCIDENT_OPEN,
            row=self._row,
            identity=identity,
            t_us=t_us,
            observed_us=t_us,
            incident=self._context.incident_id(*incident),
            class_=str(class_of(symptom)),
            symptom=str(symptom),
            role=str(Role.INITIATING),
            cause_status="unknown",
            ranks=ranks,
            domain=domain,
            run=attempt.job[0],
            attempt=attempt.job[1] or None,
            body={"evidence": evidence, **radius},
        )

    def _taken_back(self, attempt: Attempt, name: str, t_us: int) -> Event:
        """A host named a rank of the same moment: that another fell silent is no failure of its own."""
        gone = silence_id(self._context, self._row, attempt.job, attempt.hosts[name].ranks)
        event = self._context.event(
            EventKind.CORRECTION,
            row=self._row,
            identity=("silent", *attempt.job, min(attempt.hosts[name].ranks)),
            t_us=t_us,
            run=attempt.job[0],
            attempt=attempt.job[1] or None,
            body={"text": f"the silence of {name} is not the failure: a host named a rank"},
        )
        return supersede(event, gone)


def supersede(event: Event, gone: str | None) -> Event:
    """The event, taking another one back."""
    incident = None if event.links is None else event.links.incident
    return msgspec.structs.replace(event, links=Links(incident=incident, supersedes=gone))


def _of(attempt: Attempt) -> str:
    return f"run {attempt.job[0]}, attempt {attempt.job[1]}"


def _few(numbers: list[int]) -> str:
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return ", ".join(map(str, numbers[:8])) + more
