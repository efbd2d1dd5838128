"""Which process groups stand by: one for each rank that may be lost, with the next spare in its place.

They are ordered while the ranks train, and never before the first step behind a recovery was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.training import control

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor

_WORLD_MAX = 8
"""Every rank has a connection to each other one in each of these groups, so their number grows with its square."""


class StandbyGroups:
    """What the workers were told to form last."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._number = 0
        self._serving: tuple[str, ...] = ()
        self._spare = ""
        self._begun_behind: int | None = None
        """The step behind which the ranks went on; None while they do not."""
        self._used: tuple[int, int] | None = None
        """The order and the case of the group that the ranks have now; None where it did not stand by."""

    def case_of(self, workers: tuple[str, ...]) -> tuple[int, int] | None:
        """Return number and lost rank of the group that these workers have, if they are known to have one."""
        changed = [
            rank
            for rank, (now, before) in enumerate(zip(workers, self._serving, strict=False))
            if now != before
        ]
        is_there = len(changed) == 1 and workers[changed[0]] == self._spare
        self._used = (self._number, changed[0]) if is_there else None
        return self._used

    def poll(self) -> None:
        """Order groups when the ranks train and have others than those, or another spare."""
        supervisor = self._supervisor
        state = supervisor.state
        assert state is not None, "polled once the loop has begun"
        serving, spares = supervisor.serving, state.crew.spares
        if not self._has_stepped() or not spares or not 1 < len(serving) <= _WORLD_MAX:
            return
        if (serving, spares[0]) == (self._serving, self._spare):
            return
        self._serving, self._spare = serving, spares[0]
        self._number += 1
        used = self._used and supervisor.run_dir.standby_store(*self._used)
        supervisor.run_dir.retire_standby_stores(but=used)
        for rank, name in (*enumerate(serving), (None, self._spare)):
            supervisor.workers[name].channel.send(
                control.FormStandby(number=self._number, world=len(serving), rank=rank)
            )

    def _has_stepped(self) -> bool:
        """Whether a step was accepted since the ranks went on: before that, nothing may delay them."""
        step = self._supervisor.page.assessed_step
        if not self._supervisor.is_running:
            self._begun_behind = None
        elif self._begun_behind is None:
            self._begun_behind = step
        return self._begun_behind is not None and step > self._begun_behind
