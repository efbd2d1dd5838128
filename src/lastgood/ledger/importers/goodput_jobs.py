"""What the entries of an ml-goodput-measurement log add up to: one run per job, its starts, sections and steps.

A step has a start and no end: it ends where the next one starts. Steps are written in chunks, and the last step
before a restart, before a missing record or at the end of the file is left open; what became of it is decided when
the ledger is read (`ledger/executions.py`), because a later file may tell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.goodput_entry import Facts, Section, read_entry
from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.source import Item

CHUNK_STEPS_MAX: Final = 64
JOBS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 512
REMEMBERED_MAX: Final = 65_536
"""Among so many entries, one that is there twice is taken once."""
JITTER_US: Final = 5_000_000
"""A clock that steps back by less than this was adjusted; by more, it is another start."""
LATE_US: Final = 60_000_000
"""Entries are shipped by several threads: a step may arrive this much after a later one."""


@dataclass(slots=True)
class _Chunk:
    """Steps that follow each other; the last one has no end yet."""

    first: int
    began_us: int
    seen_us: int | None
    ended_us: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.ended_us)

    @property
    def last_us(self) -> int:
        """Start of the last step."""
        return self.ended_us[-1] if self.ended_us else self.began_us


@dataclass(slots=True)
class _Job:
    run: str
    is_open: bool = False
    start_us: int | None = None
    """The recorded time of the present start: it names the clock that the records behind it come from."""
    chunk: _Chunk | None = None
    has_stepped: bool = False
    """A step was recorded since the last start."""


class Jobs:
    """Turns entries into events; holds one chunk of steps per job."""

    def __init__(self, context: Context) -> None:
        """Events are made with the context of the file."""
        self._context = context
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._row: Item | None = None
        self._seen_us: int | None = None

    def take(self, row: Item, payload: dict[str, Any], seen_us: int | None) -> list[Event]:
        """The events that this entry completes."""
        facts, name = read_entry(payload), self._name(payload)
        told = sorted((k, v) for k, v in payload.items() if isinstance(v, str | int | float))
        key = hash(tuple(told))  # an entry may be megabytes, and many are remembered
        if key in self._remembered:
            self._context.ignore(row, "the same entry came before")
            return []
        self._remembered[key] = None
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        self._row, self._seen_us = row, seen_us
        for at_us in (facts.started_us, facts.step_us, facts.ended_us, seen_us):
            if at_us is not None:
                self._context.coverage(at_us)
        events = [*self._make_room(name), *self._of(self._jobs[name], facts)]
        if not events and facts.step is not None:
            self._context.hold(row)
        elif not events:
            self._context.ignore(row, "an entry without a time of the job")
        return events

    def finish(self) -> Iterator[Event]:
        """What is still held when the file ends."""
        for job in self._jobs.values():
            yield from self._flush(job)

    def _name(self, payload: dict[str, Any]) -> str:
        name = payload.get("job_name")
        if name is None and len(self._jobs) == 1:
            return next(iter(self._jobs))  # a checkpoint manager that does not know its job
        if not isinstance(name, str) or not name.strip():
            raise RowProblem("job_name is missing")
        if len(name) > NAME_CHARS_MAX:
            raise RowProblem("job_name is too long for a name", f"{len(name):,} characters")
        return name

    def _make_room(self, name: str) -> Iterator[Event]:
        if name in self._jobs:
            return
        if len(self._jobs) >= JOBS_MAX:
            _, oldest = self._jobs.popitem(last=False)
            yield from self._flush(oldest)
        self._jobs[name] = _Job(self._context.options.run or name)

    def _of(self, job: _Job, facts: Facts) -> Iterator[Event]:
        if facts.started_us is not None:
            yield from self._start(job, facts.started_us)
        if facts.first_us is not None and not job.is_open:
            # A file that begins inside a run names no start; the ledger needs one to know the run.
            job.is_open = True
            body = {"begins_inside": True}
            yield self._event(EventKind.RUN_START, job, facts.first_us, body=body)
        if facts.step is not None and facts.step_us is not None:
            yield from self._step(job, facts.step, facts.step_us)
        for section in facts.sections:
            yield self._section(job, section)
        if facts.ended_us is not None:
            yield from self._flush(job)
            yield self._event(EventKind.RUN_END, job, facts.ended_us)
            job.is_open = False

    # --- starts -----------------------------------------------------------------------------------

    def _start(self, job: _Job, at_us: int) -> Iterator[Event]:
        yield from self._flush(job)
        is_new, job.start_us, job.has_stepped = not job.is_open, at_us, False
        job.is_open = True
        if is_new:
            yield self._event(EventKind.RUN_START, job, at_us)
        yield self._event(EventKind.ATTEMPT_START, job, at_us)

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, job: _Job, step: int, at_us: int) -> Iterator[Event]:
        job.has_stepped = True
        chunk = job.chunk
        if chunk is None:
            job.chunk = _Chunk(step, at_us, self._seen_us)
            return
        if step < chunk.first and chunk.began_us - LATE_US <= at_us <= chunk.began_us:
            yield self._chunk(job, _Chunk(step, at_us, self._seen_us), last=step)
            return
        if step <= chunk.last or at_us < chunk.last_us - JITTER_US:
            yield from self._unsaid_start(job, at_us)
        elif step == chunk.last + 1:
            if at_us < chunk.last_us:
                shift_us = chunk.last_us - at_us
                self._context.clock_correction(
                    1, shift_us, "a step starts before the one before it"
                )
                at_us = chunk.last_us
            chunk.ended_us.append(at_us)
            if len(chunk.ended_us) < CHUNK_STEPS_MAX and step % CHUNK_STEPS_MAX:
                return
            # Chunks end at the same numbers wherever a file begins, so that files that overlap merge.
            yield self._chunk(job, chunk, last=step - 1)
        else:
            yield from self._flush(job)
        job.chunk = _Chunk(step, at_us, self._seen_us)

    def _unsaid_start(self, job: _Job, at_us: int) -> Iterator[Event]:
        """A step number that runs again, or a clock that went back, shows a restart that nobody recorded."""
        yield from self._flush(job)
        job.start_us = at_us
        body = {"reason": "a step number runs again, or the clock went back; no start is on record"}
        yield self._event(EventKind.ATTEMPT_START, job, at_us, body=body)

    def _flush(self, job: _Job) -> Iterator[Event]:
        """The steps that are held, the last of them without an end."""
        if job.chunk is not None:
            yield self._chunk(job, job.chunk, last=job.chunk.last)
            job.chunk = None

    def _chunk(self, job: _Job, chunk: _Chunk, *, last: int) -> Event:
        body = {
            "first": chunk.first,
            "last": last,
            "began_us": chunk.began_us,
            "ended_us": chunk.ended_us,
        }
        tells = (chunk.first, last, *(chunk.ended_us[-1:]))
        return self._event(
            EventKind.STEP, job, chunk.began_us, body=body, tells=tells, seen_us=chunk.seen_us
        )

    # --- events -----------------------------------------------------------------------------------

    def _section(self, job: _Job, section: Section) -> Event:
        """Begin or end of a section. Data that load while steps run take nothing from the steps."""
        is_beside = section.name == "data_loading" and job.has_stepped
        body = {"name": section.name, "state": "parallel" if is_beside else section.state}
        kind = f"section.{section.side}"
        return self._event(kind, job, section.at_us, body=body, tells=(section.name,))

    def _event(
        self,
        kind: str,
        job: _Job,
        at_us: int,
        *,
        body: dict[str, Any] | None = None,
        tells: tuple[str | int, ...] = (),
        seen_us: int | None = None,
    ) -> Event:
        assert self._row is not None
        self._context.coverage(at_us)
        told = dict(body or {})
        if job.start_us is not None:
            told["start_us"] = job.start_us
        return self._context.event(
            kind,
            row=self._row,
            t_us=at_us,
            observed_us=self._seen_us if seen_us is None else seen_us,
            identity=(job.run, at_us, *tells),
            run=job.run,
            body=told,
        )
