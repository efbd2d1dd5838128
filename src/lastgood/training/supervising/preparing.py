"""While a generation ends: who will probably serve, and from which state, said before anybody has decided it.

Nothing comes of a wrong guess but some reading. What is said twice is said once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.training import control
from lastgood.training.processes import own_niceness

if TYPE_CHECKING:
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervising.supervisor import Supervisor


class Preparing:
    """What the workers of the newest generation were told to get ready for."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._hints: dict[str, control.ReadAhead | control.Prepare] = {}
        """Worker -> what it was told last."""
        self._ending: set[int] = set()
        """Ranks that seemed to end."""

    def begin_generation(self) -> None:
        """Everything is said anew."""
        self._hints.clear()
        self._ending.clear()

    def revoke(self, survivors: tuple[str, ...], *, generation: int) -> None:
        """Tell the survivors to leave, and the spares which ranks they will probably serve."""
        supervisor = self._supervisor
        newest_step = min(published_steps(supervisor), default=-1)
        assert supervisor.state is not None, "the loop revokes"
        self._prepare_spares(supervisor.state.crew.vacant_ranks, newest_step)
        for name in survivors:
            hint = (
                newest_step
                if self._is_news(name, control.ReadAhead(newest_step=newest_step))
                else -1
            )
            revoked = control.Revoked(generation=generation, newest_step=hint)
            supervisor.workers[name].channel.send(revoked)

    def expect_ends(self, workers: list[WorkerProcess]) -> None:
        """Ranks seem to end right now: the others get ready, and lose nothing should they live on."""
        for worker in workers:
            worker.hear_early_notice()
        supervisor = self._supervisor
        if not supervisor.is_running or supervisor.ending.is_finishing:
            return
        serving = supervisor.serving
        ending = {serving.index(worker.name) for worker in workers if worker.name in serving}
        if ending <= self._ending:
            return
        self._ending |= ending
        newest_step = min(published_steps(supervisor), default=-1)
        self._prepare_spares(tuple(sorted(self._ending)), newest_step)
        if all(worker.exit_code is not None for worker in workers):
            return  # certain: the others are told to leave in this very turn
        hint = control.ReadAhead(newest_step=newest_step)
        for rank, name in enumerate(serving):
            if newest_step >= 0 and rank not in self._ending and self._is_news(name, hint):
                supervisor.workers[name].channel.send(hint)

    def _prepare_spares(self, vacant_ranks: tuple[int, ...], newest_step: int) -> None:
        """Said before anything else: a spare has the most to do."""
        supervisor = self._supervisor
        assert supervisor.state is not None, "ranks are lost once there is a loop"
        if newest_step < 1:
            return
        for rank, name in zip(vacant_ranks, supervisor.state.crew.spares, strict=False):
            prepare = control.Prepare(
                generation=supervisor.state.generation + 1,
                rank=rank,
                world=len(supervisor.serving),
                newest_step=newest_step,
            )
            if self._is_news(name, prepare):
                supervisor.workers[name].set_niceness(own_niceness())
                supervisor.workers[name].channel.send(prepare)

    def _is_news(self, worker: str, hint: control.ReadAhead | control.Prepare) -> bool:
        """Whether a worker has not been told so already in this generation."""
        is_news = self._hints.get(worker) != hint
        self._hints[worker] = hint
        return is_news


def published_steps(supervisor: Supervisor) -> list[int]:
    """Return the newest state of each rank, where its worker is still known."""
    return [
        supervisor.workers[name].slot.published_step
        for name in supervisor.serving
        if name in supervisor.workers
    ]
