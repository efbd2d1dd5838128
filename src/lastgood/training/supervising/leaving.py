"""Ranks that left their loop before its end: together they may, alone they are ended and replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.signals import leaving
from lastgood.signals.leaving import Left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.signals.reading import Assessment
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervising.supervisor import Supervisor


class Leavers:
    """Who left in this generation. A verdict is passed on only once the processes that it names have ended."""

    def __init__(self) -> None:
        """Nobody has left."""
        self.left: dict[int, Left] = {}
        self._verdict: Assessment | None = None

    def begin_generation(self) -> None:
        """In a new generation nobody has left."""
        self.left.clear()
        self._verdict = None

    def leave(self, rank: int, *, exit_code: int, now_us: int) -> None:
        """A rank says that its script has come out of the loop early."""
        self.left.setdefault(rank, Left(exit_code=exit_code, t_us=now_us))

    def is_ending(self, rank: int) -> bool:
        """Whether this rank is being ended for it, so that its end is no news."""
        return self._verdict is not None and rank in self._verdict.culprits

    @property
    def has_ending(self) -> bool:
        """Whether a rank is being ended for having left, so that every other verdict has to wait."""
        return self._verdict is not None

    def look(
        self, supervisor: Supervisor, workers: Sequence[WorkerProcess], *, now_us: int
    ) -> Assessment | None:
        """End those that left alone; the verdict once they have ended."""
        if self._verdict is None:
            if not self.left:
                return None
            self._verdict = leaving.assess(
                supervisor.watch.read(workers, supervisor.raised),
                self.left,
                now_us=now_us,
                patience_us=2 * supervisor.options.limits.step_floor_us,
            )
            if self._verdict is None:
                return None
            for rank in self._verdict.culprits:
                workers[rank].kill()
        if any(workers[rank].exit_code is None for rank in self._verdict.culprits):
            return None
        found, self._verdict = self._verdict, None
        self.left = {r: known for r, known in self.left.items() if r not in found.culprits}
        return found
