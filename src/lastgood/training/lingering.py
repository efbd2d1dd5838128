"""Ranks that do not end behind the end of their script: named with their stacks, and ended where only Python is left.

Threads, exit handlers and processes of the script may still be at work, such as an upload of the last model, so a rank
that has those left is named and never ended. Behind them Python takes itself apart, and nothing of the script is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.units import format_duration
from lastgood.training.teardown import LastPart, last_part_of
from lastgood.training.watching.dumps import JobDump
from lastgood.training.watching.stack_groups import group_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lastgood.signals.limits import Limits
    from lastgood.training.recorder import Recorder

LIMIT_US_MIN = 30_000_000
"""However short the limit of a step is: a loaded host takes its time to free what a job had."""
GONE_US_MAX = 10_000_000
"""A rank that is still there so long after it was killed sits in the kernel, and is not waited for."""
_LOOK_US = 200_000
_TURN_US_MAX = 1_000_000
"""The most that one look counts: what is longer was a pause of this process, and perhaps of the ranks too."""
_WHY = {
    LastPart.OWN_WORK: "threads, exit handlers or processes of it still run and may be at work, so it is left to itself",
    LastPart.TEARDOWN: "Python takes itself apart and does not come to its end",
}


class RankAtEnd(NamedTuple):
    """A rank that may be at its end."""

    rank: int
    name: str
    pid: int
    exit_code: int | None
    """What the kernel says; None while it runs."""
    path: Path
    """The file beside which it notes how far it is."""
    end: Callable[[], None]
    """Kills the process, and nothing that it started."""


class Lingering:
    """Looks once a turn, and has the stacks of those dumped that are beyond their limit."""

    def __init__(
        self, recorder: Recorder, *, limits: Limits, stacks: Path, may_end: bool = True
    ) -> None:
        """Where `may_end` is false ranks are named only."""
        self.given_up: set[str] = set()
        """Ranks that were killed and that the kernel keeps."""
        self._recorder = recorder
        self._stacks = stacks
        self._may_end = may_end
        limit_us = max(LIMIT_US_MIN, limits.step_floor_us)
        self._limits_us = {
            LastPart.TEARDOWN: limit_us,
            LastPart.OWN_WORK: max(limit_us, limits.section_floor_us),
        }
        self._waited_us: dict[tuple[str, LastPart], int] = {}
        self._told: set[tuple[str, LastPart]] = set()
        self._killed_us: dict[str, int] = {}
        self._looked_us = 0
        self._late: list[RankAtEnd] = []
        """Whose stacks are being dumped; all of them are in the same part."""
        self._part = LastPart.TEARDOWN
        self._dump: JobDump | None = None

    def look(self, ranks: Callable[[], Sequence[RankAtEnd]], now_us: int) -> None:
        """One turn."""
        if self._dump is not None:
            if self._dump.advance(now_us):
                self._settle(self._dump, now_us)
            return
        passed_us = now_us - self._looked_us
        if passed_us < _LOOK_US:
            return
        self._looked_us = now_us
        living = [rank for rank in ranks() if rank.exit_code is None]
        self._give_up(living, now_us)
        late = self._beyond_limit(living, passed_us=min(passed_us, _TURN_US_MAX))
        self._part = next((s for s in LastPart if late[s]), self._part)
        self._late = late[self._part]
        if self._late:
            self._told.update((rank.name, self._part) for rank in self._late)
            self._dump = JobDump(self._late, self._stacks, now_us=now_us)

    def close(self) -> None:
        """End the dumpers that still run."""
        if self._dump is not None:
            self._dump.close()

    def _beyond_limit(
        self, living: Sequence[RankAtEnd], *, passed_us: int
    ) -> dict[LastPart, list[RankAtEnd]]:
        """Those of whom nobody was told yet; `passed_us` since the last look."""
        late: dict[LastPart, list[RankAtEnd]] = {part: [] for part in LastPart}
        for rank in living:
            part = last_part_of(rank.path)
            if part is None:
                continue
            key = rank.name, part
            known_us = self._waited_us.get(key)
            self._waited_us[key] = 0 if known_us is None else known_us + passed_us
            if self._waited_us[key] >= self._limits_us[part] and key not in self._told:
                late[part].append(rank)
        return late

    def _settle(self, dump: JobDump, now_us: int) -> None:
        """The stacks are there, as far as they come: say who is late and where it stands, then end it."""
        self._dump = None
        dump.close()
        groups = group_stacks(dump.stacks())
        is_ended = self._may_end and self._part is LastPart.TEARDOWN
        who = ", ".join(f"rank {rank.rank} ({rank.name})" for rank in self._late)
        text = (
            f"behind the end of its script {who} has not ended for {format_duration(self._limits_us[self._part])}: "
            f"{_WHY[self._part]}{'; it is ended now' if is_ended else ''}"
        )
        body = {
            "text": text if groups else f"{text}; no stack of it could be read",
            "stack_groups": [group.to_plain() for group in groups],
            "dumped": sum(len(group.pids) for group in groups),
        }
        self._recorder.record("annotation", ranks=tuple(x.rank for x in self._late), body=body)
        for rank in self._late if is_ended else ():
            rank.end()
            self._killed_us[rank.name] = now_us

    def _give_up(self, living: Sequence[RankAtEnd], now_us: int) -> None:
        """The kernel keeps a killed rank, such as in a driver: its script is through, so nobody has to wait for it."""
        for rank in living:
            killed_us = self._killed_us.get(rank.name, now_us)
            if now_us - killed_us >= GONE_US_MAX and rank.name not in self.given_up:
                self.given_up.add(rank.name)
                body = {"worker": rank.name, "state": "unkillable", "pid": rank.pid}
                self._recorder.record("inventory", body=body)
