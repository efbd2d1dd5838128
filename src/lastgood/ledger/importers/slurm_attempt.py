"""One attempt of a Slurm job, from a row of `sacct -P` or an item of `sacct --json`, and what becomes of it.

A job that is put back into the queue has one record per attempt when `sacct -D` wrote them, all under one job id: they
are attempts of one run. The run begins when the job was handed in and ends with its last attempt, so the time in the queue
belongs to it. Which attempt is the last one shows only when no other follows: each one ends the run, and the record
of a later one takes that end back (it supersedes it).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from lastgood.contract.taxonomy import DomainKind, EventKind, Role
from lastgood.ledger.event import ClockStamp, Event, Links
from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.mapping import Mapping, mapping_fields
from lastgood.ledger.importers.slurm_text import expand_hosts
from lastgood.ledger.importers.source import Item

JOBS_MAX = 100_000
"""Jobs whose last attempt is remembered; a job that comes again after so many others keeps two ends."""
ATTEMPTS_MAX = 1_000
"""Attempts of one job that are told apart when they come twice."""
FAILED_HOSTS_MAX = 256
TEXT_MAX = 2_000

NOT_STARTED = frozenset(("PENDING", "REVOKED", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT"))
GOING_ON = frozenset(
    ("RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
)
"""States of an attempt that has no end yet, whatever stands in the end column."""

_SERVER = ClockStamp(source="server")
"""All times of an export come from the controller: one clock."""
_STATE = re.compile(r"^([A-Z_]+)\+?(?: by (\d+|\S{1,64}))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """What a record says about one attempt. None is what it does not say."""

    cluster: str | None
    job: str
    name: str | None
    state: str
    """One word, without `by 1001` and without `+`."""
    cancelled_by: str | None
    exit_code: int | None
    signal: int | None
    submit_us: int | None
    start_us: int | None
    end_us: int | None
    is_inferred: bool
    """A time had no zone."""
    key_us: int
    """Its start (else its end) as it was written: the name of an attempt whose record counts no restarts."""
    restarts: int | None
    """0-based: how many attempts of the job came before this one."""
    nodes: str
    node_count: int | None
    failed_nodes: str
    devices: int | None
    reason: str | None
    elapsed_us: int | None
    """How long the attempt ran up to the export, if it says so."""

    @property
    def run(self) -> str:
        """The name of the run: all attempts of a job are one."""
        return f"slurm/{self.cluster}/{self.job}" if self.cluster else f"slurm/{self.job}"


def split_state(text: str) -> tuple[str, str | None]:
    """The state and who cancelled it: `CANCELLED by 1001` is CANCELLED and 1001, `COMPLETED+` is COMPLETED.

    Raises:
        ValueError: Text that is no state.
    """
    match = _STATE.match(text.strip())
    if match is None:
        raise ValueError(f"no job state: {text.strip()[:40]!r}")
    return match[1], match[2]


def split_exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of `1:0`; None for both when the field is empty."""
    if not text.strip():
        return None, None
    code, _, signal = text.strip().partition(":")
    return int(code), int(signal or 0)


@dataclass(slots=True)
class _Before:
    """The last attempt of a run that was seen."""

    attempt: int
    start_us: int
    end_us: int | None
    run_end: str | None
    """Id of the event that ended the run with it."""
    incident: str | None
    """The incident that ended it, while it is open."""
    earliest: tuple[int, int]
    """Start and number of the earliest attempt that was seen, when the newest come first."""
    seen: dict[int, int] = field(default_factory=dict)
    """Start of each attempt so far -> its number: a file may hold two exports."""


@dataclass(slots=True)
class JobEvents:
    """Turns attempts into events; remembers the last attempt of each job, because a later one changes its end."""

    context: Context
    mapping: Mapping
    last: OrderedDict[str, _Before] = field(default_factory=OrderedDict)
    is_exposure_unknown: bool = False

    def of(self, job: JobAttempt, row: Item) -> Iterator[Event]:
        """The events of one attempt."""
        if job.state in NOT_STARTED:
            job = replace(job, start_us=None)
        for at_us in (job.submit_us, job.start_us, job.end_us):
            if at_us is not None:
                self.context.coverage(at_us)
        is_over = job.state not in GOING_ON and job.end_us is not None
        if job.start_us is None and not (is_over and self._is_failure(job)):
            self.context.ignore(row, f"never started ({job.state})")
            return
        job = self._in_order(job)
        run = self.context.options.run or job.run
        before = self.last.get(run)
        attempt = self._attempt(job, before)
        since_us = job.start_us or job.end_us or 0
        now = _Before(attempt, since_us, None, None, None, (since_us, attempt))
        is_last = before is None or before.start_us <= since_us
        is_known = before is not None and since_us in before.seen
        if job.start_us is not None:
            yield from self._start(job, attempt, row, None if is_known else before)
        if is_over:
            yield from self._end(job, attempt, row, now, is_last=is_last)
        if before is not None and not is_last:
            if now.incident is not None and not is_known:
                yield self._closed(job, now, row, *before.earliest)
            before.earliest = min(before.earliest, now.earliest)
            now = before
        elif before is not None:
            now.seen = before.seen
        self._remember(run, now, since_us, attempt)

    def _remember(self, run: str, now: _Before, since_us: int, attempt: int) -> None:
        if len(now.seen) < ATTEMPTS_MAX:
            now.seen[since_us] = attempt
        self.last.pop(run, None)
        self.last[run] = now
        if len(self.last) > JOBS_MAX:
            self.last.popitem(last=False)

    def _in_order(self, job: JobAttempt) -> JobAttempt:
        """An end before its start is no time at all: the clock went back."""
        if job.start_us is None or job.end_us is None or job.end_us >= job.start_us:
            return job
        shifted_us = job.start_us - job.end_us
        self.context.clock_correction(
            1, shifted_us, "an attempt ends before it starts: it lasted no time"
        )
        return replace(job, end_us=job.start_us)

    def _attempt(self, job: JobAttempt, before: _Before | None) -> int:
        """1-based. From the record when it counts restarts, else by the order of the records."""
        if job.restarts is not None and self.context.options.run is None:
            return job.restarts + 1
        if before is None:
            return 1
        return before.seen.get(job.start_us or job.end_us or 0, before.attempt + 1)

    def _start(
        self, job: JobAttempt, attempt: int, row: Item, before: _Before | None
    ) -> Iterator[Event]:
        start_us = job.start_us or 0
        if before is not None and before.end_us is not None and start_us >= before.end_us:
            yield from self._again(job, attempt, row, before)
        devices = self._devices(job)
        if attempt == 1:
            handed_in_us = start_us if job.submit_us is None else min(job.submit_us, start_us)
            yield self._event(EventKind.RUN_START, job, attempt, row, handed_in_us, devices=devices)
        body = _body(name=job.name, job=job.job, nodes=job.nodes, node_count=job.node_count)
        if job.submit_us is not None:
            body["queued_us"] = max(0, start_us - job.submit_us)
        if job.state in GOING_ON and job.elapsed_us is not None:
            body["alive_until_us"] = start_us + job.elapsed_us
            self.context.coverage(body["alive_until_us"])
        yield self._event(
            EventKind.ATTEMPT_START, job, attempt, row, start_us, devices=devices, body=body
        )
        # A stretch without length would come and leave in an order that nobody knows.
        if devices and job.end_us != start_us:
            yield self._exposure(EventKind.EXPOSURE_JOIN, job, attempt, row, start_us, devices)

    def _again(self, job: JobAttempt, attempt: int, row: Item, before: _Before) -> Iterator[Event]:
        """The attempt before was not the last one: what it ended goes on."""
        if before.run_end is not None:
            body = {"reason": f"the job started again as attempt {attempt}"}
            event = self._event(
                EventKind.ANNOTATION, job, before.attempt, row, before.end_us, body=body
            )
            yield structs.replace(event, links=Links(supersedes=before.run_end))
        if before.incident is not None:
            yield self._closed(job, before, row, job.start_us or 0, attempt)

    def _closed(
        self, job: JobAttempt, failed: _Before, row: Item, at_us: int, attempt: int
    ) -> Event:
        """The incident of an attempt ends when its job runs again."""
        return self._event(
            EventKind.INCIDENT_CLOSE,
            job,
            failed.attempt,
            row,
            at_us,
            incident=failed.incident,
            body={"reason": f"the job started again as attempt {attempt}"},
            more=(failed.incident or "",),
        )

    def _end(
        self, job: JobAttempt, attempt: int, row: Item, now: _Before, *, is_last: bool
    ) -> Iterator[Event]:
        now.end_us = job.end_us
        body = _body(
            state=job.state,
            exit_code=job.exit_code,
            signal=job.signal or None,
            cancelled_by=job.cancelled_by,
            reason=job.reason,
        )
        if job.start_us is not None:
            devices = self._devices(job)
            if devices and job.end_us != job.start_us:
                yield self._exposure(
                    EventKind.EXPOSURE_LEAVE, job, attempt, row, job.end_us, devices
                )
            yield self._event(EventKind.ATTEMPT_END, job, attempt, row, job.end_us, body=body)
            if is_last:
                result = _body(exit_code=job.exit_code, result=job.state)
                event = self._event(EventKind.RUN_END, job, attempt, row, job.end_us, body=result)
                now.run_end = event.id
                yield event
        if self._is_failure(job):
            event = self._incident(job, attempt, row, body)
            now.incident = event.incident
            yield event

    def _is_failure(self, job: JobAttempt) -> bool:
        """False for states that the table calls context: a job that completed, or that its user cancelled."""
        known = self.mapping.rows.get(job.state)
        return known is None or known.role != Role.CONTEXT

    def _incident(self, job: JobAttempt, attempt: int, row: Item, body: dict[str, Any]) -> Event:
        hosts = _hosts(job.failed_nodes)
        if not hosts and job.state in {"NODE_FAIL", "BOOT_FAIL"} and job.node_count == 1:
            hosts = _hosts(job.nodes)
        incident = self.context.incident_id(*_identity(job))
        return self._event(
            EventKind.INCIDENT_OPEN,
            job,
            attempt,
            row,
            job.end_us,
            incident=incident,
            domain=tuple((DomainKind.HOST, host) for host in hosts),
            body={
                **body,
                "label": job.state,
                "mapping": self.mapping.id,
                "code": job.state,
            },
            **mapping_fields(self.mapping, job.state),
        )

    def _devices(self, job: JobAttempt) -> int | None:
        """Accelerators of the allocation: as recorded, else nodes times what the person says a node has."""
        if job.devices is not None:
            return job.devices
        each = self.context.options.devices_per_node
        if each is not None and job.node_count is not None:
            return each * job.node_count
        if not self.is_exposure_unknown:
            self.is_exposure_unknown = True
            self.context.note(
                "some jobs do not say how many accelerators they had: their exposure is unknown"
            )
        return None

    def _exposure(
        self, kind: str, job: JobAttempt, attempt: int, row: Item, at_us: int | None, devices: int
    ) -> Event:
        basis = "allocation" if job.devices is not None else "nodes x devices per node"
        return self._event(kind, job, attempt, row, at_us, devices=devices, body={"basis": basis})

    def _event(
        self,
        kind: str,
        job: JobAttempt,
        attempt: int,
        row: Item,
        at_us: int | None,
        *,
        more: tuple[str, ...] = (),
        **fields: Any,
    ) -> Event:
        run = self.context.options.run or job.run
        event = self.context.event(
            kind,
            row=row,
            t_us=at_us,
            identity=(run, *_identity(job), *more),
            inferred=job.is_inferred,
            run=run,
            attempt=attempt,
            **fields,
        )
        return event if job.is_inferred else structs.replace(event, clock=_SERVER)


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return expand_hosts(text, limit=FAILED_HOSTS_MAX)
    except ValueError as error:
        raise RowProblem("a list of hosts that cannot be", str(error)) from error


def _identity(job: JobAttempt) -> tuple[str, str | int]:
    """What makes an attempt the same in two exports: its job and its number, else its start as it was written.

    Never a time that was converted: another `--zone` must find the attempt again, and not make a second one of it.
    """
    return job.run, job.key_us if job.restarts is None else f"restarts {job.restarts}"


def _body(**values: Any) -> dict[str, Any]:
    """What is known of these."""
    return {
        key: value[:TEXT_MAX] if isinstance(value, str) else value
        for key, value in values.items()
        if value not in {None, ""}
    }
