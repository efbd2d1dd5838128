"""The spools that `lastgood.attach()` writes: one folder a host, one event a line with its checksum.

What a host wrote is taken as it is, with its own clock. The host of rank 0 speaks of the job's steps; the other hosts
keep theirs as observations, from which the offset between two clocks is told: a step of a synchronous job ends on all
hosts at about the same time; a clock that stands apart is set right by further events (`spool_times.py`). What all
hosts together tell is in `spool_statements.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.errors import LedgerError
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event, decode_event, time_of
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.source import Item, Line, Source
from lastgood.ledger.importers.spool_jobs import Attempt, Spools
from lastgood.ledger.importers.spool_statements import Statements, silence_id, supersede
from lastgood.ledger.importers.spool_times import set_right

_HEAD, _MIDDLE = b'{"crc":"', b'","event":'
_KEPT = (
    "class_", "symptom", "cause", "cause_status", "role", "run", "attempt", "ranks", "devices", "versions", "topology",
    "detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us", "checkpoint_age_us", "lost_device_us",
    "first_divergent_step", "verification",
)  # fmt: skip


class SpoolImporter:
    """Every event of the spools, under a name that the same line always gets."""

    name = "spool"
    version = "2"
    title = "Spools of lastgood.attach (one folder a host)"

    def recognises(self, head: Head) -> int:
        """The frame of a line is nobody else's."""
        return 99 if head.data.startswith(_HEAD) and _MIDDLE in head.data[:64] else 0

    def files_in(self, folder: Path) -> list[Path]:
        """The segments of all hosts in a spool folder."""
        return sorted(p for p in folder.rglob("*.jsonl") if p.is_file() and not p.is_symlink())

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """The events of one segment. Its last line may be cut: a kill does that, and nothing before it is lost."""
        host = None if source.path is None else source.path.absolute().parent.name
        context.file_host = context.file_host or host
        spools = context.shared.setdefault("spool", Spools())
        folder = "" if source.path is None else source.path.absolute().parent.name
        reading = _Reading(context, spools, folder or context.file_host or "", source.mtime_us)
        yield from context.rows(reading.follow(source.lines()), reading.parse)

    def finish(self, context: Context) -> Iterator[Event]:
        """What only all hosts together can tell: the offsets of their clocks, and who hung where nobody was named."""
        spools = context.shared.get("spool")
        if spools is not None:
            for attempt in spools.attempts:
                yield from _offsets(context, spools, attempt)
                yield from set_right(context, spools, attempt)
            yield from Statements(context, spools).all()


IMPORTER = SpoolImporter()


class _Reading:
    """One segment."""

    def __init__(
        self, context: Context, spools: Spools, folder: str, written_us: int | None
    ) -> None:
        self._context, self._spools = context, spools
        self._folder, self._written_us = folder, written_us
        self._is_last = False

    def follow(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines, knowing of each whether it is the last."""
        before: Line | None = None
        for line in lines:
            if before is not None:
                yield before
            before = line
        if before is not None:
            self._is_last = True
            yield before

    def parse(self, row: Line) -> Iterator[Event]:
        """One line as one event."""
        data = _unframed(row.raw)
        if data is None:
            if not _begins_as_one(row.raw):
                raise RowProblem("no line of a spool", "it does not begin as one does")
            if self._is_last:
                self._context.ignore(row, "the last line is cut: its writer was killed in it")
                self._context.note(
                    "a segment ends in half a line; one event of that moment is lost"
                )
                return
            raise RowProblem("the checksum of the line does not fit", "the line was changed or cut")
        try:
            found = decode_event(data)
        except LedgerError as error:
            raise RowProblem("not an event", str(error)[:100]) from error
        self._context.coverage(time_of(found))
        self._spools.see(found, folder=self._folder, written_us=self._written_us)
        event = self._context.event(
            found.kind,
            row=row,
            identity=(found.id,),
            t_us=found.t_occurred_us,
            observed_us=found.t_observed_us,
            domain=found.domain,
            incident=found.incident,
            body=found.body,
            **{
                name: value
                for name in _KEPT
                if (value := getattr(found, name)) not in (None, (), {})
            },
        )
        job = (found.run or "", found.attempt or 0)
        if isinstance(found.body.get("exit_codes"), dict):
            ranks = self._spools.ranks_of(job, self._folder)
            event = supersede(event, silence_id(self._context, row, job, ranks))
        event = msgspec.structs.replace(event, clock=found.clock)
        if found.kind != EventKind.STEP:
            self._spools.keep(job, self._folder, event)
        yield event


def _begins_as_one(line: bytes) -> bool:
    """True for a line that may have been cut anywhere."""
    return line.startswith(_HEAD) or _HEAD.startswith(line)


def _unframed(line: bytes) -> bytes | None:
    """The event's bytes of a line, or None when it is cut or changed."""
    start, middle = len(_HEAD), len(_HEAD) + 8
    if not line.startswith(_HEAD) or line[middle : middle + len(_MIDDLE)] != _MIDDLE:
        return None
    data = line[middle + len(_MIDDLE) : -1]
    if not line.endswith(b"}") or b"%08x" % zlib.crc32(data) != line[start:middle]:
        return None
    return data


def _offsets(context: Context, spools: Spools, attempt: Attempt) -> Iterator[Event]:
    """For each host, how far its clock stands from that of the host of rank 0, and how sure that is."""
    for name in sorted(attempt.hosts):
        clock = None if name == attempt.speaker else spools.measured(attempt, name)
        if clock is None:
            continue
        context.note(
            f"clock of {name}: {clock.offset_us / 1000:+.1f} ms against {clock.against}, by {clock.steps} steps that both "
            f"saw end (median deviation {clock.spread_us / 1000:.1f} ms)"
        )
        body: dict[str, Any] = {
            "clock_offset": {"host": name, "against": clock.against, "offset_us": clock.offset_us, "spread_us": clock.spread_us, "steps": clock.steps}
        }  # fmt: skip
        run, number = attempt.job
        yield context.event(
            EventKind.ANNOTATION,
            row=Item(0, b"", None),
            identity=("clock", run, number, name, clock.against, clock.steps),
            t_us=clock.last_us,
            host=name,
            run=run,
            attempt=number or None,
            body=body,
        )
