"""What an injector may read of a job that is only watched: who serves a rank, and how far it is.

The same two files as a supervised run writes (`lastgood.faults.live_run`), written in drills only and never read back.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lastgood.training.rundir import RunDir
    from lastgood.training.slot import StatusSlot


class Served(Protocol):
    """A rank with its process and its page."""

    rank: int
    name: str
    pid: int
    slot: StatusSlot


class Outsiders:
    """Writes the two files of a run."""

    def __init__(self, run_dir: RunDir) -> None:
        """Nothing is written yet."""
        self._run_dir = run_dir
        self._steps: list[int] = []

    def say(self, attempt: int, ranks: Sequence[Served]) -> None:
        """Who serves which rank from now on."""
        self.say_members(attempt, {rank.rank: (rank.name, rank.pid) for rank in ranks})

    def say_members(self, attempt: int, members: Mapping[int, tuple[str, int]]) -> None:
        """The same by name and process."""
        ranks = {str(rank): {"worker": name, "pid": pid} for rank, (name, pid) in members.items()}
        state: dict[str, object] = {
            "generation": attempt,
            "phase": "running",
            "spares_parked": 0,
            "ranks": ranks,
        }
        with suppress(OSError):
            self._run_dir.write_state(state)

    def say_steps(self, ranks: Sequence[Served]) -> None:
        """The newest step of each rank."""
        self.say_numbers([rank.slot.view().published_step for rank in ranks])

    def say_numbers(self, steps: list[int]) -> None:
        """The same by number, rank 0 first."""
        if steps == self._steps:
            return
        self._steps = steps
        with suppress(OSError):
            self._run_dir.progress.write_bytes(struct.pack(f"<{len(steps)}q", *steps))
