"""One rank's flight-recorder dump, reduced to what tells where the rank stood.

A dump lists the collectives that a rank has called, and how far it saw each of them come. It names neither its rank nor
its host nor its job. Numbers come as integers from a pickle and as text from JSON. The ids of process groups are counted
by each rank for itself, so groups are told apart by their names.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lastgood.ledger.importers.times import RowProblem

ENTRIES_MAX = 200_000
RANKS_MAX = 1_000_000
TEXT_MAX = 300
_RANK_NAMED = re.compile(r"rank[_\-.]?(\d{1,7})(?!.*rank[_\-.]?\d)", re.IGNORECASE)
_RANK_LAST = re.compile(
    r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin|dump|pt|txt))?(?:\.gz)?$", re.IGNORECASE
)


class Call(NamedTuple):
    """One collective that a rank called."""

    seq: int
    name: str
    """Such as `nccl:all_reduce`."""
    state: str
    created_us: int | None
    frame: str | None
    """Where the program called it, if the dump says."""


@dataclass(slots=True)
class GroupState:
    """Where a rank stood in one process group."""

    enqueued: int | None = None
    """Sequence number of the last collective that it called."""
    completed: int | None = None
    """Of the last one that it saw complete."""
    calls: dict[int, Call] = field(default_factory=dict)
    """The calls after the last complete one, and that one."""

    @property
    def last(self) -> Call | None:
        """The last call that is listed."""
        return self.calls[max(self.calls)] if self.calls else None


@dataclass(slots=True)
class RankDump:
    """What one file says."""

    rank: int | None
    name: str
    version: str
    entry_count: int
    dropped_count: int
    """Entries without the fields that an entry needs."""
    groups: dict[str, GroupState]
    members: dict[str, frozenset[int]]
    """Ranks of each process group, by its name."""


def rank_of(name: str) -> int | None:
    """The rank in a file's name: behind the last `rank`, else the digits at its end."""
    found = _RANK_NAMED.search(name) or _RANK_LAST.search(name)
    return None if found is None else int(found[1])


def read_dump(dump: Any, *, name: str) -> RankDump:
    """The state of each process group in a dump.

    Raises:
        RowProblem: It is no dump.
    """
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise RowProblem("not a flight-recorder dump: no entries")
    entries = [entry for entry in dump["entries"][:ENTRIES_MAX] if isinstance(entry, dict)]
    groups: dict[str, GroupState] = {}
    names: dict[str, str] = {}
    dropped = len(dump["entries"]) - len(entries)
    for entry in entries:
        group = _group_name(entry.get("process_group"))
        call = _call(entry)
        if group is None or call is None:
            dropped += 1
            continue
        names[str(entry.get("pg_id"))] = group
        if not entry.get("is_p2p"):  # point to point has a sequence of its own
            _add(groups.setdefault(group, GroupState()), call, entry)
    members = _members(dump.get("pg_config"))
    _add_status(groups, dump.get("pg_status"), names, members)
    for state in groups.values():
        done = state.completed
        if done is not None:
            state.calls = {seq: call for seq, call in state.calls.items() if seq >= done}
    rank = whole(dump.get("rank"))
    return RankDump(
        rank=rank if rank is not None and rank >= 0 else rank_of(name),
        name=name,
        version=str(dump.get("version"))[:40],
        entry_count=len(entries),
        dropped_count=dropped,
        groups=groups,
        members=members,
    )


def whole(value: Any) -> int | None:
    """A number that is written as an integer or as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20:  # fmt: skip
        return int(value)
    return None


def _group_name(value: Any) -> str | None:
    """`process_group` is a pair of name and description."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return value[0][:TEXT_MAX]
    return value[:TEXT_MAX] if isinstance(value, str) else None


def _call(entry: dict[str, Any]) -> Call | None:
    seq = whole(entry.get("collective_seq_id", entry.get("seq_id")))
    if seq is None:
        return None
    created_ns = whole(entry.get("time_created_ns"))
    return Call(
        seq,
        str(entry.get("profiling_name"))[:TEXT_MAX],
        str(entry.get("state"))[:40],
        None if not created_ns or created_ns < 0 else created_ns // 1000,
        _frame(entry.get("frames")),
    )


def _frame(frames: Any) -> str | None:
    """The innermost place outside of torch: where the program called."""
    if not isinstance(frames, list):
        return None
    for frame in frames[:200]:
        if not isinstance(frame, dict) or not isinstance(frame.get("filename"), str):
            continue
        if "/torch/" not in frame["filename"]:
            place = f"{frame.get('name')} at {frame['filename']}:{frame.get('line')}"
            return place[:TEXT_MAX]
    return None


def _add(state: GroupState, call: Call, entry: dict[str, Any]) -> None:
    state.calls[call.seq] = call
    state.enqueued = max(call.seq, -1 if state.enqueued is None else state.enqueued)
    is_complete = call.state == "completed" or bool(
        whole(entry.get("time_discovered_completed_ns"))
    )
    if is_complete:
        state.completed = max(call.seq, -1 if state.completed is None else state.completed)


def _members(config: Any) -> dict[str, frozenset[int]]:
    """Ranks of each group. They are written as text: `"[0, 1]"`."""
    found: dict[str, frozenset[int]] = {}
    if not isinstance(config, dict):
        return found
    for key, group in config.items():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list):
            ranks = json.dumps(ranks[:RANKS_MAX], default=str)
        if isinstance(ranks, str) and (members := _ranks(ranks)):
            found[str(key)[:TEXT_MAX]] = members
    return found


@functools.lru_cache(maxsize=1_024)
def _ranks(text: str) -> frozenset[int]:
    """The ranks that a text lists. Every rank's dump lists the same ones, and all of them share one set."""
    if len(text) > 16_000_000:
        return frozenset()
    try:
        ranks = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    if not isinstance(ranks, list) or len(ranks) > RANKS_MAX:
        return frozenset()
    return frozenset(r for r in map(whole, ranks) if r is not None and r >= 0)


def _add_status(
    groups: dict[str, GroupState],
    status: Any,
    names: dict[str, str],
    members: dict[str, frozenset[int]],
) -> None:
    """What the rank itself counted; -1 means never."""
    if not isinstance(status, dict):
        return
    for key, counts in status.items():
        group = names.get(str(key), str(key) if str(key) in members else None)
        if group is None or not isinstance(counts, dict):
            continue
        state = groups.setdefault(group, GroupState())
        enqueued = whole(counts.get("last_enqueued_collective"))
        completed = whole(counts.get("last_completed_collective"))
        if enqueued is not None and enqueued >= 0:
            state.enqueued = max(enqueued, -1 if state.enqueued is None else state.enqueued)
        if completed is not None and completed >= 0:
            state.completed = max(completed, -1 if state.completed is None else state.completed)
