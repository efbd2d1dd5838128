"""The spools that `lastgood.attach()` writes: one folder a host, one event a line with its checksum.

What a host wrote is taken as it is, with its own clock. The host of rank 0 speaks of the job's steps; the other hosts
keep theirs as observations, from which the offset between two clocks is told: a step of a synchronous job ends on all
hosts at about the same time. A hang that every host saw and nobody could name is named here, where the counts of all
ranks are together.
"""

from __future__ import annotations

import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lastgood.base.errors import LedgerError
from lastgood.contract.taxonomy import EventKind, FailureClass, Role, Symptom
from lastgood.ledger.event import Event, decode_event, time_of
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.source import Item, Line, Source

_HEAD, _MIDDLE = b'{"crc":"', b'","event":'
_KEPT = (
    "class_", "symptom", "cause", "cause_status", "role", "run", "attempt", "ranks", "devices", "versions", "topology",
    "detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us", "checkpoint_age_us", "lost_device_us",
    "first_divergent_step", "verification",
)  # fmt: skip
STEPS_MAX = 100_000
"""Newest step times kept for the comparison of two clocks, a host and attempt."""
OVERLAP_US = 60_000_000
"""Two hosts' words about one silence are at most this far apart."""


class _Waited(NamedTuple):
    """One host's word that its ranks wait for another host."""

    host: str
    t_us: int
    launches: dict[int, int]


class SpoolImporter:
    """Every event of the spools, under a name that the same line always gets."""

    name = "spool"
    version = "1"
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
        merged = context.shared.setdefault("spool", _Merged())
        reading = _Reading(context, merged)
        yield from context.rows(reading.follow(source.lines()), reading.parse)

    def finish(self, context: Context) -> Iterator[Event]:
        """What only all hosts together can tell: the offsets of their clocks, and who hung where nobody was named."""
        merged = context.shared.get("spool")
        if merged is not None:
            yield from merged.offsets(context)
            yield from merged.unnamed_hangs(context)
            yield from merged.silent_hosts(context)


IMPORTER = SpoolImporter()


class _Reading:
    """One segment."""

    def __init__(self, context: Context, merged: _Merged) -> None:
        self._context, self._merged = context, merged
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
        self._merged.see(found, self._context.file_host or "")
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
        yield msgspec.structs.replace(event, clock=found.clock)


def _unframed(line: bytes) -> bytes | None:
    """The event's bytes of a line, or None when it is cut or changed."""
    start, middle = len(_HEAD), len(_HEAD) + 8
    if not line.startswith(_HEAD) or line[middle : middle + len(_MIDDLE)] != _MIDDLE:
        return None
    data = line[middle + len(_MIDDLE) : -1]
    if not line.endswith(b"}") or b"%08x" % zlib.crc32(data) != line[start:middle]:
        return None
    return data


class _Merged:
    """What all hosts of the import said about one thing."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int, str], dict[int, int]] = defaultdict(dict)
        self._speakers: dict[tuple[str, int], str] = {}
        self._waits: dict[tuple[str, int], list[_Waited]] = defaultdict(list)
        self._opened_us: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._attached: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
        self._ended: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._victims_us: dict[tuple[str, int], list[int]] = defaultdict(list)

    def see(self, event: Event, host: str) -> None:
        """Remember what is compared later."""
        job = (event.run or "", event.attempt or 0)
        steps = event.body if event.kind == EventKind.STEP else event.body.get("steps")
        if isinstance(steps, dict) and isinstance(steps.get("ended_us"), list):
            if event.kind == EventKind.STEP:
                self._speakers[job] = host
            kept = self._steps[*job, host]
            # Times that were spread evenly over several steps say nothing about one of them.
            is_timed = isinstance(steps.get("first"), int) and not steps.get("spread")
            if len(kept) < STEPS_MAX and is_timed:
                kept |= {steps["first"] + at: us for at, us in enumerate(steps["ended_us"]) if isinstance(us, int)}  # fmt: skip
        pids, victims = event.body.get("pids"), event.body.get("victims")
        if isinstance(pids, dict) and isinstance(event.body.get("host"), str):
            self._attached[job][event.body["host"]] = sorted(int(r) for r in pids if str(r).isdigit())  # fmt: skip
        if "exit_codes" in event.body:
            self._ended[job].add(host)
        if isinstance(victims, list):
            self._victims_us[job].append(time_of(event))
        launches = event.body.get("launches")
        if event.kind == EventKind.OBSERVATION and isinstance(launches, dict):
            counts = {int(rank): n for rank, n in launches.items() if str(rank).isdigit() and isinstance(n, int)}  # fmt: skip
            self._waits[job].append(_Waited(host, time_of(event), counts))
        if event.kind == EventKind.INCIDENT_OPEN:
            self._opened_us[job].append(event.t_observed_us or time_of(event))

    def offsets(self, context: Context) -> Iterator[Event]:
        """For each host, how far its clock stands from that of the host of rank 0, and how sure that is."""
        for (run, attempt, host), ends in sorted(self._steps.items()):
            speaker = self._speakers.get((run, attempt))
            if speaker is None or speaker == host:
                continue
            reference = self._steps[run, attempt, speaker]
            gaps = [ends[step] - reference[step] for step in sorted(ends.keys() & reference.keys())]
            if not gaps:
                continue
            offset_us = round(statistics.median(gaps))
            spread_us = round(statistics.median(abs(gap - offset_us) for gap in gaps))
            context.note(
                f"clock of {host}: {offset_us / 1000:+.1f} ms against {speaker}, by {len(gaps)} steps that both saw end "
                f"(median deviation {spread_us / 1000:.1f} ms); times were not shifted"
            )
            body: dict[str, Any] = {
                "clock_offset": {"host": host, "against": speaker, "offset_us": offset_us, "spread_us": spread_us, "steps": len(gaps)}
            }  # fmt: skip
            last = max(ends.keys() & reference.keys())
            yield context.event(
                EventKind.ANNOTATION,
                row=Item(0, b"", None),
                identity=("clock", run, attempt, host, speaker, len(gaps)),
                t_us=reference[last],
                host=host,
                run=run,
                attempt=attempt or None,
                body=body,
            )

    def silent_hosts(self, context: Context) -> Iterator[Event]:
        """Ranks ended because another host's did, and a host of theirs never said how it ended: it is the one."""
        for job, victims_us in sorted(self._victims_us.items()):
            silent = sorted(self._attached[job].keys() - self._ended[job])
            first_us = min(victims_us)
            is_named = any(abs(at - first_us) <= OVERLAP_US for at in self._opened_us[job])
            if is_named or not silent:
                continue
            ranks = tuple(sorted(r for host in silent for r in self._attached[job][host]))
            incident = context.incident_id("silent", *job, first_us)
            yield context.event(
                EventKind.INCIDENT_OPEN,
                row=Item(0, b"", None),
                identity=("silent", *job, first_us),
                t_us=first_us,
                observed_us=first_us,
                incident=incident,
                class_=str(FailureClass.FAIL_STOP),
                symptom=str(Symptom.PROCESS_EXIT),
                role=str(Role.INITIATING),
                cause_status="unknown",
                ranks=ranks,
                domain=[("host", host) for host in silent],
                run=job[0],
                attempt=job[1] or None,
                body={"evidence": [f"no word of the end of {', '.join(silent)}, while ranks of other hosts ended of it"]},
            )  # fmt: skip

    def unnamed_hangs(self, context: Context) -> Iterator[Event]:
        """A silence in which every host waited: one incident, with the ranks that entered the fewest collectives."""
        for job, waits in sorted(self._waits.items()):
            waits.sort(key=lambda w: w.t_us)
            hosts = {w.host for w in waits}
            first_us = waits[0].t_us
            is_named = any(abs(at - first_us) <= OVERLAP_US for at in self._opened_us[job])
            if is_named or len(hosts) < 2:
                continue
            counts = {rank: n for w in waits for rank, n in w.launches.items()}
            fewest = min(counts.values(), default=0)
            behind = tuple(sorted(r for r, n in counts.items() if n == fewest))
            named = behind if len(behind) < len(counts) else ()
            words = f"{len(hosts)} hosts waited for each other; fewest collectives entered: {fewest}, by rank {', '.join(map(str, behind))}"
            incident = context.incident_id(*job, first_us)
            yield context.event(
                EventKind.INCIDENT_OPEN,
                row=Item(0, b"", None),
                identity=("hang", *job, first_us),
                t_us=first_us,
                observed_us=first_us,
                incident=incident,
                class_=str(FailureClass.FAIL_STOP),
                symptom=str(Symptom.HANG),
                role=str(Role.INITIATING),
                cause_status="unknown",
                ranks=named,
                domain=[("rank", str(rank)) for rank in named],
                run=job[0],
                attempt=job[1] or None,
                body={"evidence": [words]},
            )
