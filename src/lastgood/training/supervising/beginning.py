"""A run that begins again from the script's own state, because it failed before any state was published.

There is nothing to restore and no step to replay. What can be checked is that every rank got there and that all of
them hold one and the same state 0; the loop is told just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages
from lastgood.recovery.messages import ReplayOutcome, Tier
from lastgood.recovery.policy import LoopPhase
from lastgood.training.states.catalogue import read_snapshot_header

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor


INITIAL = messages.Candidate(
    step=0, tier=Tier.INITIAL, digest="as the script builds it", has_predecessor=False
)
"""Offered to the loop while no state 0 was published by all ranks."""


class Beginning:
    """Watches the ranks of a generation that begins again."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Nothing begins again yet."""
        self._supervisor = supervisor
        self.generation: int | None = None

    def poll(self) -> None:
        """Tell the loop once every rank has published its state 0, and whether all of them are one."""
        supervisor = self._supervisor
        state = supervisor.state
        if state is None or state.generation != self.generation:
            return
        if state.phase is not LoopPhase.RESTORING or not self._has_begun():
            return
        generation, self.generation = state.generation, None
        ranks = range(len(supervisor.serving))
        for rank in ranks:
            supervisor.tell_loop(
                messages.Restored(rank=rank, generation=generation, is_intact=True)
            )
        headers = [read_snapshot_header(supervisor.run_dir.snapshot(rank, 0)) for rank in ranks]
        digests = {None if header is None else header["digest"] for header in headers}
        is_one = len(digests) == 1 and None not in digests
        for rank in ranks:
            supervisor.tell_loop(
                messages.Replayed(
                    rank=rank,
                    generation=generation,
                    step=0,
                    outcome=ReplayOutcome.EQUAL if is_one else ReplayOutcome.DIFFERENT,
                    detail="" if is_one else "the ranks do not hold one and the same state 0",
                )
            )

    def _has_begun(self) -> bool:
        workers = [self._supervisor.workers[name] for name in self._supervisor.serving]
        return all(
            worker.slot.generation == self.generation and worker.slot.view().published_step >= 0
            for worker in workers
        )
