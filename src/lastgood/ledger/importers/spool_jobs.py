"""What the spools of one import say, by attempt and host: words about silences, ends, and how clocks stand.

A host is known by what it wrote when its ranks attached, else by its folder. Times are kept in the clock of their host;
`Reading` puts them on the clock of the host of rank 0, with how sure that is.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from lastgood.base.clock import SystemClock
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, time_of

STEPS_MAX = 100_000
"""Newest step times kept for the comparison of two clocks, a host and attempt."""
REACH_US = 60_000_000
"""So far does a word about a silence reach before and behind itself, where no step bounds the silence."""
GRACE_US = 3_600_000_000
"""A spool without an end is over when it was quiet for so long: longer than process groups wait by default (30 min)."""
APART_US = 1_000_000
"""A clock that stands further off than this is set right in the ledger; closer ones stay as they are."""
KEPT_MAX = 100_000
"""Events kept until the offset of their clock is known."""
Job = tuple[str, int]
"""A run and an attempt."""


class Wait(NamedTuple):
    """One host's word that its ranks wait for another host."""

    id: str
    host: str
    t_us: int
    launches: dict[int, int]


class Span(NamedTuple):
    """A stretch of time; both ends belong to it."""

    begin_us: int
    end_us: float

    def meets(self, other: Span) -> bool:
        """True when both have a moment in common."""
        return self.begin_us <= other.end_us and other.begin_us <= self.end_us


class Clock(NamedTuple):
    """How far a host's clock stands from that of the host of rank 0. Without a common step nothing was compared."""

    offset_us: int = 0
    spread_us: int = 0
    uncertain_us: int = 0
    """Nine of ten common steps deviate from the offset by at most this."""
    steps: int = 0
    against: str = ""
    last_us: int = 0
    """When the newest common step ended, on the clock of the host of rank 0."""
    is_compared: bool = True

    @property
    def is_placed(self) -> bool:
        """False when the offset is less sure than a word reaches: then nothing can be matched by time."""
        return self.uncertain_us <= REACH_US


@dataclass
class Host:
    """What one host wrote in one attempt, in its own clock."""

    ranks: tuple[int, ...] = ()
    steps: dict[int, int] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    victims_us: list[int] = field(default_factory=list)
    opened: dict[str, Span] = field(default_factory=dict)
    is_ended: bool = False
    newest_us: int = 0

    @property
    def words(self) -> list[Span]:
        """When it spoke of failures, as wide as a word reaches."""
        at_us = [*(wait.t_us for wait in self.waits), *self.victims_us]
        return [*(Span(t - REACH_US, t + REACH_US) for t in at_us), *self.opened.values()]


@dataclass
class Attempt:
    """All hosts of one attempt."""

    job: Job
    hosts: dict[str, Host] = field(default_factory=dict)
    speaker: str | None = None
    """The host of rank 0."""
    world: int | None = None
    began_us: int | None = None
    """When the host of rank 0 said that it started, on its own clock."""

    @property
    def missing_ranks(self) -> list[int] | None:
        """Ranks of which no spool is here; None when nobody says how many there are."""
        if self.world is None:
            return None
        return sorted(set(range(self.world)) - {r for host in self.hosts.values() for r in host.ranks})  # fmt: skip


class Spools:
    """Everything of one import."""

    def __init__(self) -> None:
        self._attempts: dict[Job, Attempt] = {}
        self._names: dict[tuple[Job, str], str] = {}
        self._written_us: dict[str, int] = defaultdict(int)
        self._clocks: dict[tuple[Job, str], Clock | None] = {}
        self._now_us: int | None = None
        self._kept: dict[tuple[Job, str], list[Event]] = defaultdict(list)
        self.kept_count = 0
        """Events that were kept, and those that were too many."""

    def keep(self, job: Job, folder: str, event: Event) -> None:
        """An event as the ledger has it: its time may have to be set right."""
        self.kept_count += 1
        if self.kept_count <= KEPT_MAX:
            self._kept[job, folder].append(event)

    def off_us(self, attempt: Attempt, name: str) -> int:
        """How far a clock stands off, once that cannot change any more; 0 where it is left as it is."""
        clock = self.clock(attempt, name)
        is_off = clock.is_placed and abs(clock.offset_us) > max(APART_US, clock.uncertain_us)
        both = {name, attempt.speaker or name}
        is_over = is_off and all(attempt.hosts[n].is_ended or self.is_quiet(attempt, n) for n in both)  # fmt: skip
        return clock.offset_us if is_over else 0

    def kept(self, attempt: Attempt, name: str) -> Iterator[Event]:
        """What a host wrote in an attempt, as the ledger has it."""
        for (job, folder), events in sorted(self._kept.items()):
            if job == attempt.job and self._names.get((job, folder), folder) == name:
                yield from events

    def see(self, event: Event, *, folder: str, written_us: int | None) -> None:
        """Remember what is compared later. `written_us` is when the file was last written."""
        job = (event.run or "", event.attempt or 0)
        self._written_us[job[0]] = max(self._written_us[job[0]], written_us or 0)
        attempt = self._attempts.setdefault(job, Attempt(job))
        body = event.body
        pids = body.get("pids")
        if isinstance(pids, dict) and isinstance(body.get("host"), str):
            self._attach(attempt, folder, body["host"], _ranks(pids))
        world = body.get("world")
        if event.kind in {EventKind.RUN_START, EventKind.ATTEMPT_START} and isinstance(world, int):
            attempt.world = min(world, 1_000_000)
        if event.kind == EventKind.ATTEMPT_START:
            attempt.began_us = time_of(event)
        name = self._names.get((job, folder), folder)
        host = attempt.hosts.setdefault(name, Host())
        host.newest_us = max(host.newest_us, time_of(event), event.t_observed_us or 0)
        if event.kind == EventKind.STEP:
            attempt.speaker = name
        _keep_steps(host, body if event.kind == EventKind.STEP else body.get("steps"))
        _keep_words(host, name, event)

    def _attach(self, attempt: Attempt, folder: str, name: str, ranks: tuple[int, ...]) -> None:
        """The host says its name, which need not be that of its folder."""
        before = self._names.get((attempt.job, folder), folder)
        self._names[attempt.job, folder] = name
        if before != name and before in attempt.hosts:
            attempt.hosts.setdefault(name, attempt.hosts.pop(before))
        host = attempt.hosts.setdefault(name, Host())
        host.ranks = tuple(sorted({*host.ranks, *ranks}))
        if 0 in ranks:
            attempt.speaker = name

    def ranks_of(self, job: Job, folder: str) -> tuple[int, ...]:
        """The ranks of the host that writes into this folder, as far as it has said."""
        host = self._attempts[job].hosts.get(self._names.get((job, folder), folder))
        return () if host is None else host.ranks

    @property
    def attempts(self) -> Iterator[Attempt]:
        """All attempts, in order."""
        return (self._attempts[job] for job in sorted(self._attempts))

    def next_of(self, attempt: Attempt) -> Attempt | None:
        """The attempt of the run that followed, if one is known to have started."""
        run, number = attempt.job
        later = (a for a in self.attempts if a.job[0] == run and a.job[1] > number)
        return next((a for a in later if a.began_us is not None), None)

    # --- clocks -----------------------------------------------------------------------------------

    def measured(self, attempt: Attempt, name: str) -> Clock | None:
        """The clock of a host by the steps of this attempt that it and the host of rank 0 saw end."""
        key = (attempt.job, name)
        if key not in self._clocks:
            speaker = attempt.speaker
            reference = {} if speaker is None else attempt.hosts[speaker].steps
            self._clocks[key] = _compared(attempt.hosts[name].steps, reference, speaker or "")
        return self._clocks[key]

    def clock(self, attempt: Attempt, name: str) -> Clock:
        """The clock of a host: by this attempt, else by the nearest of the run in which the same two were compared."""
        if name == attempt.speaker:
            return Clock()
        found = self.measured(attempt, name)
        if found is not None:
            return found
        run, number = attempt.job
        others = [
            other
            for other in self._attempts.values()
            if other.job[0] == run and other.speaker == attempt.speaker is not None
        ]
        for other in sorted(others, key=lambda other: abs(other.job[1] - number)):
            found = self.measured(other, name) if name in other.hosts else None
            if found is not None:
                return found
        return Clock(is_compared=False)

    def at_us(self, attempt: Attempt, name: str, t_us: int) -> int:
        """A time of a host on the clock of the host of rank 0."""
        return t_us - self.clock(attempt, name).offset_us

    def span(self, attempt: Attempt, name: str, own: Span) -> Span:
        """A stretch of a host on the clock of the host of rank 0, as wide as it may be."""
        clock = self.clock(attempt, name)
        return Span(
            own.begin_us - clock.offset_us - clock.uncertain_us,
            own.end_us - clock.offset_us + clock.uncertain_us,
        )

    # --- what is over -----------------------------------------------------------------------------

    def is_told(self, attempt: Attempt, name: str, moment_us: int) -> bool:
        """True when this host has written all that it will ever write about a moment."""
        return self.is_past(attempt, name, moment_us) or self.is_quiet(attempt, name)

    def is_past(self, attempt: Attempt, name: str, moment_us: int) -> bool:
        """True when it ended, or went on writing for the grace period behind the moment."""
        host, clock = attempt.hosts[name], self.clock(attempt, name)
        newest_us = self.at_us(attempt, name, host.newest_us)
        return host.is_ended or newest_us - clock.uncertain_us > moment_us + GRACE_US

    def is_quiet(self, attempt: Attempt, name: str) -> bool:
        """True when it wrote nothing for the grace period, by the run's newest record or by when its files were written."""
        run = attempt.job[0]
        own, clock = attempt.hosts[name], self.clock(attempt, name)
        own_us, newest_us = self.at_us(attempt, name, own.newest_us), self._written_us[run]
        for other in (a for a in self._attempts.values() if a.job[0] == run):
            for peer, host in other.hosts.items():
                newest_us = max(newest_us, host.newest_us)
                their = self.clock(other, peer)
                slack_us = 0 if peer == name else clock.uncertain_us + their.uncertain_us
                if self.at_us(other, peer, host.newest_us) - own_us > GRACE_US + slack_us:
                    return True
        if self._now_us is None:
            self._now_us = SystemClock().wall_us()
        return self._now_us - newest_us > GRACE_US


def _ranks(numbers: dict[str, object]) -> tuple[int, ...]:
    return tuple(sorted(int(r) for r in numbers if str(r).isdecimal() and len(str(r)) < 10))


def _keep_steps(host: Host, steps: object) -> None:
    if not isinstance(steps, dict) or not isinstance(steps.get("ended_us"), list):
        return
    # Times that were spread evenly over several steps say nothing about one of them.
    if not isinstance(steps.get("first"), int) or steps.get("spread"):
        return
    host.steps |= {steps["first"] + at: us for at, us in enumerate(steps["ended_us"]) if isinstance(us, int)}  # fmt: skip
    while len(host.steps) > STEPS_MAX:
        del host.steps[next(iter(host.steps))]


def _keep_words(host: Host, name: str, event: Event) -> None:
    body, t_us = event.body, time_of(event)
    launches, codes = body.get("launches"), body.get("exit_codes")
    if isinstance(codes, dict):
        host.is_ended = True
        host.ranks = host.ranks or _ranks(codes)
    if isinstance(body.get("victims"), list):
        host.victims_us.append(t_us)
    if event.kind == EventKind.OBSERVATION and isinstance(launches, dict):
        counts = {int(r): n for r, n in launches.items() if str(r).isdecimal() and isinstance(n, int)}  # fmt: skip
        host.waits.append(Wait(event.id, name, t_us, counts))
    if event.kind == EventKind.INCIDENT_OPEN:
        # Open until it is closed; and another host may speak of the same silence a moment later.
        host.opened[event.incident or event.id] = Span(t_us - REACH_US, math.inf)
    if event.kind == EventKind.INCIDENT_CLOSE and event.incident in host.opened:
        begin_us = host.opened[event.incident].begin_us
        host.opened[event.incident] = Span(begin_us, t_us + REACH_US)


def _compared(ends: dict[int, int], reference: dict[int, int], speaker: str) -> Clock | None:
    common = sorted(ends.keys() & reference.keys())
    if not common:
        return None
    gaps = [ends[step] - reference[step] for step in common]
    offset_us = round(statistics.median(gaps))
    away_us = sorted(abs(gap - offset_us) for gap in gaps)
    return Clock(
        offset_us=offset_us,
        spread_us=round(statistics.median(away_us)),
        uncertain_us=away_us[math.ceil(0.9 * len(away_us)) - 1],
        steps=len(gaps),
        against=speaker,
        last_us=reference[common[-1]],
    )
