"""Which rank the others waited for, from the dumps of all ranks together.

A collective completes when every member has called it. So everything up to the last one that any rank saw complete is
done, and the job stands still in the next one. A rank that has not called that one is behind. (How far the others have
called ahead of it says nothing: calls only queue work on the device.) If all have called it, a rank that called
something else, or whose device has not started it while others have, is suspect. And the rank that failed hardest left
no dump at all. These are places to look, not findings of a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.ledger.importers.nccl_dump import Call, GroupState, RankDump

PRESENT_SHARE = 0.5
"""Unless more than this share of the ranks left a dump, a missing one says only that somebody did not copy it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A rank to look at first, and why."""

    rank: int
    why: str
    """`no dump`, `behind` (has not called what the others stand in), `other call` (called something else under that
    number), `not started` (its device has not begun it), or `incomplete` (saw less complete than the others)."""
    group: str
    own_seq: int | None
    others_seq: int | None
    call: Call | None
    """What the others wait in, or what the rank called last."""
    waiting_us: int | None
    """Since when the others wait: the first call of what has not completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the dumps of one folder say together."""

    suspects: tuple[Suspect, ...]
    expected: int
    """Ranks that the process groups name."""
    present: int
    notes: tuple[str, ...]


def compare_dumps(dumps: Sequence[RankDump]) -> Finding:
    """The suspects among the ranks of these dumps, each rank once, for its strongest reason."""
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    expected = frozenset[int]().union(*{m for dump in dumps for m in dump.members.values()})
    notes: list[str] = []
    suspects: dict[int, Suspect] = {}
    missing = sorted(expected - by_rank.keys())
    if missing and len(by_rank) > PRESENT_SHARE * len(expected):
        for rank in missing:
            suspects[rank] = Suspect(
                rank=rank, why="no dump", group="", own_seq=None, others_seq=None, call=None, waiting_us=None,
            )  # fmt: skip
    elif missing:
        notes.append(
            f"dumps of {len(by_rank)} of {len(expected)} ranks are here: a missing one says nothing"
        )
    for group in sorted({name for dump in by_rank.values() for name in dump.groups}):
        states = {r: d.groups[group] for r, d in by_rank.items() if group in d.groups}
        for suspect in _in_group(group, states):
            suspects.setdefault(suspect.rank, suspect)
    if by_rank and not suspects:
        notes.append("the ranks that left a dump stand at the same place: no suspect")
    return Finding(
        suspects=tuple(suspects[rank] for rank in sorted(suspects)),
        expected=len(expected),
        present=len(by_rank),
        notes=tuple(notes),
    )


def _in_group(group: str, states: dict[int, GroupState]) -> list[Suspect]:
    """Ranks that the others of one process group wait for."""
    called = {rank: s.enqueued for rank, s in states.items() if s.enqueued is not None}
    if len(called) < 2:
        return []
    done = {rank: s.completed for rank, s in states.items() if s.completed is not None}
    most = max(done.values(), default=None)
    # What a rank has not called cannot be complete: a record that says so is of a call that ended in an error.
    stuck = max(called.values()) if most is None else min(most, *called.values()) + 1
    if max(called.values()) >= stuck:
        behind = [rank for rank, seq in called.items() if seq < stuck]
        others = _other_calls(states, stuck)
        idle = _not_started(states, stuck)
        for why, ranks in (("behind", behind), ("other call", others), ("not started", idle)):
            if ranks:
                return [_suspect(why, group, r, called[r], max(called.values()), states, stuck) for r in ranks]  # fmt: skip
    return [
        _suspect("incomplete", group, rank, seq, most or 0, states, seq + 1)
        for rank, seq in done.items()
        if most is not None and seq < most
    ]


def _not_started(states: dict[int, GroupState], seq: int) -> list[int]:
    """Ranks that have called this collective and whose device has not begun it, while that of others has."""
    found = {rank: s.calls[seq].state for rank, s in states.items() if seq in s.calls}
    if "started" not in found.values():
        return []
    return sorted(rank for rank, state in found.items() if state == "scheduled")


def _other_calls(states: dict[int, GroupState], seq: int) -> list[int]:
    """Ranks that called something else than most under this number, while it has not completed."""
    calls = {
        rank: state.calls[seq].name
        for rank, state in states.items()
        if seq in state.calls and (state.completed is None or state.completed < seq)
    }
    counts = Counter(calls.values())
    if len(counts) < 2:
        return []
    (usual, most), *rest = counts.most_common()
    if rest[0][1] == most:
        return sorted(calls)  # no majority: all of them are to be looked at
    return sorted(rank for rank, name in calls.items() if name != usual)


def _suspect(
    why: str,
    group: str,
    rank: int,
    own_seq: int,
    others_seq: int,
    states: dict[int, GroupState],
    stuck_seq: int,
) -> Suspect:
    waiting = [
        state.calls[stuck_seq]
        for other, state in states.items()
        if other != rank and stuck_seq in state.calls
    ]
    since = [call.created_us for call in waiting if call.created_us is not None]
    own = states[rank].calls.get(stuck_seq) or states[rank].last
    return Suspect(
        rank=rank,
        why=why,
        group=group,
        own_seq=own_seq,
        others_seq=others_seq,
        call=waiting[0] if why == "behind" and waiting else own,
        waiting_us=min(since, default=None),
    )
