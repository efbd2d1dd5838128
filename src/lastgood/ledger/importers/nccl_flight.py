"""Dumps of the NCCL flight recorder, one file a rank: pickles, which are read without running them, and JSON.

Import the dumps of all ranks at once (a folder): each is kept as context, and the ranks that the others waited for, or
that left no dump, become suspects of one incident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from lastgood.contract.taxonomy import DomainKind, EventKind, FailureClass, Role, Symptom
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.nccl_dump import RankDump, read_dump
from lastgood.ledger.importers.nccl_group import Finding, Suspect, compare_dumps
from lastgood.ledger.importers.plain_pickle import BYTES_MAX, Refused, read_plain_pickle
from lastgood.ledger.importers.source import Source

_KEYS = (b"pg_config", b"pg_status", b"entries", b"collective_seq_id")
_GROUPS_TOLD_MAX = 64


class NcclFlight:
    """Each dump as context; the comparison of a folder's dumps as suspects."""

    name = "nccl_flight"
    version = "1"
    title = "NCCL flight-recorder dumps (pickle or JSON), one file a rank"

    def recognises(self, head: Head) -> int:
        """A pickle or JSON with the recorder's keys."""
        hits = sum(key in head.data for key in _KEYS)
        if head.data[:1] == b"\x80" or head.data.lstrip()[:1] == b"{":
            return (0, 30, 90, 95, 95)[hits]
        return 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """One event for the dump; it is kept for the comparison at the end of the import."""
        data = source.content(bytes_max=BYTES_MAX)
        folder = "" if source.path is None else source.path.parent.as_posix()

        def parse(row: Item) -> Iterator[Event]:
            dump = read_dump(_decoded(row.raw), name=source.name)
            _kept(context)[folder].append((dump, source.mtime_us))
            yield _state(dump, row, context, source.mtime_us)

        yield from context.rows([Item(1, data, None)], parse)

    def finish(self, context: Context) -> Iterator[Event]:
        """What the dumps of each folder say together."""
        for kept in _kept(context).values():
            finding = compare_dumps([dump for dump, _ in kept])
            for sentence in finding.notes:
                context.note(sentence)
            unnamed = sum(dump.rank is None for dump, _ in kept)
            if unnamed:
                context.note(
                    f"{unnamed} dumps have no rank in their file name: they are not compared"
                )
            yield from _suspicions(finding, kept, context)


IMPORTER = NcclFlight()

_Kept = tuple[RankDump, int | None]


def _kept(context: Context) -> defaultdict[str, list[_Kept]]:
    """The dumps of this import so far, by folder."""
    return context.shared.setdefault("nccl_flight", defaultdict(list))


def _decoded(data: bytes) -> Any:
    if data[:1] == b"\x80":
        try:
            return read_plain_pickle(data)
        except Refused as error:
            raise RowProblem(
                "a pickle that is more than plain data, or broken", str(error)
            ) from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RowProblem("neither a pickle nor JSON", str(error)) from error


def _state(dump: RankDump, row: Item, context: Context, mtime_us: int | None) -> Event:
    """Where one rank stood when it was dumped."""
    t_us = _last_us(dump) or mtime_us
    if t_us is None:
        raise RowProblem("no time in the dump, and the input is no file with a time of its own")
    context.coverage(t_us)
    if dump.dropped_count:
        context.known_loss(dump.dropped_count, "entries without a group or a sequence number")
    groups = {}
    for name, state in list(dump.groups.items())[:_GROUPS_TOLD_MAX]:
        last = state.last
        groups[name or "default"] = {
            "called": state.enqueued,
            "completed": state.completed,
            "last": None if last is None else {"name": last.name, "state": last.state},
            "at": None if last is None else last.frame,
        }
    ranks = () if dump.rank is None else (dump.rank,)
    return context.event(
        EventKind.OBSERVATION,
        row=row,
        scope=dump.name,
        t_us=t_us,
        observed_us=mtime_us,
        host=context.file_host,
        domain=[(DomainKind.RANK, str(rank)) for rank in ranks],
        ranks=ranks,
        role=Role.CONTEXT,
        body={
            "dump": dump.name,
            "version": dump.version,
            "entry_count": dump.entry_count,
            "groups": groups,
        },
    )


def _suspicions(finding: Finding, kept: list[_Kept], context: Context) -> Iterator[Event]:
    """One observation a suspect, all of one incident: the job stands still once."""
    seen = [mtime_us for _, mtime_us in kept if mtime_us is not None]
    last = [us for dump, _ in kept if (us := _last_us(dump)) is not None]
    # When the job was last seen to move: every member's last call, the earliest wait if there is one.
    waits = [s.waiting_us for s in finding.suspects if s.waiting_us is not None]
    t_us = min(waits, default=None) or max(last, default=None) or max(seen, default=None)
    if t_us is None:
        return
    names = sorted(f"{dump.rank}:{dump.name}" for dump, _ in kept)
    incident = context.incident_id(t_us, *names)
    row = Item(0, "\n".join(names).encode("utf-8", "replace"), None)
    for suspect in finding.suspects:
        yield context.event(
            EventKind.OBSERVATION,
            row=row,
            identity=(incident, suspect.rank),
            t_us=suspect.waiting_us or t_us,
            observed_us=max(seen, default=None),
            domain=[(DomainKind.RANK, str(suspect.rank))],
            ranks=(suspect.rank,),
            incident=incident,
            class_=FailureClass.FAIL_SLOW,
            symptom=Symptom.UNKNOWN if suspect.why == "no dump" else Symptom.HANG,
            cause="unknown",
            cause_status="unknown",
            role=Role.INITIATING,
            body=_evidence(suspect, finding),
        )


def _evidence(suspect: Suspect, finding: Finding) -> dict[str, Any]:
    words = {
        "no dump": f"rank {suspect.rank} left no dump; {finding.present} of {finding.expected} ranks did",
        "behind": f"rank {suspect.rank} has called up to {suspect.own_seq}, others up to {suspect.others_seq}",
        "other call": f"rank {suspect.rank} called something else than most under number {suspect.own_seq}",
        "not started": f"the device of rank {suspect.rank} has not begun a collective that others have begun",
        "incomplete": f"rank {suspect.rank} saw {suspect.own_seq} complete, others {suspect.others_seq}",
    }
    call = suspect.call
    told = {
        "evidence": [words[suspect.why]],
        "why": suspect.why,
        "group": suspect.group,
        "called": None if suspect.why == "no dump" else suspect.own_seq,
        "others": suspect.others_seq,
        "call": None if call is None else call.name,
        "at": None if call is None else call.frame,
        "role_status": "hypothesis",
    }
    return {key: value for key, value in told.items() if value is not None}


def _last_us(dump: RankDump) -> int | None:
    stamps = [c.created_us for s in dump.groups.values() for c in s.calls.values() if c.created_us]
    return max(stamps, default=None)
